/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * pv-queued: queue lock whose waiters halt, as Linux's paravirtual qspinlock.
 *
 * Source: W. Long, "qspinlock: a 4-byte queue spinlock with PV support", Linux 4.2, and W. Long's
 *         changes to it up to 4.13 (kernel/locking/qspinlock_paravirt.h). Waiters queue as in mcs.h
 *         and halt after SPIN_THRESHOLD. The first of them, the head, waits for the lock word. While
 *         it spins it keeps a bit set (pending) that forbids others to take the lock. Before it halts
 *         it clears that bit and marks the word, so that the release kicks it. A head that still halts
 *         from the time when it was not the head is kicked by the release, not by the one before it.
 * Differs from Linux: a waiter does not halt early because the one before it halts, for nodes are on
 *         the waiters' stacks, and may not be read by those behind. A head that was kicked in vain
 *         marks the word again. Linux's head marks it once, and spins from then on.
 * Size:   24 bytes. Linux needs 4, because it numbers CPUs and keeps a node for each. Threads have no
 *         such numbers, so the tail is a pointer, and another one tells the release whom to kick.
 * Order:  first come, first served among queued waiters. Newcomers may overtake them while the head
 *         halts, and for as long as a kicked head takes to run.
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

/* Bits of the word; 0: free, and the head does not spin for it. */
#define UNSPIN_PV_QUEUED_HELD 1u
#define UNSPIN_PV_QUEUED_HEAD_HALTS 2u	/* on the word */
#define UNSPIN_PV_QUEUED_NODE_HALTS 4u	/* the head halts on its node, to which `first` points */
#define UNSPIN_PV_QUEUED_PENDING 8u	/* the head spins: no other thread may take the lock */
#define UNSPIN_PV_QUEUED_KICK (UNSPIN_PV_QUEUED_HEAD_HALTS | UNSPIN_PV_QUEUED_NODE_HALTS)

enum unspin_pv_queued_state {
	UNSPIN_PV_QUEUED_FIRST = 0,	/* this waiter is the head */
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
	/* Written and read by the holder. */
	_Atomic(struct unspin_pv_queued_node *) first;
};

_Static_assert(sizeof(struct unspin_pv_queued_lock) <= 24, "unspin_pv_queued_lock is at most 24 bytes");

#define UNSPIN_PV_QUEUED_LOCK_INIT { 0, (struct unspin_pv_queued_node *)0, (struct unspin_pv_queued_node *)0 }

static inline bool unspin_pv_queued_is_locked(struct unspin_pv_queued_lock *lock)
{
	return atomic_load_explicit(&lock->word, memory_order_relaxed) & UNSPIN_PV_QUEUED_HELD;
}

static inline bool unspin_pv_queued_somebody_waits(struct unspin_pv_queued_lock *lock)
{
	return atomic_load_explicit(&lock->tail, memory_order_relaxed) != 0;
}

/* Takes the lock if its word is @word, which is free; acquire pairs with unspin_pv_queued_unlock(). */
static inline bool unspin_pv_queued_take(struct unspin_pv_queued_lock *lock, unsigned int word)
{
	return atomic_compare_exchange_strong_explicit(&lock->word, &word, UNSPIN_PV_QUEUED_HELD,
						       memory_order_acquire, memory_order_relaxed);
}

/* Also fails while a thread waits for a free lock. */
static inline bool unspin_pv_queued_trylock(struct unspin_pv_queued_lock *lock)
{
	return !atomic_load_explicit(&lock->word, memory_order_relaxed) &&
	       !unspin_pv_queued_somebody_waits(lock) && unspin_pv_queued_take(lock, 0);
}

/* A newcomer may take the lock before the queue, and competes for it, as long as the head halts. */
static inline bool unspin_pv_queued_steal(struct unspin_pv_queued_lock *lock)
{
	for (;;) {
		unsigned int word = atomic_load_explicit(&lock->word, memory_order_relaxed);

		if (!word && unspin_pv_queued_take(lock, 0))
			return true;
		if ((word & UNSPIN_PV_QUEUED_PENDING) || !unspin_pv_queued_somebody_waits(lock))
			return false;
		unspin_cpu_relax();
	}
}

/*
 * Spins for SPIN_THRESHOLD. True: the waiter before made this one the head. Checks this before the
 * budget, because the budget of a vCPU that was preempted is spent when it returns.
 */
static inline bool unspin_pv_queued_spin_first(struct unspin_pv_queued_node *node)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_PV_QUEUED_SPIN_NS, 1);

	/* Relaxed, here and below: the head has nothing yet that others wrote. The word's acquire orders that. */
	while (atomic_load_explicit(&node->state, memory_order_relaxed) != UNSPIN_PV_QUEUED_FIRST) {
		if (unspin_lock_budget_spent(&budget))
			return false;
		unspin_cpu_relax();
	}
	return true;
}

