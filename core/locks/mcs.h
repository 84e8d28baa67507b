/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mcs: queue lock in which every waiter spins on its own cache line.
 *
 * Paper:  J. Mellor-Crummey, M. Scott, "Algorithms for scalable synchronization on shared-memory
 *         multiprocessors", ACM TOCS 1991, section 2.4.
 * Size:   one pointer, and one node (two words) for each lock a thread holds or waits for. The node
 *         belongs to the lock from unspin_mcs_lock() until unspin_mcs_unlock() returns.
 * Order:  first come, first served, with the ticket lock's weakness under preemption.
 *
 *	static struct unspin_mcs_lock lock = UNSPIN_MCS_LOCK_INIT;
 *	struct unspin_mcs_node node;
 *
 *	unspin_mcs_lock(&lock, &node);
 *	...
 *	unspin_mcs_unlock(&lock, &node);
 */
#ifndef UNSPIN_LOCKS_MCS_H
#define UNSPIN_LOCKS_MCS_H

#include "env.h"

struct unspin_mcs_node {
	_Atomic(struct unspin_mcs_node *) next;
	atomic_uint waiting;
};

struct unspin_mcs_lock {
	_Atomic(struct unspin_mcs_node *) tail;
};

#define UNSPIN_MCS_LOCK_INIT { (struct unspin_mcs_node *)0 }

static inline bool unspin_mcs_is_locked(struct unspin_mcs_lock *lock)
{
	return atomic_load_explicit(&lock->tail, memory_order_relaxed) != 0;
}

static inline bool unspin_mcs_trylock(struct unspin_mcs_lock *lock, struct unspin_mcs_node *node)
{
	struct unspin_mcs_node *none = 0;

	atomic_store_explicit(&node->next, 0, memory_order_relaxed);
	/* Release publishes `next` to the thread that queues behind; acquire pairs with unspin_mcs_unlock(). */
	return atomic_compare_exchange_strong_explicit(&lock->tail, &none, node,
						       memory_order_acq_rel, memory_order_relaxed);
}

static inline void unspin_mcs_lock(struct unspin_mcs_lock *lock, struct unspin_mcs_node *node)
{
	struct unspin_mcs_node *before;

	atomic_store_explicit(&node->next, 0, memory_order_relaxed);
	atomic_store_explicit(&node->waiting, 1, memory_order_relaxed);
	/* Release publishes the node to the next waiter's exchange; acquire pairs with unspin_mcs_unlock(). */
	before = atomic_exchange_explicit(&lock->tail, node, memory_order_acq_rel);
	if (!before)
		return;
	UNSPIN_LOCK_CONTENDED(lock);
	/* Release orders the node's initialisation before unspin_mcs_unlock() can find it. */
	atomic_store_explicit(&before->next, node, memory_order_release);
	/* Acquire pairs with the release of `waiting` in unspin_mcs_unlock(). */
	while (atomic_load_explicit(&node->waiting, memory_order_acquire))
		unspin_cpu_relax();
}

static inline void unspin_mcs_unlock(struct unspin_mcs_lock *lock, struct unspin_mcs_node *node)
{
	struct unspin_mcs_node *after = atomic_load_explicit(&node->next, memory_order_acquire);

	if (!after) {
		struct unspin_mcs_node *self = node;

		/* Release pairs with the acquire of the next exchange on `tail`. */
		if (atomic_compare_exchange_strong_explicit(&lock->tail, &self, 0,
							    memory_order_release,
							    memory_order_relaxed))
			return;
		/* A waiter has exchanged the tail and is about to link itself. */
		do
			unspin_cpu_relax();
		while (!(after = atomic_load_explicit(&node->next, memory_order_acquire)));
	}
	atomic_store_explicit(&after->waiting, 0, memory_order_release);
}

#endif
