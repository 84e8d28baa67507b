/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * tas-nap: test-and-set lock whose waiters watch it less and less often, and nap when that takes long.
 *
 * Sources: T. Anderson, "The performance of spin lock alternatives for shared-memory multiprocessors",
 *         IEEE TPDS 1990 (backoff); naps that end by themselves, as in lease.h.
 * Size:   4 bytes.
 * Order:  none, as tas.h. A thread that waits for more than 5 us sleeps for 50 us at a time, so that the
 *         holder gets its CPU if it has none. Then the lock may be free for as long as a nap.
 *
 * It needs unspin_lock_wait_for() of its environment. No thread wakes another: a release is a plain store.
 *
 *	static struct unspin_tas_nap_lock lock = UNSPIN_TAS_NAP_LOCK_INIT;
 *
 *	unspin_tas_nap_lock(&lock);
 *	...
 *	unspin_tas_nap_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_TAS_NAP_H
#define UNSPIN_LOCKS_TAS_NAP_H

#include "budget.h"
#include "tas.h"

#define UNSPIN_TAS_NAP_WATCH_NS 5000ULL
#define UNSPIN_TAS_NAP_NS 50000ULL
/* Turns between two looks at the lock. */
#define UNSPIN_TAS_NAP_TURNS_MIN 4u
#define UNSPIN_TAS_NAP_TURNS_MAX 64u

struct unspin_tas_nap_lock {
	struct unspin_tas_lock tas;
};

_Static_assert(sizeof(struct unspin_tas_nap_lock) == 4, "unspin_tas_nap_lock is 4 bytes");

#define UNSPIN_TAS_NAP_LOCK_INIT { UNSPIN_TAS_LOCK_INIT }

static inline bool unspin_tas_nap_is_locked(struct unspin_tas_nap_lock *lock)
{
	return unspin_tas_is_locked(&lock->tas);
}

static inline bool unspin_tas_nap_trylock(struct unspin_tas_nap_lock *lock)
{
	return unspin_tas_trylock(&lock->tas);
}

/* Takes the lock when it is free. False: it was taken whenever this thread looked. */
static inline bool unspin_tas_nap_watch(struct unspin_tas_nap_lock *lock)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_TAS_NAP_WATCH_NS, 1);
	unsigned int turns = UNSPIN_TAS_NAP_TURNS_MIN;

	for (;;) {
		unsigned int turn;

		for (turn = 0; turn < turns; turn++)
			unspin_cpu_relax();
		if (!unspin_tas_nap_is_locked(lock) && unspin_tas_nap_trylock(lock))
			return true;
		if (unspin_lock_budget_spent(&budget))
			return false;
		if (turns < UNSPIN_TAS_NAP_TURNS_MAX)
			turns *= 2;
	}
}

static __attribute__((noinline)) void unspin_tas_nap_lock_slow(struct unspin_tas_nap_lock *lock)
{
	UNSPIN_LOCK_CONTENDED(lock);
	while (!unspin_tas_nap_watch(lock))
		unspin_lock_wait_for(&lock->tas.held, 1, 0, UNSPIN_TAS_NAP_NS);
}

static inline void unspin_tas_nap_lock(struct unspin_tas_nap_lock *lock)
{
	if (__builtin_expect(!unspin_tas_nap_trylock(lock), 0))
		unspin_tas_nap_lock_slow(lock);
}

/* Gives up after @ns, or up to some 0.1 ms later. Returns whether it has the lock. */
static inline bool unspin_tas_nap_lock_for(struct unspin_tas_nap_lock *lock, unsigned long long ns)
{
	struct unspin_lock_budget limit;

	if (unspin_tas_nap_trylock(lock))
		return true;
	UNSPIN_LOCK_CONTENDED(lock);
	limit = unspin_lock_budget(ns, 1);
	while (!unspin_tas_nap_watch(lock)) {
		if (unspin_lock_budget_spent(&limit))
			return false;
		unspin_lock_wait_for(&lock->tas.held, 1, 0, UNSPIN_TAS_NAP_NS);
	}
	return true;
}

static inline void unspin_tas_nap_unlock(struct unspin_tas_nap_lock *lock)
{
	unspin_tas_unlock(&lock->tas);
}

#endif
