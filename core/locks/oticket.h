/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * oticket: pv-ticket whose near waiters spin long, and whose release also wakes those after the next.
 *
 * Paper:  S. Kashyap, C. Min, T. Kim, "Opportunistic spinlocks: achieving virtual machine scalability
 *         in the clouds", APSys 2015, sections 3 and 4, figure 5. Each of the two parts is also a lock
 *         by itself, as in figure 6: oticket_spin, oticket_wake.
 * Size:   4 bytes; at most 32,767 threads may wait at a time.
 * Order:  first come, first served.
 *
 *	static struct oticket_lock lock = OTICKET_LOCK_INIT;
 *
 *	oticket_lock(&lock);
 *	...
 *	oticket_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_OTICKET_H
#define UNSPIN_LOCKS_OTICKET_H

#include "pv_ticket.h"

#define OTICKET_QUEUE_WAIT 18	/* TICKET_QUEUE_WAIT: from this distance on, the stock threshold */
#define OTICKET_WAKEUP_NCPU 4	/* OPPORTUNISTIC_WAKEUP_NCPU */

/* @ahead: at least 1, the distance when the ticket was drawn, as in figure 5. */
static inline unsigned long long oticket_spin_ns(unsigned int ahead)
{
	return ahead < OTICKET_QUEUE_WAIT ? PV_TICKET_SPIN_MAX_NS >> (ahead - 1) :
					    PV_TICKET_SPIN_NS;
}

static inline void oticket_lock_distance(struct pv_ticket_lock *lock)
{
	unsigned int mine, ahead = pv_ticket_draw(lock, &mine);

	if (!ahead)
		return;
	while (!pv_ticket_spin(lock, mine, oticket_spin_ns(ahead)))
		pv_ticket_halt(lock, mine);
	pv_ticket_clear_halted(lock, mine);
}

struct oticket_lock { struct pv_ticket_lock ticket; };
struct oticket_spin_lock { struct pv_ticket_lock ticket; };
struct oticket_wake_lock { struct pv_ticket_lock ticket; };

_Static_assert(sizeof(struct oticket_lock) == 4, "oticket_lock is 4 bytes");

#define OTICKET_LOCK_INIT { PV_TICKET_LOCK_INIT }
#define OTICKET_SPIN_LOCK_INIT { PV_TICKET_LOCK_INIT }
#define OTICKET_WAKE_LOCK_INIT { PV_TICKET_LOCK_INIT }

static inline void oticket_lock(struct oticket_lock *lock)
{
	oticket_lock_distance(&lock->ticket);
}

static inline void oticket_unlock(struct oticket_lock *lock)
{
	pv_ticket_unlock_with(&lock->ticket, OTICKET_WAKEUP_NCPU);
}

static inline bool oticket_trylock(struct oticket_lock *lock)
{
	return pv_ticket_trylock(&lock->ticket);
}

static inline bool oticket_is_locked(struct oticket_lock *lock)
{
	return pv_ticket_is_locked(&lock->ticket);
}

/* Opportunistic spinning alone. */
static inline void oticket_spin_lock(struct oticket_spin_lock *lock)
{
	oticket_lock_distance(&lock->ticket);
}

static inline void oticket_spin_unlock(struct oticket_spin_lock *lock)
{
	pv_ticket_unlock_with(&lock->ticket, 1);
}

static inline bool oticket_spin_trylock(struct oticket_spin_lock *lock)
{
	return pv_ticket_trylock(&lock->ticket);
}

static inline bool oticket_spin_is_locked(struct oticket_spin_lock *lock)
{
	return pv_ticket_is_locked(&lock->ticket);
}

/* Opportunistic wakeup alone. */
static inline void oticket_wake_lock(struct oticket_wake_lock *lock)
{
	pv_ticket_lock_with(&lock->ticket, PV_TICKET_SPIN_NS);
}

static inline void oticket_wake_unlock(struct oticket_wake_lock *lock)
{
	pv_ticket_unlock_with(&lock->ticket, OTICKET_WAKEUP_NCPU);
}

static inline bool oticket_wake_trylock(struct oticket_wake_lock *lock)
{
	return pv_ticket_trylock(&lock->ticket);
}

static inline bool oticket_wake_is_locked(struct oticket_wake_lock *lock)
{
	return pv_ticket_is_locked(&lock->ticket);
}

#endif