/* Halts, unless this waiter is the head by now. Returns whether it is. */
static inline bool unspin_pv_queued_halt_first(struct unspin_pv_queued_node *node)
{
	unsigned int state = UNSPIN_PV_QUEUED_SPINS;

	/* Fails if the state is HALTS from an earlier turn, or FIRST. */
	if (!atomic_compare_exchange_strong_explicit(&node->state, &state, UNSPIN_PV_QUEUED_HALTS,
						     memory_order_relaxed, memory_order_relaxed) &&
	    state == UNSPIN_PV_QUEUED_FIRST)
		return true;
	unspin_lock_wait(&node->state, UNSPIN_PV_QUEUED_HALTS, 0);
	return false;
}

/* Waits until the waiter before makes this one the head. */
static inline void unspin_pv_queued_wait_first(struct unspin_pv_queued_node *node)
{
	while (!unspin_pv_queued_spin_first(node) && !unspin_pv_queued_halt_first(node))
		;
}

/* The head spins on the lock word for SPIN_THRESHOLD. Returns whether it has the lock. */
static inline bool unspin_pv_queued_spin_word(struct unspin_pv_queued_lock *lock)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_PV_QUEUED_SPIN_NS, 1);

	/* Only the head sets and clears the bit. */
	atomic_fetch_or_explicit(&lock->word, UNSPIN_PV_QUEUED_PENDING, memory_order_relaxed);
	while (atomic_load_explicit(&lock->word, memory_order_relaxed) != UNSPIN_PV_QUEUED_PENDING ||
	       !unspin_pv_queued_take(lock, UNSPIN_PV_QUEUED_PENDING)) {
		if (unspin_lock_budget_spent(&budget)) {
			atomic_fetch_and_explicit(&lock->word, ~UNSPIN_PV_QUEUED_PENDING,
						  memory_order_relaxed);
			return false;
		}
		unspin_cpu_relax();
	}
	return true;
}

/* The head waits until it has the lock. */
static inline void unspin_pv_queued_wait_word(struct unspin_pv_queued_lock *lock)
{
	const unsigned int bits = UNSPIN_PV_QUEUED_HELD | UNSPIN_PV_QUEUED_HEAD_HALTS;

	while (!unspin_pv_queued_spin_word(lock)) {
		/* Takes the lock if it is free, and announces the halt if not. */
		unsigned int word = atomic_fetch_or_explicit(&lock->word, bits, memory_order_acquire);

		if (!(word & UNSPIN_PV_QUEUED_HELD)) {
			/* It does not halt: the release has nobody to kick. */
			atomic_fetch_and_explicit(&lock->word, ~UNSPIN_PV_QUEUED_HEAD_HALTS,
						  memory_order_relaxed);
			return;
		}
		unspin_lock_wait(&lock->word, word | bits, 0);
	}
}

/* Leaves the queue with the lock held and makes the next waiter the head. */
static inline void unspin_pv_queued_pass_on(struct unspin_pv_queued_lock *lock,
					    struct unspin_pv_queued_node *node)
{
	struct unspin_pv_queued_node *after = atomic_load_explicit(&node->next, memory_order_acquire);

	if (!after) {
		struct unspin_pv_queued_node *self = node;

		/* Relaxed: who finds the tail empty reads nothing of this node. */
		if (atomic_compare_exchange_strong_explicit(&lock->tail, &self, 0,
							    memory_order_relaxed,
							    memory_order_relaxed))
			return;
		/* A waiter has exchanged the tail and is about to link itself. */
		do
			unspin_cpu_relax();
		while (!(after = atomic_load_explicit(&node->next, memory_order_acquire)));
	}
	if (atomic_exchange_explicit(&after->state, UNSPIN_PV_QUEUED_FIRST, memory_order_relaxed) ==
	    UNSPIN_PV_QUEUED_HALTS) {
		/* There is nothing for it to take yet: the release kicks it. */
		atomic_store_explicit(&lock->first, after, memory_order_relaxed);
		atomic_fetch_or_explicit(&lock->word, UNSPIN_PV_QUEUED_NODE_HALTS,
					 memory_order_relaxed);
	}
}

static inline void unspin_pv_queued_lock(struct unspin_pv_queued_lock *lock)
{
	struct unspin_pv_queued_node node, *before;

	if (unspin_pv_queued_steal(lock))
		return;
	UNSPIN_LOCK_CONTENDED(lock);
	atomic_store_explicit(&node.next, 0, memory_order_relaxed);
	atomic_store_explicit(&node.state, UNSPIN_PV_QUEUED_SPINS, memory_order_relaxed);
	/* Release publishes the node to the next waiter's exchange, with which acquire pairs. */
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
	/* This holder wrote it, if the bit is set: read before the release, for the next writes it, too. */
	struct unspin_pv_queued_node *first = atomic_load_explicit(&lock->first, memory_order_relaxed);
	/* Release pairs with the acquires of the word. */
	unsigned int word = atomic_fetch_and_explicit(&lock->word, UNSPIN_PV_QUEUED_PENDING,
						      memory_order_release);

	if (__builtin_expect(!(word & UNSPIN_PV_QUEUED_KICK), 1))
		return;
	if (word & UNSPIN_PV_QUEUED_HEAD_HALTS)
		unspin_lock_wake(&lock->word, 0);
	/* Used only as an address: its thread may have left. */
	if (word & UNSPIN_PV_QUEUED_NODE_HALTS)
		unspin_lock_wake(&first->state, 0);
}

#endif
