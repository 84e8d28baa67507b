/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * tas: test-and-set lock, waiting on a plain read (test-and-test-and-set).
 *
 * Paper:  L. Rudolph, Z. Segall, "Dynamic decentralized cache schemes for MIMD parallel
 *         processors", ISCA 1984.
 * Size:   4 bytes.
 * Order:  none. The first thread that asks after the release gets the lock. So a preempted waiter delays
 *         no other thread, and may itself wait forever.
 *
 *	static struct unspin_tas_lock lock = UNSPIN_TAS_LOCK_INIT;
 *
 *	unspin_tas_lock(&lock);
 *	...
 *	unspin_tas_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_TAS_H
#define UNSPIN_LOCKS_TAS_H

#include "env.h"

struct unspin_tas_lock {
	atomic_uint held;	/* 0: free, 1: held */
};

#define UNSPIN_TAS_LOCK_INIT { 0 }

static inline bool unspin_tas_is_locked(struct unspin_tas_lock *lock)
{
	return atomic_load_explicit(&lock->held, memory_order_relaxed) != 0;
}

/* Acquire pairs with the release in unspin_tas_unlock(). */
static inline bool unspin_tas_trylock(struct unspin_tas_lock *lock)
{
	return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0;
}

static inline void unspin_tas_lock(struct unspin_tas_lock *lock)
{
	if (unspin_tas_trylock(lock))
		return;
	UNSPIN_LOCK_CONTENDED(lock);
	do {
		do
			unspin_cpu_relax();
		while (unspin_tas_is_locked(lock));
	} while (!unspin_tas_trylock(lock));
}

/* Release pairs with the acquire in unspin_tas_trylock(). */
static inline void unspin_tas_unlock(struct unspin_tas_lock *lock)
{
	atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
