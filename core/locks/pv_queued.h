/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * pv-queued: queue lock whose waiters halt, like Linux's paravirtual qspinlock.
 *
 * Source: W. Long, "qspinlock: a 4-byte queue spinlock with PV support", Linux 4.2 and later
 *         (kernel/locking/qspinlock_paravirt.h). Waiters queue as in mcs.h and halt after
 *         SPIN_THRESHOLD. The first of them waits for the lock word itself, halts on it, and is
 *         kicked by the release. A newcomer may take a free lock before the first waiter does (the
 *         hybrid mode of the pv form).
 * Size:   16 bytes. Linux needs 4, because it numbers CPUs and keeps a node for each. Threads have no
 *         such numbers, so the tail is a pointer. The node lives on the waiter's stack.
 * Order:  first come, first served among queued waiters. Newcomers may overtake them as long as the
 *         first one has not asked for a hand-over (UNSPIN_PV_QUEUED_HEAD_HALTS).
 *
 *	static struct unspin_pv_queued_lock lock = UNSPIN_PV_QUEUED_LOCK_INIT;
 *
 *	unspin_pv_queued_lock(&lock);
 *	...
 *	unspin_pv_queued_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_PV_QUEUED_H
#define UNSPIN_LOCKS_PV_QUEUED_H

#include "budget.h"

#define UNSPIN_PV_QUEUED_SPIN_NS UNSPIN_LOCK_ITERATIONS_NS(1 << 15)	/* SPIN_THRESHOLD */

enum unspin_pv_queued_word {
	UNSPIN_PV_QUEUED_FREE = 0,
	UNSPIN_PV_QUEUED_HELD = 1,
	UNSPIN_PV_QUEUED_HEAD_HALTS = 3,	/* held, and the first waiter halts on the word */
};

enum unspin_pv_queued_state {
	UNSPIN_PV_QUEUED_FIRST = 0,	/* this waiter is the first */
	UNSPIN_PV_QUEUED_SPINS = 1,
	UNSPIN_PV_QUEUED_HALTS = 2,
};

struct unspin_pv_queued_node {
	_Atomic(struct unspin_pv_queued_node *) next;
	atomic_uint state;
};

struct unspin_pv_queued_lock {
	atomic_uint word;
	_Atomic(struct unspin_pv_queued_node *) tail;
};

_Static_assert(sizeof(struct unspin_pv_queued_lock) <= 16, "unspin_pv_queued_lock is at most 16 bytes");

#define UNSPIN_PV_QUEUED_LOCK_INIT { 0, 0 }

static inline bool unspin_pv_queued_is_locked(struct unspin_pv_queued_lock *lock)
{
	return atomic_load_explicit(&lock->word, memory_order_relaxed) != UNSPIN_PV_QUEUED_FREE;
}

static inline bool unspin_pv_queued_trylock(struct unspin_pv_queued_lock *lock)
{
	unsigned int none = UNSPIN_PV_QUEUED_FREE;

	if (unspin_pv_queued_is_locked(lock))
		return false;
	/* Acquire pairs with the release in unspin_pv_queued_unlock(). */
	return atomic_compare_exchange_strong_explicit(&lock->word, &none, UNSPIN_PV_QUEUED_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/*
 * Spins for SPIN_THRESHOLD. True: the waiter before made this one the first. Checks this before the
 * budget, because the budget of a vCPU that was preempted is spent when it returns.
 */
static inline bool unspin_pv_queued_spin_first(struct unspin_pv_queued_node *node)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_PV_QUEUED_SPIN_NS, 1);

	/* Acquire pairs with the exchange in unspin_pv_queued_pass_on(). */
	while (atomic_load_explicit(&node->state, memory_order_acquire) != UNSPIN_PV_QUEUED_FIRST) {
		if (unspin_lock_budget_spent(&budget))
			return false;
		unspin_cpu_relax();
	}
	return true;
}

