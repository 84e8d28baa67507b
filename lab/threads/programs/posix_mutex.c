// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* pthread_mutex_*(): every kind's return codes. Contention, fork() and signals: posix_contend.c. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "posix.h"

#define SOON_NS 1000000LL
#define RELATIVE(ns) (&(struct timespec[]) { in_ns(CLOCK_REALTIME, ns) }[0])

static const int kinds[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_ADAPTIVE_NP,
			     PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

enum { ROBUST = 1, INHERIT = 2, SHARED = 4, ATTRIBUTES = 8 };

static void make(pthread_mutex_t *mutex, int kind, int attributes)
{
	pthread_mutexattr_t how;

	memset(mutex, 0xff, sizeof(*mutex));
	EXPECT(!pthread_mutexattr_init(&how));
	EXPECT(!pthread_mutexattr_settype(&how, kind));
	if (attributes & ROBUST)
		EXPECT(!pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST));
	if (attributes & INHERIT)
		EXPECT(!pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT));
	if (attributes & SHARED)
		EXPECT(!pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED));
	EXPECT(!pthread_mutex_init(mutex, &how));
	EXPECT(!pthread_mutexattr_destroy(&how));
}

struct call {
	int (*fn)(pthread_mutex_t *mutex);
	pthread_mutex_t *mutex;
};

static void *run_call(void *argument)
{
	struct call *call = argument;

	return (void *)(long)call->fn(call->mutex);
}

/* The result of the call in another thread. */
static int elsewhere(int (*fn)(pthread_mutex_t *mutex), pthread_mutex_t *mutex)
{
	struct call call = { fn, mutex };
	pthread_t thread;
	void *returned;

	EXPECT(!pthread_create(&thread, NULL, run_call, &call));
	EXPECT(!pthread_join(thread, &returned));
	return (int)(long)returned;
}

static int lock_soon(pthread_mutex_t *mutex)
{
	return pthread_mutex_timedlock(mutex, RELATIVE(SOON_NS));
}

static int lock_soon_by_clock(pthread_mutex_t *mutex)
{
	struct timespec until = in_ns(CLOCK_MONOTONIC, SOON_NS);

	return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
}

static int lock_at_no_time(pthread_mutex_t *mutex)
{
	struct timespec until = { 0, 1000000000 };

	return pthread_mutex_timedlock(mutex, &until);
}

/* A mutex held by this thread, seen from another. */
static void is_held(pthread_mutex_t *mutex)
{
	EXPECT(elsewhere(pthread_mutex_trylock, mutex) == EBUSY);
	EXPECT(elsewhere(lock_soon, mutex) == ETIMEDOUT);
	EXPECT(elsewhere(lock_soon_by_clock, mutex) == ETIMEDOUT);
	EXPECT(elsewhere(lock_at_no_time, mutex) == EINVAL);
}

static void locks_and_unlocks(pthread_mutex_t *mutex)
{
	int turn;

	errno = 1234;
	for (turn = 0; turn < 3; turn++) {
		EXPECT(!pthread_mutex_lock(mutex));
		is_held(mutex);
		EXPECT(!pthread_mutex_unlock(mutex));
		EXPECT(!pthread_mutex_trylock(mutex));
		is_held(mutex);
		EXPECT(!pthread_mutex_unlock(mutex));
		EXPECT(!lock_soon(mutex));
		is_held(mutex);
		EXPECT(!pthread_mutex_unlock(mutex));
		EXPECT(!lock_soon_by_clock(mutex));
		EXPECT(!pthread_mutex_unlock(mutex));
		EXPECT(!lock_at_no_time(mutex));
		EXPECT(!pthread_mutex_unlock(mutex));
	}
	EXPECT(errno == 1234);
}

/* glibc destroys held robust ones. */
static void is_not_destroyed_while_held(pthread_mutex_t *mutex)
{
	EXPECT(!pthread_mutex_lock(mutex));
	EXPECT(pthread_mutex_destroy(mutex) == EBUSY);
	EXPECT(!pthread_mutex_unlock(mutex));
}

