// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Mutexes that are waited for: exclusion, memory freed after an unlock, fork(), signals, cancelling. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "posix.h"

#define THREADS 6

static atomic_int waiting;

struct contended {
	pthread_mutex_t *mutex;
	long long until_ns;
	unsigned long counter;
	atomic_ulong rounds;
};

/* Locks in one of the possible ways. */
static void lock_somehow(pthread_mutex_t *mutex, unsigned long round)
{
	struct timespec soon;

	if (round % 3 == 1 && !pthread_mutex_trylock(mutex))
		return;
	if (round % 7 == 2) {
		soon = in_ns(CLOCK_REALTIME, 100000);
		if (!pthread_mutex_timedlock(mutex, &soon))
			return;
	}
	EXPECT(!pthread_mutex_lock(mutex));
}

static void *add(void *argument)
{
	struct contended *contended = argument;
	unsigned long round = 0;

	do {
		lock_somehow(contended->mutex, round);
		contended->counter++;
		EXPECT(!pthread_mutex_unlock(contended->mutex));
		round++;
	} while (now_ns(CLOCK_MONOTONIC) < contended->until_ns);
	atomic_fetch_add(&contended->rounds, round);
	return NULL;
}

static void exclude(pthread_mutex_t *mutex)
{
	struct contended contended = { .mutex = mutex };
	pthread_t thread[THREADS];

	contended.until_ns = now_ns(CLOCK_MONOTONIC) + CONTENTION_NS;
	start(thread, THREADS, add, &contended);
	join(thread, THREADS);
	EXPECT(contended.rounds >= THREADS && contended.counter == contended.rounds);
}

static void threads_exclude_each_other(void)
{
	static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
	static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

	exclude(&normal);
	exclude(&adaptive);
	exclude(&recursive);
}

/*
 * The first thread leaves the mutex on this page. The second takes it in some way and frees the
 * page.
 */
static void *leave(void *page)
{
	pthread_mutex_t *mutex = page;

	EXPECT(!pthread_mutex_lock(mutex));
	atomic_store(&waiting, 1);
	EXPECT(!pthread_mutex_unlock(mutex));
	return NULL;
}

static void memory_is_free_after_an_unlock(void)
{
	long long until_ns = now_ns(CLOCK_MONOTONIC) + 3 * CONTENTION_NS;
	unsigned long round;

	for (round = 0; round < 12 || now_ns(CLOCK_MONOTONIC) < until_ns; round++) {
		pthread_mutex_t *mutex = shared_memory(sizeof(*mutex));
		pthread_t thread;

		EXPECT(!pthread_mutex_init(mutex, NULL));
		atomic_store(&waiting, 0);
		/* Hold the mutex, so that the other thread takes the path of a waiter. */
		EXPECT(!pthread_mutex_lock(mutex));
		EXPECT(!pthread_create(&thread, NULL, leave, mutex));
		if (round % 2)
			sleep_ms(1);
		EXPECT(!pthread_mutex_unlock(mutex));
		while (!atomic_load(&waiting))
			;
		if (round % 4 < 2)
			while (pthread_mutex_trylock(mutex))
				;
		else
			EXPECT(!pthread_mutex_lock(mutex));
		EXPECT(!pthread_mutex_unlock(mutex));
		EXPECT(!pthread_mutex_destroy(mutex));
		EXPECT(!munmap(mutex, sizeof(*mutex)));
		EXPECT(!pthread_join(thread, NULL));
	}
}

static void *wait_once(void *mutex)
{
	atomic_fetch_add(&waiting, 1);
	EXPECT(!pthread_mutex_lock(mutex));
	EXPECT(!pthread_mutex_unlock(mutex));
	return NULL;
}

static void start_waiters(pthread_mutex_t *mutex, pthread_t *thread, int threads)
{
	atomic_store(&waiting, 0);
	start(thread, threads, wait_once, mutex);
	while (atomic_load(&waiting) < threads)
		sleep_ms(1);
	/* Long enough for waiters to halt. */
	sleep_ms(30);
}

static void is_free_when_all_waiters_are_gone(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread[3];
	int turn;

	for (turn = 0; turn < 3; turn++) {
		EXPECT(!pthread_mutex_lock(&mutex));
		start_waiters(&mutex, thread, 3);
		EXPECT(!pthread_mutex_unlock(&mutex));
		join(thread, 3);
		EXPECT(!pthread_mutex_lock(&mutex));
		EXPECT(!pthread_mutex_unlock(&mutex));
		EXPECT(!pthread_mutex_trylock(&mutex));
		EXPECT(!pthread_mutex_unlock(&mutex));
	}
}

