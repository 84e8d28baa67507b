/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * oticket and its relatives: pv-ticket whose waiters spin for another time before they halt, or whose
 * release kicks more waiters than the next.
 *
 * Paper:  S. Kashyap, C. Min, T. Kim, "Opportunistic spinlocks: achieving virtual machine scalability
 *         in the clouds", APSys 2015, sections 3 to 5, figures 5 and 6. Its locks:
 *
 *	lock		a waiter spins for				a release kicks
 *	pv_ticket	SPIN_THRESHOLD (pv_ticket.h)			the next
 *	long_ticket	SPIN_MAX_THRESHOLD, about 8 s			the next
 *	iticket		the lock's threshold, which is doubled		the next
 *			whenever a waiter exceeds it
 *	oticket_spin	the longer, the nearer its turn was		the next
 *			when it drew its ticket
 *	oticket_wake	SPIN_THRESHOLD					the next 4
 *	oticket		as in oticket_spin				the next 4
 *
 * Differs from the paper: it names no bound of iticket's threshold; here it is SPIN_MAX_THRESHOLD.
 * Size:   4 bytes, iticket 8 (the paper: 6); at most 32,767 threads may wait at a time, as in
 *         pv_ticket.h.
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
#define UNSPIN_ITICKET_DOUBLINGS_MAX 19	/* 2^15 to 2^34 iterations */

struct unspin_long_ticket_lock { struct unspin_pv_ticket_lock ticket; };
struct unspin_oticket_lock { struct unspin_pv_ticket_lock ticket; };
struct unspin_oticket_spin_lock { struct unspin_pv_ticket_lock ticket; };
struct unspin_oticket_wake_lock { struct unspin_pv_ticket_lock ticket; };

struct unspin_iticket_lock {
	struct unspin_pv_ticket_lock ticket;
	atomic_uint doublings;
};

_Static_assert(sizeof(struct unspin_oticket_lock) == 4, "unspin_oticket_lock is 4 bytes");
_Static_assert(sizeof(struct unspin_iticket_lock) == 8, "unspin_iticket_lock is 8 bytes");

#define UNSPIN_LONG_TICKET_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }
#define UNSPIN_OTICKET_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }
#define UNSPIN_OTICKET_SPIN_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }
#define UNSPIN_OTICKET_WAKE_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT }
#define UNSPIN_ITICKET_LOCK_INIT { UNSPIN_PV_TICKET_LOCK_INIT, 0 }

/* @ahead: at least 1, the distance when the ticket was drawn, as in figure 5. */
static inline unsigned long long unspin_oticket_spin_ns(unsigned int ahead)
{
	return ahead < UNSPIN_OTICKET_QUEUE_WAIT ? UNSPIN_PV_TICKET_SPIN_MAX_NS >> (ahead - 1) :
						   UNSPIN_PV_TICKET_SPIN_NS;
}

static inline void unspin_oticket_lock_distance(struct unspin_pv_ticket_lock *lock)
{
	unsigned int mine, ahead = unspin_pv_ticket_draw(lock, &mine);

	if (ahead)
		unspin_pv_ticket_wait(lock, mine, unspin_oticket_spin_ns(ahead));
}

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
	while (!unspin_pv_ticket_spin(&lock->ticket, mine, UNSPIN_PV_TICKET_SPIN_NS <<
				      atomic_load_explicit(&lock->doublings, memory_order_relaxed))) {
		unspin_iticket_double(lock);
		unspin_pv_ticket_halt(&lock->ticket, mine);
	}
	unspin_pv_ticket_clear_halted(&lock->ticket, mine);
}

static inline void unspin_long_ticket_lock(struct unspin_long_ticket_lock *lock)
{
	unspin_pv_ticket_lock_with(&lock->ticket, UNSPIN_PV_TICKET_SPIN_MAX_NS);
}

static inline void unspin_oticket_spin_lock(struct unspin_oticket_spin_lock *lock)
{
	unspin_oticket_lock_distance(&lock->ticket);
}

static inline void unspin_oticket_wake_lock(struct unspin_oticket_wake_lock *lock)
{
	unspin_pv_ticket_lock_with(&lock->ticket, UNSPIN_PV_TICKET_SPIN_NS);
}

static inline void unspin_oticket_lock(struct unspin_oticket_lock *lock)
{
	unspin_oticket_lock_distance(&lock->ticket);
}

/* What they have of pv_ticket. */
#define UNSPIN_OTICKET_REST(name, kicks)							\
	static inline void unspin_##name##_unlock(struct unspin_##name##_lock *lock)		\
	{											\
		unspin_pv_ticket_unlock_with(&lock->ticket, kicks);				\
	}											\
	static inline bool unspin_##name##_trylock(struct unspin_##name##_lock *lock)		\
	{											\
		return unspin_pv_ticket_trylock(&lock->ticket);					\
	}											\
	static inline bool unspin_##name##_is_locked(struct unspin_##name##_lock *lock)		\
	{											\
		return unspin_pv_ticket_is_locked(&lock->ticket);				\
	}

UNSPIN_OTICKET_REST(long_ticket, 1)
UNSPIN_OTICKET_REST(iticket, 1)
UNSPIN_OTICKET_REST(oticket_spin, 1)
UNSPIN_OTICKET_REST(oticket_wake, UNSPIN_OTICKET_WAKEUP_NCPU)
UNSPIN_OTICKET_REST(oticket, UNSPIN_OTICKET_WAKEUP_NCPU)

#endif