static void every_kind_locks_and_unlocks(void)
{
	pthread_mutex_t mutex;
	unsigned int kind, attributes;

	for (kind = 0; kind < KINDS; kind++) {
		for (attributes = 0; attributes < ATTRIBUTES; attributes++) {
			make(&mutex, kinds[kind], attributes);
			locks_and_unlocks(&mutex);
			if (!(attributes & ROBUST))
				is_not_destroyed_while_held(&mutex);
			EXPECT(!pthread_mutex_destroy(&mutex));
		}
	}
}

static void static_ones_lock_and_unlock(void)
{
	static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
	static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

	locks_and_unlocks(&normal);
	locks_and_unlocks(&adaptive);
	locks_and_unlocks(&recursive);
	locks_and_unlocks(&errorcheck);
	EXPECT(!pthread_mutex_lock(&recursive) && !pthread_mutex_lock(&recursive));
	EXPECT(!pthread_mutex_unlock(&recursive) && !pthread_mutex_unlock(&recursive));
	EXPECT(!pthread_mutex_lock(&errorcheck) && pthread_mutex_lock(&errorcheck) == EDEADLK);
	EXPECT(!pthread_mutex_unlock(&errorcheck));
}

static void a_normal_one_locked_again_waits(void)
{
	pthread_mutex_t mutex;

	make(&mutex, PTHREAD_MUTEX_NORMAL, 0);
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(pthread_mutex_trylock(&mutex) == EBUSY);
	EXPECT(lock_soon(&mutex) == ETIMEDOUT);
	EXPECT(lock_soon_by_clock(&mutex) == ETIMEDOUT);
	EXPECT(!pthread_mutex_unlock(&mutex));
}

static void recursive_ones_count(void)
{
	unsigned int attributes;

	for (attributes = 0; attributes < ATTRIBUTES; attributes++) {
		pthread_mutex_t mutex;
		int depth;

		make(&mutex, PTHREAD_MUTEX_RECURSIVE, attributes);
		EXPECT(pthread_mutex_unlock(&mutex) == EPERM);
		for (depth = 0; depth < 3; depth++) {
			EXPECT(!pthread_mutex_lock(&mutex));
			EXPECT(!pthread_mutex_trylock(&mutex));
			EXPECT(!lock_soon(&mutex));
		}
		for (depth = 0; depth < 9; depth++) {
			is_held(&mutex);
			EXPECT(elsewhere(pthread_mutex_unlock, &mutex) == EPERM);
			EXPECT(!pthread_mutex_unlock(&mutex));
		}
		EXPECT(pthread_mutex_unlock(&mutex) == EPERM);
		EXPECT(!elsewhere(pthread_mutex_trylock, &mutex) || (attributes & ROBUST));
	}
}

static void error_checking_ones_check(void)
{
	unsigned int attributes;

	for (attributes = 0; attributes < ATTRIBUTES; attributes++) {
		pthread_mutex_t mutex;
		int error;

		make(&mutex, PTHREAD_MUTEX_ERRORCHECK, attributes);
		EXPECT(pthread_mutex_unlock(&mutex) == EPERM);
		EXPECT(!pthread_mutex_lock(&mutex));
		EXPECT(pthread_mutex_lock(&mutex) == EDEADLK);
		/* glibc's robust and priority ones say EDEADLK. */
		error = pthread_mutex_trylock(&mutex);
		EXPECT(error == EBUSY || (error == EDEADLK && attributes & (ROBUST | INHERIT)));
		EXPECT(lock_soon(&mutex) == EDEADLK);
		EXPECT(elsewhere(pthread_mutex_unlock, &mutex) == EPERM);
		EXPECT(!pthread_mutex_unlock(&mutex));
		EXPECT(pthread_mutex_unlock(&mutex) == EPERM);
		EXPECT(!pthread_mutex_destroy(&mutex));
	}
}

