/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Test programs of the POSIX requirements for pthread_*(), for the C library and for
 * core/locks/interpose with LD_PRELOAD. A program is a list of tests. Arguments name those to run, or
 * with a - before the name those to leave out. The first test that fails, hangs or crashes is
 * reported by name.
 *
 * Contention lasts for a time, not for a number of rounds: with more threads than CPUs, a lock with
 * a strict order waits some time slices at every hand-over, and other locks pass millions of times
 * per second.
 */
#ifndef UNSPIN_LOCKS_TEST_POSIX_H
#define UNSPIN_LOCKS_TEST_POSIX_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTENTION_NS 100000000LL
/* Longer than any of them takes on a busy computer. The environment may set less. */
#define HANGS_AFTER_S 60

struct test {
	const char *name;
	void (*run)(void);
};

static const char *running = "start";

/* Ends all processes of the test, which have their own group. */
static inline void fail(void)
{
	kill(0, SIGKILL);
}

#define EXPECT(is)									\
	do {										\
		if (!(is)) {								\
			dprintf(STDOUT_FILENO, "%s: line %d: %s\n", running, __LINE__, #is);\
			fail();								\
		}									\
	} while (0)

static inline long long now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline struct timespec in_ns(clockid_t clock, long long from_now_ns)
{
	long long at_ns = now_ns(clock) + from_now_ns;

	return (struct timespec) { at_ns / 1000000000, at_ns % 1000000000 };
}

static inline void sleep_ms(long ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static inline void start(pthread_t *thread, int threads, void *(*run)(void *), void *argument)
{
	int i;

	for (i = 0; i < threads; i++)
		EXPECT(!pthread_create(&thread[i], NULL, run, argument));
}

static inline void join(pthread_t *thread, int threads)
{
	int i;

	for (i = 0; i < threads; i++)
		EXPECT(!pthread_join(thread[i], NULL));
}

/* Memory that fork() shares. */
static inline void *shared_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	EXPECT(memory != MAP_FAILED);
	return memory;
}

/* The child's exit status must be 0. */
static inline void reap(pid_t child)
{
	int status;

	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(status == 0);
}

static inline void dies(int signal)
{
	static const char of_what[] = ": hangs or dies\n";

	(void)signal;
	if (write(STDOUT_FILENO, running, strlen(running)) > 0)
		(void)!write(STDOUT_FILENO, of_what, sizeof(of_what) - 1);
	fail();
}

#define TICK_US 100000
static volatile sig_atomic_t ticks_left;

static inline void tick(int signal)
{
	if (--ticks_left < 0)
		dies(signal);
}

/*
 * From now on the test counts as hanging if it takes longer. Timer ticks are counted, because a
 * suspended computer or process gets none.
 */
static inline void watch(const char *name)
{
	struct itimerval timer = { { 0, TICK_US }, { 0, TICK_US } };
	const char *hangs_after_s = getenv("HANGS_AFTER_S");

	running = name;
	ticks_left = (hangs_after_s ? atoi(hangs_after_s) : HANGS_AFTER_S) * (1000000 / TICK_US);
	setpgid(0, 0);
	sigaction(SIGALRM, &(struct sigaction) { .sa_handler = tick, .sa_flags = SA_RESTART }, NULL);
	signal(SIGSEGV, dies);
	signal(SIGBUS, dies);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static inline bool is_wanted(const char *name, int argc, char **argv)
{
	bool only = false;
	int i;

	for (i = 1; i < argc; i++) {
		if (argv[i][0] == '-' && !strcmp(argv[i] + 1, name))
			return false;
		if (!strcmp(argv[i], name))
			return true;
		only |= argv[i][0] != '-';
	}
	return !only;
}

static inline int run_tests(const struct test *tests, int argc, char **argv)
{
	for (; tests->name; tests++) {
		if (!is_wanted(tests->name, argc, argv))
			continue;
		watch(tests->name);
		tests->run();
	}
	return 0;
}

#define TEST(name) { #name, name }
#define TESTS(...)									\
	int main(int argc, char **argv)							\
	{										\
		static const struct test tests[] = { __VA_ARGS__, { NULL, NULL } };	\
											\
		return run_tests(tests, argc, argv);					\
	}

#endif
