/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * pv-preemptable: preemptable ticket lock whose waiters halt when the lock stays held.
 *
 * Paper:  J. Ouyang, J. Lange, VEE 2013, section 5.2. A waiter that competes for the lock halts after
 *         a threshold. A release wakes all halted waiters, because out of order there is no next one.
 * Size:   4 bytes; at most 16,383 threads may wait at a time. With more of them, the order is
 *         lost; still one thread at a time holds the lock.
 * Order:  as preemptable.h.
 *
 *	static struct unspin_pv_preemptable_lock lock = UNSPIN_PV_PREEMPTABLE_LOCK_INIT;
 *
 *	unspin_pv_preemptable_lock(&lock);
 *	...
 *	unspin_pv_preemptable_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_PV_PREEMPTABLE_H
#define UNSPIN_LOCKS_PV_PREEMPTABLE_H

#include "preemptable.h"

#define UNSPIN_PV_PREEMPTABLE_HALT_NS UNSPIN_LOCK_ITERATIONS_NS(2048)	/* section 5.2 */

/*
 * `both`, from bit 0: 1 bit held, 15 bits requests granted (head), 1 bit set if a waiter halts, 15
 * bits requests made (tail).
 */
struct unspin_pv_preemptable_lock {
	atomic_uint both;
};

_Static_assert(sizeof(struct unspin_pv_preemptable_lock) == 4, "unspin_pv_preemptable_lock is 4 bytes");

#define UNSPIN_PV_PREEMPTABLE_LOCK_INIT { 0 }
#define UNSPIN_PV_PREEMPTABLE_HELD 1u
#define UNSPIN_PV_PREEMPTABLE_HALTED 0x10000u
#define UNSPIN_PV_PREEMPTABLE_NEXT_ONE 0x20000u

/* As unspin_preemptable_is_idle(); the head is in the same place. */
static inline bool unspin_pv_preemptable_is_idle(unsigned int both)
{
	return !(both & UNSPIN_PV_PREEMPTABLE_HELD) && !unspin_preemptable_ahead(both, both >> 17);
}

static inline bool unspin_pv_preemptable_is_locked(struct unspin_pv_preemptable_lock *lock)
{
	return !unspin_pv_preemptable_is_idle(atomic_load_explicit(&lock->both, memory_order_relaxed));
}

static inline bool unspin_pv_preemptable_trylock(struct unspin_pv_preemptable_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	if (!unspin_pv_preemptable_is_idle(both))
		return false;
	/* Acquire pairs with the release in unspin_pv_preemptable_unlock(). */
	return atomic_compare_exchange_strong_explicit(&lock->both, &both,
						       both + UNSPIN_PV_PREEMPTABLE_NEXT_ONE +
							       UNSPIN_PV_PREEMPTABLE_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/* Competes out of order. True: it has the lock. False: the threshold is over. */
static inline bool unspin_pv_preemptable_compete(struct unspin_pv_preemptable_lock *lock)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_PV_PREEMPTABLE_HALT_NS, 1);

	/* Acquire pairs with the release in unspin_pv_preemptable_unlock(). */
	while (atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HELD, memory_order_acquire) &
	       UNSPIN_PV_PREEMPTABLE_HELD) {
		do {
			if (unspin_lock_budget_spent(&budget))
				return false;
			unspin_cpu_relax();
		} while (atomic_load_explicit(&lock->both, memory_order_relaxed) &
			 UNSPIN_PV_PREEMPTABLE_HELD);
	}
	return true;
}

static inline void unspin_pv_preemptable_lock_class(struct unspin_pv_preemptable_lock *lock,
						    const struct unspin_preemptable_class *way)
{
	unsigned int both, mine, ahead;

	/* No trylock first: reading the word before writing it costs another cache miss. */
	both = atomic_fetch_add_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_NEXT_ONE, memory_order_relaxed);
	mine = both >> 17;
	ahead = unspin_preemptable_ahead(both, mine);
	if (ahead) {
		UNSPIN_LOCK_CONTENDED(lock);
		unspin_preemptable_wait_turn(&lock->both, mine, ahead, way);
	}
	while (!unspin_pv_preemptable_compete(lock)) {
		/*
		 * Set the bit before reading the word again. All writes to one word have one order, so a
		 * release after this read finds the bit.
		 */
		both = atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HALTED,
						memory_order_relaxed) | UNSPIN_PV_PREEMPTABLE_HALTED;
		if (both & UNSPIN_PV_PREEMPTABLE_HELD)
			unspin_lock_wait(&lock->both, both, 0);
	}
}

static inline void unspin_pv_preemptable_lock(struct unspin_pv_preemptable_lock *lock)
{
	unspin_pv_preemptable_lock_class(lock, &unspin_preemptable_default);
}

static inline void unspin_pv_preemptable_unlock(struct unspin_pv_preemptable_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);
	/* Adding 1 releases and counts; a head that wraps around must not carry into the next bit. */
	unsigned int add = (both & 0xffff) == 0xffff ? 1 - 0x10000u : 1;

	/*
	 * Only the holder clears the bit, so if it was read as set, it still is. If it is set later, it
	 * stays for the next holder, which then wakes no waiter, or one that halted again.
	 */
	if (both & UNSPIN_PV_PREEMPTABLE_HALTED)
		add -= UNSPIN_PV_PREEMPTABLE_HALTED;
	/* Release pairs with the acquires above. */
	if (atomic_fetch_add_explicit(&lock->both, add, memory_order_release) &
	    UNSPIN_PV_PREEMPTABLE_HALTED)
		unspin_lock_wake_all(&lock->both);
}

#endif