static void robust_ones_survive_their_owner(void)
{
	unsigned int kind, attributes;

	for (kind = 0; kind < KINDS; kind++) {
		for (attributes = ROBUST; attributes < ATTRIBUTES; attributes += 2) {
			pthread_mutex_t mutex;

			make(&mutex, kinds[kind], attributes);
			EXPECT(pthread_mutex_consistent(&mutex) == EINVAL);
			EXPECT(!elsewhere(pthread_mutex_lock, &mutex));
			EXPECT(pthread_mutex_lock(&mutex) == EOWNERDEAD);
			is_held(&mutex);
			EXPECT(!pthread_mutex_consistent(&mutex));
			EXPECT(!pthread_mutex_unlock(&mutex));
			EXPECT(!elsewhere(pthread_mutex_trylock, &mutex));
			EXPECT(pthread_mutex_trylock(&mutex) == EOWNERDEAD);
			/* Unlocked without being made consistent. */
			EXPECT(!pthread_mutex_unlock(&mutex));
			EXPECT(pthread_mutex_lock(&mutex) == ENOTRECOVERABLE);
			EXPECT(pthread_mutex_trylock(&mutex) == ENOTRECOVERABLE);
			EXPECT(!pthread_mutex_destroy(&mutex));
		}
	}
	{
		pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;

		EXPECT(pthread_mutex_consistent(&plain) == EINVAL);
	}
}

static void robust_ones_survive_their_process(void)
{
	pthread_mutex_t *mutex = shared_memory(sizeof(*mutex));
	pid_t child;

	make(mutex, PTHREAD_MUTEX_NORMAL, ROBUST | SHARED);
	child = fork();
	EXPECT(child >= 0);
	if (!child) {
		EXPECT(!pthread_mutex_lock(mutex));
		_exit(0);
	}
	reap(child);
	EXPECT(pthread_mutex_lock(mutex) == EOWNERDEAD);
	EXPECT(!pthread_mutex_consistent(mutex));
	EXPECT(!pthread_mutex_unlock(mutex));
}

/* Not every process may raise its priority. */
static void a_ceiling_is_kept(void)
{
	pthread_mutexattr_t how;
	pthread_mutex_t mutex;
	int ceiling, error;

	EXPECT(!pthread_mutexattr_init(&how));
	EXPECT(!pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_PROTECT));
	EXPECT(!pthread_mutexattr_setprioceiling(&how, 10));
	EXPECT(!pthread_mutex_init(&mutex, &how));
	EXPECT(!pthread_mutex_getprioceiling(&mutex, &ceiling) && ceiling == 10);
	error = pthread_mutex_lock(&mutex);
	EXPECT(!error || error == EPERM || error == EINVAL);
	if (!error) {
		EXPECT(elsewhere(pthread_mutex_trylock, &mutex) == EBUSY);
		EXPECT(!pthread_mutex_unlock(&mutex));
	}
	EXPECT(!pthread_mutex_destroy(&mutex));
}

static void a_destroyed_one_can_be_made_again(void)
{
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++) {
		pthread_mutex_t mutex;
		int turn;

		for (turn = 0; turn < 3; turn++) {
			make(&mutex, kinds[kind], 0);
			EXPECT(!pthread_mutex_lock(&mutex));
			EXPECT(!pthread_mutex_unlock(&mutex));
			EXPECT(!pthread_mutex_destroy(&mutex));
			EXPECT(pthread_mutex_lock(&mutex) == EINVAL);
			EXPECT(pthread_mutex_trylock(&mutex) == EINVAL);
			EXPECT(pthread_mutex_unlock(&mutex) == EINVAL);
		}
	}
}

TESTS(TEST(every_kind_locks_and_unlocks), TEST(static_ones_lock_and_unlock),
      TEST(a_normal_one_locked_again_waits), TEST(recursive_ones_count),
      TEST(error_checking_ones_check), TEST(robust_ones_survive_their_owner),
      TEST(robust_ones_survive_their_process), TEST(a_ceiling_is_kept),
      TEST(a_destroyed_one_can_be_made_again))
