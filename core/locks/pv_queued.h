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
 *         first one has not asked for a hand-over (PV_QUEUED_HEAD_HALTS).
 *
 *	static struct pv_queued_lock lock = PV_QUEUED_LOCK_INIT;
 *
 *	pv_queued_lock(&lock);
 *	...
 *	pv_queued_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_PV_QUEUED_H
#define UNSPIN_LOCKS_PV_QUEUED_H

#include "budget.h"

#define PV_QUEUED_SPIN_NS LOCK_ITERATIONS_NS(1 << 15)	/* SPIN_THRESHOLD */

enum pv_queued_word {
	PV_QUEUED_FREE = 0,
	PV_QUEUED_HELD = 1,
	PV_QUEUED_HEAD_HALTS = 3,	/* held, and the first waiter halts on the word */
};

enum pv_queued_state {
	PV_QUEUED_FIRST = 0,	/* this waiter is the first */
	PV_QUEUED_SPINS = 1,
	PV_QUEUED_HALTS = 2,
};

struct pv_queued_node {
	_Atomic(struct pv_queued_node *) next;
	atomic_uint state;
};

struct pv_queued_lock {
	atomic_uint word;
	_Atomic(struct pv_queued_node *) tail;
};

_Static_assert(sizeof(struct pv_queued_lock) <= 16, "pv_queued_lock is at most 16 bytes");

#define PV_QUEUED_LOCK_INIT { 0, 0 }

static inline bool pv_queued_is_locked(struct pv_queued_lock *lock)
{
	return atomic_load_explicit(&lock->word, memory_order_relaxed) != PV_QUEUED_FREE;
}

static inline bool pv_queued_trylock(struct pv_queued_lock *lock)
{
	unsigned int none = PV_QUEUED_FREE;

	if (pv_queued_is_locked(lock))
		return false;
	/* Acquire pairs with the release in pv_queued_unlock(). */
	return atomic_compare_exchange_strong_explicit(&lock->word, &none, PV_QUEUED_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/*
 * Spins for SPIN_THRESHOLD. True: the waiter before made this one the first. Checks this before the
 * budget, because the budget of a vCPU that was preempted is spent when it returns.
 */
static inline bool pv_queued_spin_first(struct pv_queued_node *node)
{
	struct lock_budget budget = lock_budget(PV_QUEUED_SPIN_NS, 1);

	/* Acquire pairs with the exchange in pv_queued_pass_on(). */
	while (atomic_load_explicit(&node->state, memory_order_acquire) != PV_QUEUED_FIRST) {
		if (lock_budget_spent(&budget))
			return false;
		cpu_relax();
	}
	return true;
}

/* Halts, unless this waiter is the first by now. Returns whether it is. */
static inline bool pv_queued_halt_first(struct pv_queued_node *node)
{
	unsigned int state = PV_QUEUED_SPINS;

	/* Fails if the state is HALTS from an earlier turn, or FIRST. Acquire is for FIRST. */
	if (!atomic_compare_exchange_strong_explicit(&node->state, &state, PV_QUEUED_HALTS,
						     memory_order_acquire, memory_order_acquire) &&
	    state == PV_QUEUED_FIRST)
		return true;
	lock_wait(&node->state, PV_QUEUED_HALTS, 0);
	return false;
}

/* Waits until the waiter before makes this one the first. */
static inline void pv_queued_wait_first(struct pv_queued_node *node)
{
	while (!pv_queued_spin_first(node) && !pv_queued_halt_first(node))
		;
}

/* The first waiter spins on the lock word for SPIN_THRESHOLD. Returns whether it has the lock. */
static inline bool pv_queued_spin_word(struct pv_queued_lock *lock)
{
	struct lock_budget budget = lock_budget(PV_QUEUED_SPIN_NS, 1);

	while (!pv_queued_trylock(lock)) {
		if (lock_budget_spent(&budget))
			return false;
		cpu_relax();
	}
	return true;
}

/* The first waiter waits until it has the lock. */
static inline void pv_queued_wait_word(struct pv_queued_lock *lock)
{
	while (!pv_queued_spin_word(lock)) {
		/* The exchange takes the lock if the word is free, and announces the halt if not. */
		if (atomic_exchange_explicit(&lock->word, PV_QUEUED_HEAD_HALTS,
					     memory_order_acquire) == PV_QUEUED_FREE)
			return;
		lock_wait(&lock->word, PV_QUEUED_HEAD_HALTS, 0);
	}
}

/* Leaves the queue with the lock held and makes the next waiter the first. */
static inline void pv_queued_pass_on(struct pv_queued_lock *lock, struct pv_queued_node *node)
{
	struct pv_queued_node *after = atomic_load_explicit(&node->next, memory_order_acquire);

	if (!after) {
		struct pv_queued_node *self = node;

		if (atomic_compare_exchange_strong_explicit(&lock->tail, &self, 0,
							    memory_order_release,
							    memory_order_relaxed))
			return;
		/* A waiter has exchanged the tail and is about to link itself. */
		do
			cpu_relax();
		while (!(after = atomic_load_explicit(&node->next, memory_order_acquire)));
	}
	if (atomic_exchange_explicit(&after->state, PV_QUEUED_FIRST, memory_order_release) ==
	    PV_QUEUED_HALTS)
		lock_wake(&after->state, 0);
}

static inline void pv_queued_lock(struct pv_queued_lock *lock)
{
	struct pv_queued_node node, *before;

	if (pv_queued_trylock(lock))
		return;
	atomic_store_explicit(&node.next, 0, memory_order_relaxed);
	atomic_store_explicit(&node.state, PV_QUEUED_SPINS, memory_order_relaxed);
	/* Release publishes the node; acquire pairs with the tail's last release. */
	before = atomic_exchange_explicit(&lock->tail, &node, memory_order_acq_rel);
	if (before) {
		atomic_store_explicit(&before->next, &node, memory_order_release);
		pv_queued_wait_first(&node);
	}
	pv_queued_wait_word(lock);
	pv_queued_pass_on(lock, &node);
}

static inline void pv_queued_unlock(struct pv_queued_lock *lock)
{
	/* Release pairs with the acquires of the word. */
	if (atomic_exchange_explicit(&lock->word, PV_QUEUED_FREE, memory_order_release) ==
	    PV_QUEUED_HEAD_HALTS)
		lock_wake(&lock->word, 0);
}

#endif