/* The child's mutex must be usable by it, by all its threads, and by its own children. */
static void use(pthread_mutex_t *mutex, int generations)
{
	pthread_t thread[2];
	pid_t child;
	int turn;

	for (turn = 0; turn < 3; turn++) {
		EXPECT(!pthread_mutex_lock(mutex));
		EXPECT(pthread_mutex_trylock(mutex) == EBUSY);
		EXPECT(!pthread_mutex_unlock(mutex));
	}
	EXPECT(!pthread_mutex_lock(mutex));
	start_waiters(mutex, thread, 2);
	child = generations ? fork() : 1;
	EXPECT(child >= 0);
	EXPECT(!pthread_mutex_unlock(mutex));
	if (!child) {
		use(mutex, generations - 1);
		_exit(0);
	}
	join(thread, 2);
	if (generations)
		reap(child);
}

/* The waiters, including the first in line, do not exist in the child. */
static void fork_with_waiters(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

	use(&mutex, 2);
	use(&adaptive, 2);
}

/*
 * A fork while another thread clears the mutex, as the first thread does in a new process: that
 * thread is not in the child. The test sets the mark that the interposer's mutex.c leaves in a
 * mutex; the C library ignores it.
 */
static void fork_while_another_clears(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	unsigned int *forks = (unsigned int *)(void *)&mutex.__data.__list + 3;
	pthread_t thread;
	pid_t child;

	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_mutex_unlock(&mutex));
	*forks |= 0x80000000u;
	child = fork();
	EXPECT(child >= 0);
	if (!child) {
		EXPECT(!pthread_mutex_lock(&mutex));
		start_waiters(&mutex, &thread, 1);
		EXPECT(!pthread_mutex_unlock(&mutex));
		join(&thread, 1);
		_exit(0);
	}
	reap(child);
}

static pthread_mutex_t at_fork = PTHREAD_MUTEX_INITIALIZER;

static void lock_at_fork(void)
{
	EXPECT(!pthread_mutex_lock(&at_fork));
}

static void unlock_at_fork(void)
{
	EXPECT(!pthread_mutex_unlock(&at_fork));
}

/*
 * Like locks of C libraries and allocators: fork() handlers hold them, and they are always
 * contended.
 */
static void fork_handlers_hold_locks(void)
{
	struct contended contended = { .mutex = &at_fork };
	pthread_t thread[2];
	int i, child;

	EXPECT(!pthread_atfork(lock_at_fork, unlock_at_fork, unlock_at_fork));
	contended.until_ns = now_ns(CLOCK_MONOTONIC) + 2 * CONTENTION_NS;
	start(thread, 2, add, &contended);
	while (now_ns(CLOCK_MONOTONIC) < contended.until_ns) {
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			for (i = 0; i < 3; i++) {
				EXPECT(!pthread_mutex_lock(&at_fork));
				EXPECT(!pthread_mutex_unlock(&at_fork));
			}
			_exit(0);
		}
		reap(child);
	}
	join(thread, 2);
	EXPECT(contended.counter == contended.rounds);
}

static atomic_int handled;

static void count(int signal)
{
	(void)signal;
	handled++;
}

static void waiters_handle_signals(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct sigaction action = { .sa_handler = count };
	pthread_t thread[3];
	int turn, i;

	EXPECT(!sigaction(SIGUSR1, &action, NULL));
	EXPECT(!pthread_mutex_lock(&mutex));
	start_waiters(&mutex, thread, 3);
	for (turn = 0; turn < 3; turn++) {
		int before = atomic_load(&handled);

		for (i = 0; i < 3; i++)
			EXPECT(!pthread_kill(thread[i], SIGUSR1));
		while (atomic_load(&handled) < before + 3)
			sleep_ms(1);
	}
	EXPECT(pthread_mutex_trylock(&mutex) == EBUSY);
	EXPECT(!pthread_mutex_unlock(&mutex));
	join(thread, 3);
}

/*
 * A stopped holder stops all others. The child contends until it was stopped, which on a busy
 * computer may take longer than its contention lasts.
 */
