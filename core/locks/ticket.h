/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * ticket: ticket lock.
 *
 * Paper:  D. Reed, R. Kanodia, "Synchronization with eventcounts and sequencers", CACM 1979;
 *         as in Linux 2.6.25 to 4.1 (x86).
 * Size:   4 bytes; at most 65,535 threads may wait at a time. With more of them, two hold the lock at
 *         once.
 * Order:  first come, first served. If the vCPU whose turn it is has been preempted, all later ones
 *         wait for it although the lock is free (lock waiter preemption).
 *
 *	static struct unspin_ticket_lock lock = UNSPIN_TICKET_LOCK_INIT;
 *
 *	unspin_ticket_lock(&lock);
 *	...
 *	unspin_ticket_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_TICKET_H
#define UNSPIN_LOCKS_TICKET_H

#include "env.h"

/* Low half: ticket now served. High half: next ticket to draw, so that a draw cannot carry over. */
struct unspin_ticket_lock {
	union {
		atomic_uint both;
		__extension__ struct {
			atomic_ushort serving;
			atomic_ushort next;
		};
	};
};

#define UNSPIN_TICKET_LOCK_INIT { { 0 } }

#define UNSPIN_TICKET_LOCK_NEXT_ONE 0x10000u

static inline bool unspin_ticket_is_locked(struct unspin_ticket_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	return (both >> 16) != (both & 0xffff);
}

static inline bool unspin_ticket_trylock(struct unspin_ticket_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	if ((both >> 16) != (both & 0xffff))
		return false;
	/* Acquire pairs with the release in unspin_ticket_unlock(). */
	return atomic_compare_exchange_strong_explicit(&lock->both, &both,
						       both + UNSPIN_TICKET_LOCK_NEXT_ONE,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void unspin_ticket_lock(struct unspin_ticket_lock *lock)
{
	/* Acquire (here, and below when the turn comes later) pairs with unspin_ticket_unlock(). */
	unsigned int both = atomic_fetch_add_explicit(&lock->both, UNSPIN_TICKET_LOCK_NEXT_ONE,
						      memory_order_acquire);
	unsigned short mine = (unsigned short)(both >> 16);

	if ((unsigned short)both == mine)
		return;
	UNSPIN_LOCK_CONTENDED(lock);
	do
		unspin_cpu_relax();
	while (atomic_load_explicit(&lock->serving, memory_order_acquire) != mine);
}

static inline void unspin_ticket_unlock(struct unspin_ticket_lock *lock)
{
	/* Only the holder writes `serving`: a plain increment, published by the release. */
	unsigned short serving = atomic_load_explicit(&lock->serving, memory_order_relaxed);

	atomic_store_explicit(&lock->serving, (unsigned short)(serving + 1), memory_order_release);
}

#endif
