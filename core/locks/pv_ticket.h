/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * pv-ticket: ticket lock whose waiters halt after a threshold, and are kicked when their turn comes.
 *
 * Source: K. T. Raghavendra, J. Fitzhardinge, "Paravirtualized ticket spinlocks" (Linux 3.12 to 4.1),
 *         as used for comparison in VEE 2013 section 5.2 and APSys 2015 figure 5.
 * Size:   4 bytes; at most 32,767 threads may wait at a time. With more of them, two hold the lock at
 *         once.
 * Order:  first come, first served. A preempted waiter still blocks all behind it; they halt.
 *
 * The unspin_pv_ticket_..._with() functions take as arguments what differs in oticket.h.
 *
 *	static struct unspin_pv_ticket_lock lock = UNSPIN_PV_TICKET_LOCK_INIT;
 *
 *	unspin_pv_ticket_lock(&lock);
 *	...
 *	unspin_pv_ticket_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_PV_TICKET_H
#define UNSPIN_LOCKS_PV_TICKET_H

#include "budget.h"

#define UNSPIN_PV_TICKET_SPIN_NS UNSPIN_LOCK_ITERATIONS_NS(1 << 15)		/* APSys'15 figure 5, SPIN_THRESHOLD */
#define UNSPIN_PV_TICKET_SPIN_MAX_NS UNSPIN_LOCK_ITERATIONS_NS(1ULL << 34)	/* same, SPIN_MAX_THRESHOLD */

/*
 * Low half: bit 0 is set if a waiter halts; above it is the ticket now served. High half: the next
 * ticket to draw, above a bit that is always 0. The bit and the ticket served are in one word, so that
 * setting the bit and releasing the lock have one order.
 */
struct unspin_pv_ticket_lock {
	union {
		atomic_uint both;
		atomic_ushort low;
	};
};

_Static_assert(sizeof(struct unspin_pv_ticket_lock) == 4, "unspin_pv_ticket_lock is 4 bytes");

#define UNSPIN_PV_TICKET_LOCK_INIT { { 0 } }
#define UNSPIN_PV_TICKET_HALTED 1u
#define UNSPIN_PV_TICKET_SERVE_ONE 2u
#define UNSPIN_PV_TICKET_NEXT_ONE 0x20000u

/* Tickets to be served before @mine; a ticket is a half of the word with bit 0 clear. */
static inline unsigned int unspin_pv_ticket_ahead(unsigned int both, unsigned int mine)
{
	return ((mine - (both & ~UNSPIN_PV_TICKET_HALTED)) & 0xffff) / UNSPIN_PV_TICKET_SERVE_ONE;
}

static inline bool unspin_pv_ticket_is_locked(struct unspin_pv_ticket_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	return unspin_pv_ticket_ahead(both, both >> 16) != 0;
}

static inline bool unspin_pv_ticket_trylock(struct unspin_pv_ticket_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	if (unspin_pv_ticket_ahead(both, both >> 16))
		return false;
	/* Acquire pairs with the release in unspin_pv_ticket_unlock_with(). */
	return atomic_compare_exchange_strong_explicit(&lock->both, &both,
						       both + UNSPIN_PV_TICKET_NEXT_ONE,
						       memory_order_acquire, memory_order_relaxed);
}

/* Draws a ticket, *@mine. Returns how many are before it. Acquire, because there may be none. */
static inline unsigned int unspin_pv_ticket_draw(struct unspin_pv_ticket_lock *lock, unsigned int *mine)
{
	unsigned int both = atomic_fetch_add_explicit(&lock->both, UNSPIN_PV_TICKET_NEXT_ONE,
						      memory_order_acquire);
	unsigned int ahead;

	*mine = both >> 16;
	ahead = unspin_pv_ticket_ahead(both, *mine);
	if (ahead)
		UNSPIN_LOCK_CONTENDED(lock);
	return ahead;
}

/* Spins up to @spin_ns for the turn of @mine. Returns whether it came. */
static inline bool unspin_pv_ticket_spin(struct unspin_pv_ticket_lock *lock, unsigned int mine,
					 unsigned long long spin_ns)
{
	struct unspin_lock_budget budget = unspin_lock_budget(spin_ns, 1);

	/* Acquire pairs with the release in unspin_pv_ticket_unlock_with(). */
	while (unspin_pv_ticket_ahead(atomic_load_explicit(&lock->both, memory_order_acquire), mine)) {
		if (unspin_lock_budget_spent(&budget))
			return false;
		unspin_cpu_relax();
	}
	return true;
}

static inline void unspin_pv_ticket_halt(struct unspin_pv_ticket_lock *lock, unsigned int mine)
{
	/* From here on a release finds the bit. If the turn came before, `both` shows it. */
	unsigned int both = atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_TICKET_HALTED,
						     memory_order_relaxed) | UNSPIN_PV_TICKET_HALTED;

	if (unspin_pv_ticket_ahead(both, mine))
		unspin_lock_wait(&lock->both, both, mine / UNSPIN_PV_TICKET_SERVE_ONE);
}

/* Called by the new holder: clears the bit if no other thread waits. */
static inline void unspin_pv_ticket_clear_halted(struct unspin_pv_ticket_lock *lock, unsigned int mine)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	if ((both & UNSPIN_PV_TICKET_HALTED) && both >> 16 == ((mine + UNSPIN_PV_TICKET_SERVE_ONE) & 0xffff))
		atomic_compare_exchange_strong_explicit(&lock->both, &both,
							both & ~UNSPIN_PV_TICKET_HALTED,
							memory_order_relaxed, memory_order_relaxed);
}

/* Waits for the turn of @mine, and spins for @spin_ns before each halt. */
static inline void unspin_pv_ticket_wait(struct unspin_pv_ticket_lock *lock, unsigned int mine,
					 unsigned long long spin_ns)
{
	while (!unspin_pv_ticket_spin(lock, mine, spin_ns))
		unspin_pv_ticket_halt(lock, mine);
	unspin_pv_ticket_clear_halted(lock, mine);
}

static inline void unspin_pv_ticket_lock_with(struct unspin_pv_ticket_lock *lock, unsigned long long spin_ns)
{
	unsigned int mine;

	if (unspin_pv_ticket_draw(lock, &mine))
		unspin_pv_ticket_wait(lock, mine, spin_ns);
}

/* Releases and, if a waiter halts, kicks the next @kicks tickets. */
static inline void unspin_pv_ticket_unlock_with(struct unspin_pv_ticket_lock *lock, unsigned int kicks)
{
	/* Release pairs with the acquires above. */
	unsigned int low = atomic_fetch_add_explicit(&lock->low, UNSPIN_PV_TICKET_SERVE_ONE,
						     memory_order_release);
	unsigned int next;

	if (__builtin_expect(!(low & UNSPIN_PV_TICKET_HALTED), 1))
		return;
	for (next = 1; next <= kicks; next++)
		unspin_lock_wake(&lock->both,
				 ((low + next * UNSPIN_PV_TICKET_SERVE_ONE) & 0xffff) / UNSPIN_PV_TICKET_SERVE_ONE);
}

static inline void unspin_pv_ticket_lock(struct unspin_pv_ticket_lock *lock)
{
	unspin_pv_ticket_lock_with(lock, UNSPIN_PV_TICKET_SPIN_NS);
}

static inline void unspin_pv_ticket_unlock(struct unspin_pv_ticket_lock *lock)
{
	unspin_pv_ticket_unlock_with(lock, 1);
}

#endif
