/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * long-ticket: pv-ticket that spins for SPIN_MAX_THRESHOLD, about 8 s, before it halts.
 *
 * Paper:  S. Kashyap, C. Min, T. Kim, APSys 2015, section 5.2 (longer spinning).
 * Size:   4 bytes; at most 32,767 threads may wait at a time.
 * Order:  first come, first served.
 *
 *	static struct unspin_long_ticket_lock lock = UNSPIN_LONG_TICKET_LOCK_INIT;
 *
 *	unspin_long_ticket_lock(&lock);
 *	...
 *	unspin_long_ticket_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_LONG_TICKET_H
#define UNSPIN_LOCKS_LONG_TICKET_H

#include "pv_ticket.h"

struct unspin_long_ticket_lock { struct unspin_pv_ticket_lock ticket; };

_Static_assert(sizeof(struct unspin_long_ticket_lock) == 4, "unspin_long_ticket_lock is 4 bytes");

#define UNSPIN_LONG_TICKET_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }

static inline void unspin_long_ticket_lock(struct unspin_long_ticket_lock *lock)
{
	unspin_pv_ticket_lock_with(&lock->ticket, UNSPIN_PV_TICKET_SPIN_MAX_NS);
}

static inline void unspin_long_ticket_unlock(struct unspin_long_ticket_lock *lock)
{
	unspin_pv_ticket_unlock_with(&lock->ticket, 1);
}

static inline bool unspin_long_ticket_trylock(struct unspin_long_ticket_lock *lock)
{
	return unspin_pv_ticket_trylock(&lock->ticket);
}

static inline bool unspin_long_ticket_is_locked(struct unspin_long_ticket_lock *lock)
{
	return unspin_pv_ticket_is_locked(&lock->ticket);
}

#endif