/* Halts, unless this waiter is the first by now. Returns whether it is. */
static inline bool unspin_pv_queued_halt_first(struct unspin_pv_queued_node *node)
{
	unsigned int state = UNSPIN_PV_QUEUED_SPINS;

	/* Fails if the state is HALTS from an earlier turn, or FIRST. Acquire is for FIRST. */
	if (!atomic_compare_exchange_strong_explicit(&node->state, &state, UNSPIN_PV_QUEUED_HALTS,
						     memory_order_acquire, memory_order_acquire) &&
	    state == UNSPIN_PV_QUEUED_FIRST)
		return true;
	unspin_lock_wait(&node->state, UNSPIN_PV_QUEUED_HALTS, 0);
	return false;
}

/* Waits until the waiter before makes this one the first. */
static inline void unspin_pv_queued_wait_first(struct unspin_pv_queued_node *node)
{
	while (!unspin_pv_queued_spin_first(node) && !unspin_pv_queued_halt_first(node))
		;
}

/* The first waiter spins on the lock word for SPIN_THRESHOLD. Returns whether it has the lock. */
static inline bool unspin_pv_queued_spin_word(struct unspin_pv_queued_lock *lock)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_PV_QUEUED_SPIN_NS, 1);

	while (!unspin_pv_queued_trylock(lock)) {
		if (unspin_lock_budget_spent(&budget))
			return false;
		unspin_cpu_relax();
	}
	return true;
}

/* The first waiter waits until it has the lock. */
static inline void unspin_pv_queued_wait_word(struct unspin_pv_queued_lock *lock)
{
	while (!unspin_pv_queued_spin_word(lock)) {
		/* The exchange takes the lock if the word is free, and announces the halt if not. */
		if (atomic_exchange_explicit(&lock->word, UNSPIN_PV_QUEUED_HEAD_HALTS,
					     memory_order_acquire) == UNSPIN_PV_QUEUED_FREE)
			return;
		unspin_lock_wait(&lock->word, UNSPIN_PV_QUEUED_HEAD_HALTS, 0);
	}
}

/* Leaves the queue with the lock held and makes the next waiter the first. */
static inline void unspin_pv_queued_pass_on(struct unspin_pv_queued_lock *lock, struct unspin_pv_queued_node *node)
{
	struct unspin_pv_queued_node *after = atomic_load_explicit(&node->next, memory_order_acquire);

	if (!after) {
		struct unspin_pv_queued_node *self = node;

		if (atomic_compare_exchange_strong_explicit(&lock->tail, &self, 0,
							    memory_order_release,
							    memory_order_relaxed))
			return;
		/* A waiter has exchanged the tail and is about to link itself. */
		do
			unspin_cpu_relax();
		while (!(after = atomic_load_explicit(&node->next, memory_order_acquire)));
	}
	if (atomic_exchange_explicit(&after->state, UNSPIN_PV_QUEUED_FIRST, memory_order_release) ==
	    UNSPIN_PV_QUEUED_HALTS)
		unspin_lock_wake(&after->state, 0);
}

static inline void unspin_pv_queued_lock(struct unspin_pv_queued_lock *lock)
{
	struct unspin_pv_queued_node node, *before;

	if (unspin_pv_queued_trylock(lock))
		return;
	atomic_store_explicit(&node.next, 0, memory_order_relaxed);
	atomic_store_explicit(&node.state, UNSPIN_PV_QUEUED_SPINS, memory_order_relaxed);
	/* Release publishes the node; acquire pairs with the tail's last release. */
	before = atomic_exchange_explicit(&lock->tail, &node, memory_order_acq_rel);
	if (before) {
		atomic_store_explicit(&before->next, &node, memory_order_release);
		unspin_pv_queued_wait_first(&node);
	}
	unspin_pv_queued_wait_word(lock);
	unspin_pv_queued_pass_on(lock, &node);
}

static inline void unspin_pv_queued_unlock(struct unspin_pv_queued_lock *lock)
{
	/* Release pairs with the acquires of the word. */
	if (atomic_exchange_explicit(&lock->word, UNSPIN_PV_QUEUED_FREE, memory_order_release) ==
	    UNSPIN_PV_QUEUED_HEAD_HALTS)
		unspin_lock_wake(&lock->word, 0);
}

#endif
