/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * preemptable: ticket lock whose waiters overtake a preempted one.
 *
 * Paper:  J. Ouyang, J. Lange, "Preemptable ticket spinlocks: improving consolidated performance in
 *         the cloud", VEE 2013, sections 4 and 5.1. A waiter with n requests before it waits n * tau
 *         for its turn (anew whenever n changes) and then competes for the lock out of order.
 * Size:   4 bytes (the paper: 8); at most 32,767 threads may wait at a time. With more of them, the order
 *         is lost; still one thread at a time holds the lock.
 * Order:  first come, first served among waiters within n * tau. Those beyond it come before the
 *         others, in no order among themselves. An overtaken waiter competes as soon as it runs again.
 *         While a waiter is preempted, every later acquisition overtakes it, and costs tau for each
 *         such waiter.
 * Differs from the paper's code: its `ticket <= head` breaks when the numbers wrap around, so only the
 *         distance counts here. tau is a time, not a count of iterations. Releasing the lock and
 *         counting the grant is one store.
 *
 *	static struct unspin_preemptable_lock lock = UNSPIN_PREEMPTABLE_LOCK_INIT;
 *
 *	unspin_preemptable_lock(&lock);
 *	...
 *	unspin_preemptable_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_PREEMPTABLE_H
#define UNSPIN_LOCKS_PREEMPTABLE_H

#include "budget.h"

/* How the locks of one class wait; may be changed at any time. */
struct unspin_preemptable_class {
	/* 0: a test-and-set lock; UNSPIN_PREEMPTABLE_TAU_NS_FOREVER: a ticket lock (section 4.2). */
	_Atomic(unsigned long long) tau_ns __attribute__((aligned(8)));
};

#define UNSPIN_PREEMPTABLE_TAU_NS 2000ULL			/* section 4.2 */
#define UNSPIN_PREEMPTABLE_TAU_CODE_NS UNSPIN_LOCK_ITERATIONS_NS(1 << 14)	/* figure 3, TIMEOUT_UNIT */
#define UNSPIN_PREEMPTABLE_TAU_NS_FOREVER UNSPIN_LOCK_NS_FOREVER

/* The class of unspin_preemptable_lock(), one per executable or shared library. */
__attribute__((weak, visibility("hidden"))) struct unspin_preemptable_class unspin_preemptable_default = {
	UNSPIN_PREEMPTABLE_TAU_NS
};

/*
 * `both`, from bit 0: 1 bit held, 15 bits requests granted (head), 15 bits requests made (tail), and
 * above it 1 bit that only takes the tail's carry. While `held` is set only the holder changes the low
 * half, so adding 1 to it releases the lock and counts the grant in one store.
 */
struct unspin_preemptable_lock {
	union {
		atomic_uint both;
		atomic_ushort low;
	};
};

_Static_assert(sizeof(struct unspin_preemptable_lock) == 4, "unspin_preemptable_lock is 4 bytes");

#define UNSPIN_PREEMPTABLE_LOCK_INIT { { 0 } }
#define UNSPIN_PREEMPTABLE_HELD 1u
#define UNSPIN_PREEMPTABLE_NEXT_ONE 0x10000u
#define UNSPIN_PREEMPTABLE_NUMBERS 0x7fffu
#define UNSPIN_PREEMPTABLE_TURNS_A_LOOK 8u

/* Requests before request number @mine, modulo the 15 bits of a number. */
static inline unsigned int unspin_preemptable_ahead(unsigned int both, unsigned int mine)
{
	return (mine - (both >> 1)) & UNSPIN_PREEMPTABLE_NUMBERS;
}

/*
 * Whether no thread holds the lock or waits for it. Requests of threads that ended while they waited stay.
 * After 2^15 of them the numbers are equal again, so that only the bit tells that the lock is held.
 */
static inline bool unspin_preemptable_is_idle(unsigned int both)
{
	return !(both & UNSPIN_PREEMPTABLE_HELD) && !unspin_preemptable_ahead(both, both >> 16);
}

static inline bool unspin_preemptable_is_locked(struct unspin_preemptable_lock *lock)
{
	return !unspin_preemptable_is_idle(atomic_load_explicit(&lock->both, memory_order_relaxed));
}

/* Also fails while a thread waits for a free lock (figure 4). */
static inline bool unspin_preemptable_trylock(struct unspin_preemptable_lock *lock)
{
	unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

	if (!unspin_preemptable_is_idle(both))
		return false;
	/* Acquire pairs with the release in unspin_preemptable_unlock(). */
	return atomic_compare_exchange_strong_explicit(&lock->both, &both,
						       both + UNSPIN_PREEMPTABLE_NEXT_ONE + UNSPIN_PREEMPTABLE_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/*
 * Waits until the requests before it (at least 1) are granted, or n * tau is over. Heads only grow, so
 * if the distance has grown, it went below zero: the waiter was overtaken. Uses only the head of the
 * word, so that pv_preemptable can use it, too.
 */
static inline void unspin_preemptable_wait_turn(atomic_uint *both, unsigned int mine, unsigned int ahead,
						const struct unspin_preemptable_class *way)
{
	unsigned long long tau_ns = atomic_load_explicit(&way->tau_ns, memory_order_relaxed);
	struct unspin_lock_budget budget = unspin_lock_budget(tau_ns, ahead);
	unsigned int turn;

	/* Reading the clock takes as long as reading the lock, so it is not read in every turn. */
	for (turn = 1; turn % UNSPIN_PREEMPTABLE_TURNS_A_LOOK || !unspin_lock_budget_spent(&budget);
	     turn = turn % UNSPIN_PREEMPTABLE_TURNS_A_LOOK + 1) {
		unsigned int now_ahead;

		unspin_cpu_relax();
		now_ahead = unspin_preemptable_ahead(atomic_load_explicit(both, memory_order_relaxed), mine);
		if (!now_ahead || now_ahead > ahead)
			return;
		if (now_ahead < ahead) {
			ahead = now_ahead;
			budget = unspin_lock_budget(tau_ns, ahead);
		}
	}
}

static inline void unspin_preemptable_lock_class(struct unspin_preemptable_lock *lock,
						 const struct unspin_preemptable_class *way)
{
	unsigned int both, mine, ahead;

	/* No trylock first: reading the word before writing it costs another cache miss. */
	both = atomic_fetch_add_explicit(&lock->both, UNSPIN_PREEMPTABLE_NEXT_ONE, memory_order_relaxed);
	mine = both >> 16;
	ahead = unspin_preemptable_ahead(both, mine);
	if (ahead) {
		UNSPIN_LOCK_CONTENDED(lock);
		unspin_preemptable_wait_turn(&lock->both, mine, ahead, way);
	}
	/* Acquire pairs with the release in unspin_preemptable_unlock(). */
	while (atomic_fetch_or_explicit(&lock->both, UNSPIN_PREEMPTABLE_HELD, memory_order_acquire) &
	       UNSPIN_PREEMPTABLE_HELD) {
		do
			unspin_cpu_relax();
		while (atomic_load_explicit(&lock->both, memory_order_relaxed) & UNSPIN_PREEMPTABLE_HELD);
	}
}

static inline void unspin_preemptable_lock(struct unspin_preemptable_lock *lock)
{
	unspin_preemptable_lock_class(lock, &unspin_preemptable_default);
}

static inline void unspin_preemptable_unlock(struct unspin_preemptable_lock *lock)
{
	unsigned short low = atomic_load_explicit(&lock->low, memory_order_relaxed);

	/* Release pairs with the acquires above. */
	atomic_store_explicit(&lock->low, (unsigned short)(low + 1), memory_order_release);
}

#endif
