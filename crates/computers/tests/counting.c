// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A program whose calls the library of guest/linux/count.c counts, for tests/counting.rs.
 *
 *	threads N CALLS	N threads at once, each with CALLS calls of sched_yield; none begins before all are there
 *	shared N CALLS	N threads take slots in their order, each with one call of getppid; then the first and
 *			the last make CALLS more, at once
 *	turns N		N threads one after the other, each with one call
 *	forks N CALLS	N children of fork at once, each with CALLS calls, and as many of the parent's
 *	exec N		the program itself N times, one after the other, each with one call; by vfork
 *	pass		functions with other numbers and kinds of arguments: what they return is checked
 *	steps		prints how many instructions a call of sched_yield takes, kernel aside
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int is_right, const char *what)
{
	if (is_right)
		return;
	perror(what);
	exit(2);
}

static void calls(long count)
{
	while (count-- > 0)
		sched_yield();
}

static pthread_barrier_t all_are_there;

static void *thread(void *count)
{
	pthread_barrier_wait(&all_are_there);
	calls((long)count);
	return NULL;
}

static void threads(long number, long count)
{
	pthread_t *ids = calloc(number, sizeof(*ids));

	check(pthread_barrier_init(&all_are_there, NULL, number) == 0, "pthread_barrier_init");
	for (long i = 0; i < number; i++)
		check(pthread_create(&ids[i], NULL, thread, (void *)count) == 0, "pthread_create");
	for (long i = 0; i < number; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&all_are_there);
	free(ids);
}

static long shared_threads, shared_calls;
static long have_slots;

static void *shares(void *index)
{
	bool counts_on = (long)index == 0 || (long)index == shared_threads - 1;

	getppid();
	__atomic_fetch_add(&have_slots, 1, __ATOMIC_RELEASE);
	pthread_barrier_wait(&all_are_there);
	for (long i = 0; counts_on && i < shared_calls; i++)
		getppid();
	return NULL;
}

static void shared(long number, long count)
{
	pthread_t *ids = calloc(number, sizeof(*ids));

	shared_threads = number;
	shared_calls = count;
	check(pthread_barrier_init(&all_are_there, NULL, number) == 0, "pthread_barrier_init");
	for (long i = 0; i < number; i++) {
		check(pthread_create(&ids[i], NULL, shares, (void *)i) == 0, "pthread_create");
		while (__atomic_load_n(&have_slots, __ATOMIC_ACQUIRE) <= i)
			sched_yield();
	}
	for (long i = 0; i < number; i++)
		pthread_join(ids[i], NULL);
	free(ids);
}

static void reap(long number)
{
	for (long i = 0; i < number; i++) {
		int status;

		check(wait(&status) > 0 && status == 0, "child");
	}
}

static void forks(long number, long count)
{
	calls(1);
	for (long i = 0; i < number; i++) {
		pid_t child = fork();

		check(child >= 0, "fork");
		if (child == 0) {
			calls(count);
			_exit(0);
		}
	}
	calls(number * count - 1);
	reap(number);
}

static void exec_once(const char *self)
{
	pid_t child = vfork();

	if (child == 0) {
		execl(self, self, "threads", "1", "1", NULL);
		_exit(1);
	}
	reap(1);
}

static void pass(void)
{
	char name[] = "/tmp/unspin-counting-XXXXXX", text[8] = "";
	int made = mkstemp(name), fd;
	void *memory;

	check(made >= 0 && unlink(name) == 0, "mkstemp");
	fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0640);
	check(fd >= 0, "open with a mode");
	check((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR, "fcntl");
	check(write(fd, "abcdefg", 7) == 7 && pread(fd, text, 7, 0) == 7 && !strcmp(text, "abcdefg"),
	      "write and pread");
	memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	check(memory != MAP_FAILED && memcmp(memory, "abcdefg", 7) == 0, "mmap");
	check(syscall(SYS_pread64, fd, text, 2, 5, 0, 0) == 2 && text[0] == 'f', "syscall");
	check(syscall(SYS_getpid) == getpid(), "syscall without arguments");
	check(munmap(memory, 4096) == 0 && close(fd) == 0 && unlink(name) == 0, "close");
	check(close(fd) == -1 && errno == EBADF, "a call that fails");
	errno = 0;
	check(open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT, "an open that fails");
	free(realloc(malloc(100), 100000));
}

__attribute__((noinline)) static void one_call(void)
{
	sched_yield();
	__asm__ volatile("");
}

/* Steps of `one_call`, by stepping a child through it from its first instruction to its return. */
static void steps(void)
{
	struct user_regs_struct regs;
	unsigned long stack = 0;
	long count = 0;
	int status;
	pid_t child = fork();

	if (child == 0) {
		one_call();
		check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "ptrace");
		raise(SIGSTOP);
		one_call();
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child, "waitpid");
	if (!WIFSTOPPED(status))
		exit(77);
	for (;;) {
		check(ptrace(PTRACE_GETREGS, child, NULL, &regs) == 0, "PTRACE_GETREGS");
		if (!stack && regs.rip == (unsigned long)one_call)
			stack = regs.rsp;
		else if (stack && regs.rsp > stack)
			break;
		count += stack != 0;
		check(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0, "PTRACE_SINGLESTEP");
		check(waitpid(child, &status, 0) == child && WIFSTOPPED(status), "step");
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	printf("%ld\n", count);
}

int main(int argument_count, char **arguments)
{
	const char *what = argument_count > 1 ? arguments[1] : "";
	long number = argument_count > 2 ? atol(arguments[2]) : 0;
	long count = argument_count > 3 ? atol(arguments[3]) : 0;

	if (!strcmp(what, "threads"))
		threads(number, count);
	else if (!strcmp(what, "shared"))
		shared(number, count);
	else if (!strcmp(what, "turns"))
		while (number-- > 0)
			threads(1, 1);
	else if (!strcmp(what, "forks"))
		forks(number, count);
	else if (!strcmp(what, "exec"))
		while (number-- > 0)
			exec_once(arguments[0]);
	else if (!strcmp(what, "pass"))
		pass();
	else if (!strcmp(what, "steps"))
		steps();
	else
		return 2;
	puts("done");
	return 0;
}