static void a_stopped_process_goes_on(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	atomic_bool *was_stopped = shared_memory(sizeof(*was_stopped));
	pid_t child = fork();
	int status;

	EXPECT(child >= 0);
	if (!child) {
		do
			exclude(&mutex);
		while (!atomic_load(was_stopped));
		_exit(0);
	}
	sleep_ms(30);
	EXPECT(!kill(child, SIGSTOP));
	EXPECT(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	sleep_ms(30);
	atomic_store(was_stopped, true);
	EXPECT(!kill(child, SIGCONT));
	reap(child);
	EXPECT(!munmap(was_stopped, sizeof(*was_stopped)));
}

static atomic_bool is_still, go_on;

static void stand_still(int signal)
{
	(void)signal;
	atomic_store(&is_still, true);
	while (!atomic_load(&go_on))
		sleep_ms(1);
}

/* The first waiter sleeps, and has no CPU when the mutex gets free. */
static void a_free_mutex_does_not_wait_for_a_sleeper(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct sigaction action = { .sa_handler = stand_still };
	pthread_t waiter;
	int turn;

	EXPECT(!sigaction(SIGUSR1, &action, NULL));
	EXPECT(!pthread_mutex_lock(&mutex));
	start_waiters(&mutex, &waiter, 1);
	EXPECT(!pthread_kill(waiter, SIGUSR1));
	while (!atomic_load(&is_still))
		sleep_ms(1);
	for (turn = 0; turn < 3; turn++) {
		EXPECT(!pthread_mutex_unlock(&mutex));
		EXPECT(!pthread_mutex_lock(&mutex));
	}
	atomic_store(&go_on, true);
	EXPECT(!pthread_mutex_unlock(&mutex));
	join(&waiter, 1);
}

static atomic_ulong asked_for_class, found_taken;

/* Before the C library's, for this program and for the libraries that it loads. */
__attribute__((visibility("default"))) int sched_getscheduler(pid_t tid)
{
	atomic_fetch_add(&asked_for_class, 1);
	return (int)syscall(SYS_sched_getscheduler, tid);
}

static void *find_it_taken(void *argument)
{
	struct contended *contended = argument;

	while (now_ns(CLOCK_MONOTONIC) < contended->until_ns) {
		if (pthread_mutex_trylock(contended->mutex)) {
			atomic_fetch_add(&found_taken, 1);
			EXPECT(!pthread_mutex_lock(contended->mutex));
		}
		contended->counter++;
		EXPECT(!pthread_mutex_unlock(contended->mutex));
	}
	return NULL;
}

/* The kernel is not asked for the thread's class each time, but at most once per ms and thread. */
static void waiting_takes_no_system_call_each_time(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct contended contended = { .mutex = &mutex };
	pthread_t thread[2];

	atomic_store(&asked_for_class, 0);
	contended.until_ns = now_ns(CLOCK_MONOTONIC) + CONTENTION_NS;
	start(thread, 2, find_it_taken, &contended);
	join(thread, 2);
	EXPECT(asked_for_class <= 2 * (2 + CONTENTION_NS / 1000000) + found_taken / 2);
}

static void *lock_and_be_cancelled(void *mutex)
{
	wait_once(mutex);
	atomic_store(&waiting, 100);
	pthread_testcancel();
	return NULL;
}

/* Waiting for a mutex is not a cancellation point. */
static void a_cancelled_waiter_gets_its_turn_first(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	void *returned;

	atomic_store(&waiting, 0);
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_create(&thread, NULL, lock_and_be_cancelled, &mutex));
	while (!atomic_load(&waiting))
		sleep_ms(1);
	sleep_ms(10);
	EXPECT(!pthread_cancel(thread));
	sleep_ms(10);
	EXPECT(!pthread_mutex_unlock(&mutex));
	EXPECT(!pthread_join(thread, &returned));
	EXPECT(returned == PTHREAD_CANCELED && atomic_load(&waiting) == 100);
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_mutex_unlock(&mutex));
}

TESTS(TEST(threads_exclude_each_other), TEST(memory_is_free_after_an_unlock),
      TEST(is_free_when_all_waiters_are_gone), TEST(fork_with_waiters),
      TEST(fork_while_another_clears), TEST(fork_handlers_hold_locks), TEST(waiters_handle_signals),
      TEST(a_free_mutex_does_not_wait_for_a_sleeper), TEST(waiting_takes_no_system_call_each_time),
      TEST(a_stopped_process_goes_on), TEST(a_cancelled_waiter_gets_its_turn_first))
