/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * iticket: pv-ticket that doubles the threshold of a lock whenever a waiter exceeds it.
 *
 * Paper:  S. Kashyap, C. Min, T. Kim, APSys 2015, section 5.2 (ITICKET). The paper names no bound;
 *         here it is the one of the paper's longer spinning.
 * Size:   8 bytes (the paper: 6).
 * Order:  first come, first served.
 *
 *	static struct unspin_iticket_lock lock = UNSPIN_ITICKET_LOCK_INIT;
 *
 *	unspin_iticket_lock(&lock);
 *	...
 *	unspin_iticket_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_ITICKET_H
#define UNSPIN_LOCKS_ITICKET_H

#include "pv_ticket.h"

#define UNSPIN_ITICKET_DOUBLINGS_MAX 19	/* 2^15 to 2^34 iterations */

struct unspin_iticket_lock {
	struct unspin_pv_ticket_lock ticket;
	atomic_uint doublings;
};

_Static_assert(sizeof(struct unspin_iticket_lock) == 8, "unspin_iticket_lock is 8 bytes");

#define UNSPIN_ITICKET_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT, 0 }

/* If two waiters double at the same time, one of them may be lost: the threshold is a hint. */
static inline void unspin_iticket_double(struct unspin_iticket_lock *lock)
{
	unsigned int doublings = atomic_load_explicit(&lock->doublings, memory_order_relaxed);

	if (doublings < UNSPIN_ITICKET_DOUBLINGS_MAX)
		atomic_store_explicit(&lock->doublings, doublings + 1, memory_order_relaxed);
}

static inline void unspin_iticket_lock(struct unspin_iticket_lock *lock)
{
	unsigned int mine;

	if (!unspin_pv_ticket_draw(&lock->ticket, &mine))
		return;
	while (!unspin_pv_ticket_spin(&lock->ticket, mine,
				      UNSPIN_PV_TICKET_SPIN_NS << atomic_load_explicit(&lock->doublings,
										       memory_order_relaxed))) {
		unspin_iticket_double(lock);
		unspin_pv_ticket_halt(&lock->ticket, mine);
	}
	unspin_pv_ticket_clear_halted(&lock->ticket, mine);
}

static inline void unspin_iticket_unlock(struct unspin_iticket_lock *lock)
{
	unspin_pv_ticket_unlock_with(&lock->ticket, 1);
}

static inline bool unspin_iticket_trylock(struct unspin_iticket_lock *lock)
{
	return unspin_pv_ticket_trylock(&lock->ticket);
}

static inline bool unspin_iticket_is_locked(struct unspin_iticket_lock *lock)
{
	return unspin_pv_ticket_is_locked(&lock->ticket);
}

#endif
