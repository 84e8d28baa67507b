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
 *	static struct unspin_oticket_lock lock = UNSPIN_OTICKET_LOCK_INIT;
 *
 *	unspin_oticket_lock(&lock);
 *	...
 *	unspin_oticket_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_OTICKET_H
#define UNSPIN_LOCKS_OTICKET_H

#include "pv_ticket.h"

#define UNSPIN_OTICKET_QUEUE_WAIT 18	/* TICKET_QUEUE_WAIT: from this distance on, the stock threshold */
#define UNSPIN_OTICKET_WAKEUP_NCPU 4	/* OPPORTUNISTIC_WAKEUP_NCPU */

/* @ahead: at least 1, the distance when the ticket was drawn, as in figure 5. */
static inline unsigned long long unspin_oticket_spin_ns(unsigned int ahead)
{
	return ahead < UNSPIN_OTICKET_QUEUE_WAIT ? UNSPIN_PV_TICKET_SPIN_MAX_NS >> (ahead - 1) :
					    UNSPIN_PV_TICKET_SPIN_NS;
}

static inline void unspin_oticket_lock_distance(struct unspin_pv_ticket_lock *lock)
{
	unsigned int mine, ahead = unspin_pv_ticket_draw(lock, &mine);

	if (!ahead)
		return;
	while (!unspin_pv_ticket_spin(lock, mine, unspin_oticket_spin_ns(ahead)))
		unspin_pv_ticket_halt(lock, mine);
	unspin_pv_ticket_clear_halted(lock, mine);
}

struct unspin_oticket_lock { struct unspin_pv_ticket_lock ticket; };
struct unspin_oticket_spin_lock { struct unspin_pv_ticket_lock ticket; };
struct unspin_oticket_wake_lock { struct unspin_pv_ticket_lock ticket; };

_Static_assert(sizeof(struct unspin_oticket_lock) == 4, "unspin_oticket_lock is 4 bytes");

#define UNSPIN_OTICKET_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }
#define UNSPIN_OTICKET_SPIN_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }
#define UNSPIN_OTICKET_WAKE_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }

static inline void unspin_oticket_lock(struct unspin_oticket_lock *lock)
{
	unspin_oticket_lock_distance(&lock->ticket);
}

static inline void unspin_oticket_unlock(struct unspin_oticket_lock *lock)
{
	unspin_pv_ticket_unlock_with(&lock->ticket, UNSPIN_OTICKET_WAKEUP_NCPU);
}

static inline bool unspin_oticket_trylock(struct unspin_oticket_lock *lock)
{
	return unspin_pv_ticket_trylock(&lock->ticket);
}

static inline bool unspin_oticket_is_locked(struct unspin_oticket_lock *lock)
{
	return unspin_pv_ticket_is_locked(&lock->ticket);
}

/* Opportunistic spinning alone. */
static inline void unspin_oticket_spin_lock(struct unspin_oticket_spin_lock *lock)
{
	unspin_oticket_lock_distance(&lock->ticket);
}

static inline void unspin_oticket_spin_unlock(struct unspin_oticket_spin_lock *lock)
{
	unspin_pv_ticket_unlock_with(&lock->ticket, 1);
}

static inline bool unspin_oticket_spin_trylock(struct unspin_oticket_spin_lock *lock)
{
	return unspin_pv_ticket_trylock(&lock->ticket);
}

static inline bool unspin_oticket_spin_is_locked(struct unspin_oticket_spin_lock *lock)
{
	return unspin_pv_ticket_is_locked(&lock->ticket);
}

/* Opportunistic wakeup alone. */
static inline void unspin_oticket_wake_lock(struct unspin_oticket_wake_lock *lock)
{
	unspin_pv_ticket_lock_with(&lock->ticket, UNSPIN_PV_TICKET_SPIN_NS);
}

static inline void unspin_oticket_wake_unlock(struct unspin_oticket_wake_lock *lock)
{
	unspin_pv_ticket_unlock_with(&lock->ticket, UNSPIN_OTICKET_WAKEUP_NCPU);
}

static inline bool unspin_oticket_wake_trylock(struct unspin_oticket_wake_lock *lock)
{
	return unspin_pv_ticket_trylock(&lock->ticket);
}

static inline bool unspin_oticket_wake_is_locked(struct unspin_oticket_wake_lock *lock)
{
	return unspin_pv_ticket_is_locked(&lock->ticket);
}

#endif
