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
 *	static struct tas_lock lock = TAS_LOCK_INIT;
 *
 *	tas_lock(&lock);
 *	...
 *	tas_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_TAS_H
#define UNSPIN_LOCKS_TAS_H

#include "env.h"

struct tas_lock {
	atomic_uint held;	/* 0: free, 1: held */
};

#define TAS_LOCK_INIT { 0 }

static inline bool tas_is_locked(struct tas_lock *lock)
{
	return atomic_load_explicit(&lock->held, memory_order_relaxed) != 0;
}

/* Acquire pairs with the release in tas_unlock(). */
static inline bool tas_trylock(struct tas_lock *lock)
{
	return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0;
}

static inline void tas_lock(struct tas_lock *lock)
{
	while (!tas_trylock(lock)) {
		do
			cpu_relax();
		while (tas_is_locked(lock));
	}
}

/* Release pairs with the acquire in tas_trylock(). */
static inline void tas_unlock(struct tas_lock *lock)
{
	atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
