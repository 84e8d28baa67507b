// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* pthread_spin_*(): return codes, exclusion between threads and processes, fork(), signals. */
#include <stdatomic.h>

#include "posix.h"

#define THREADS 6

struct shared {
	pthread_spinlock_t spin;
	atomic_int started;
	long long until_ns;
	unsigned long counter;
	unsigned long rounds[THREADS + 1];
	atomic_int step;
};

static struct shared *new_shared(void)
{
	struct shared *shared = shared_memory(sizeof(*shared));

	EXPECT(!pthread_spin_init(&shared->spin, PTHREAD_PROCESS_SHARED));
	return shared;
}

static void codes(void)
{
	int shared;

	for (shared = PTHREAD_PROCESS_PRIVATE; shared <= PTHREAD_PROCESS_SHARED; shared++) {
		pthread_spinlock_t spin;

		memset((void *)&spin, 0xff, sizeof(spin));
		EXPECT(!pthread_spin_init(&spin, shared));
		errno = 1234;
		EXPECT(!pthread_spin_lock(&spin));
		EXPECT(pthread_spin_trylock(&spin) == EBUSY);
		EXPECT(pthread_spin_trylock(&spin) == EBUSY);
		EXPECT(!pthread_spin_unlock(&spin));
		EXPECT(!pthread_spin_trylock(&spin));
		EXPECT(pthread_spin_trylock(&spin) == EBUSY);
		EXPECT(!pthread_spin_unlock(&spin));
		EXPECT(!pthread_spin_lock(&spin));
		EXPECT(!pthread_spin_unlock(&spin));
		EXPECT(errno == 1234);
		EXPECT(!pthread_spin_destroy(&spin));
		EXPECT(!pthread_spin_init(&spin, shared));
		EXPECT(!pthread_spin_destroy(&spin));
	}
}

static void *add(void *argument)
{
	struct shared *shared = argument;
	int me = atomic_fetch_add(&shared->started, 1);
	unsigned long round = 0;

	/* All contend at the same time; a thread that starts late still gets its turn. */
	while (atomic_load(&shared->started) <= THREADS && now_ns(CLOCK_MONOTONIC) < shared->until_ns)
		;
	do {
		if (round % 4 || pthread_spin_trylock(&shared->spin))
			EXPECT(!pthread_spin_lock(&shared->spin));
		shared->counter++;
		EXPECT(!pthread_spin_unlock(&shared->spin));
		round++;
	} while (now_ns(CLOCK_MONOTONIC) < shared->until_ns);
	shared->rounds[me] = round;
	return NULL;
}

static void threads_and_processes_exclude_each_other(void)
{
	struct shared *shared = new_shared();
	unsigned long rounds = 0;
	pthread_t thread[THREADS];
	pid_t child;
	int i;

	shared->until_ns = now_ns(CLOCK_MONOTONIC) + CONTENTION_NS;
	start(thread, THREADS, add, shared);
	child = fork();
	EXPECT(child >= 0);
	if (!child) {
		add(shared);
		_exit(0);
	}
	join(thread, THREADS);
	reap(child);
	for (i = 0; i <= THREADS; i++)
		rounds += shared->rounds[i];
	EXPECT(rounds > THREADS && shared->counter == rounds);
}

static void held_at_fork_is_held_in_the_child(void)
{
	pthread_spinlock_t spin;
	pid_t child;

	EXPECT(!pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
	EXPECT(!pthread_spin_lock(&spin));
	child = fork();
	EXPECT(child >= 0);
	EXPECT(pthread_spin_trylock(&spin) == EBUSY);
	EXPECT(!pthread_spin_unlock(&spin));
	EXPECT(!pthread_spin_lock(&spin));
	EXPECT(!pthread_spin_unlock(&spin));
	if (!child)
		_exit(0);
	reap(child);
}

/* Another process: reports that it asks, waits for the lock, passes it on. */
static pid_t waiter(struct shared *shared)
{
	pid_t child = fork();

	EXPECT(child >= 0);
	if (!child) {
		atomic_store(&shared->step, 1);
		EXPECT(!pthread_spin_lock(&shared->spin));
		EXPECT(!pthread_spin_unlock(&shared->spin));
		_exit(0);
	}
	while (!atomic_load(&shared->step))
		sleep_ms(1);
	/* Long enough for waiters to halt. */
	sleep_ms(50);
	return child;
}

static void another_process_is_woken(void)
{
	struct shared *shared = new_shared();
	int round;

	for (round = 0; round < 3; round++) {
		pid_t child;

		EXPECT(!pthread_spin_lock(&shared->spin));
		atomic_store(&shared->step, 0);
		child = waiter(shared);
		EXPECT(!pthread_spin_unlock(&shared->spin));
		reap(child);
	}
}

static void a_stopped_waiter_goes_on(void)
{
	struct shared *shared = new_shared();
	pid_t child;

	EXPECT(!pthread_spin_lock(&shared->spin));
	child = waiter(shared);
	EXPECT(!kill(child, SIGSTOP));
	EXPECT(!pthread_spin_unlock(&shared->spin));
	sleep_ms(20);
	EXPECT(!kill(child, SIGCONT));
	reap(child);
	EXPECT(!pthread_spin_lock(&shared->spin));
	EXPECT(!pthread_spin_unlock(&shared->spin));
}

/* Locks with a strict order cannot do this. */
static void a_killed_waiter_blocks_nobody(void)
{
	struct shared *shared = new_shared();
	int status, round;
	pid_t child;

	EXPECT(!pthread_spin_lock(&shared->spin));
	child = waiter(shared);
	EXPECT(!kill(child, SIGKILL));
	EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	EXPECT(!pthread_spin_unlock(&shared->spin));
	for (round = 0; round < 3; round++) {
		EXPECT(!pthread_spin_lock(&shared->spin));
		EXPECT(!pthread_spin_unlock(&shared->spin));
	}
}

static atomic_int handled;
static pthread_spinlock_t of_handler;

static void take_another(int signal)
{
	(void)signal;
	pthread_spin_lock(&of_handler);
	handled++;
	pthread_spin_unlock(&of_handler);
}

static void *wait_once(void *argument)
{
	struct shared *shared = argument;

	atomic_store(&shared->step, 1);
	EXPECT(!pthread_spin_lock(&shared->spin));
	EXPECT(!pthread_spin_unlock(&shared->spin));
	return NULL;
}

static void a_waiter_handles_signals(void)
{
	struct shared *shared = new_shared();
	struct sigaction action = { .sa_handler = take_another };
	pthread_t thread;
	int turn;

	EXPECT(!pthread_spin_init(&of_handler, PTHREAD_PROCESS_PRIVATE));
	EXPECT(!sigaction(SIGUSR1, &action, NULL));
	EXPECT(!pthread_spin_lock(&shared->spin));
	EXPECT(!pthread_create(&thread, NULL, wait_once, shared));
	while (!atomic_load(&shared->step))
		sleep_ms(1);
	for (turn = 1; turn <= 5; turn++) {
		EXPECT(!pthread_kill(thread, SIGUSR1));
		while (atomic_load(&handled) < turn)
			sleep_ms(1);
	}
	EXPECT(!pthread_spin_unlock(&shared->spin));
	EXPECT(!pthread_join(thread, NULL));
}

TESTS(TEST(codes), TEST(threads_and_processes_exclude_each_other),
      TEST(held_at_fork_is_held_in_the_child), TEST(another_process_is_woken),
      TEST(a_stopped_waiter_goes_on), TEST(a_killed_waiter_blocks_nobody),
      TEST(a_waiter_handles_signals))
