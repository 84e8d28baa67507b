/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Included by lease.h: a thread's turn, and the measurement of whether a few threads at a time should use a lock. */
#ifndef UNSPIN_LOCKS_LEASE_TURN_H
#define UNSPIN_LOCKS_LEASE_TURN_H

#include "lease_word.h"

/* How long a thread may use a shared lock: while the next two heirs sleep for a lease each, and some more. */
#define UNSPIN_LEASE_SHARED_TURN_NS 75000ULL
/* A yield that takes longer has run another thread. */
#define UNSPIN_LEASE_OTHERS_RAN_NS 5000ULL
/* One measurement of so many tries the other way; until that has been tried, one of four. */
#define UNSPIN_LEASE_TRY_EVERY 64u
#define UNSPIN_LEASE_FIRST_TRY_EVERY 4u
/* Fewer uses are no measurement. */
#define UNSPIN_LEASE_MEASURED_USES 8u
/* Some counters have less than one tick in a use. */
#define UNSPIN_LEASE_TICK_PARTS 256u
/* So long after its turn began, a user yields the CPU if a thread is in line: the heir may wait for it. */
#define UNSPIN_LEASE_YIELD_NS 50000ULL

/*
 * In an environment whose halts have no time limit (see env.h), the heir spins instead, and one thread at a
 * time uses a busy lock.
 */
#ifdef UNSPIN_LOCK_ENV_TIMED
#define UNSPIN_LEASE_HEIR_SLEEPS true
#define unspin_lease_nap unspin_lock_wait_for
#define unspin_lease_yield unspin_lock_yield

#ifdef UNSPIN_LEASE_TURN_HEADER
/* A checker's: turns end, and rates differ, as it wants. */
#include UNSPIN_LEASE_TURN_HEADER
#else
/* What a thread knows of the lock that it used last. */
struct unspin_lease_own {
	const struct unspin_lease_lock *lock;
	unsigned long long since_ticks;		/* when its turn began: it came out of the line, or others had its CPU */
	unsigned long long yielded_ticks;	/* when it last yielded, or its turn began */
	unsigned short uses;			/* of the lock when its turn began */
	unsigned short measurements;
	/* In 1/UNSPIN_LEASE_TICK_PARTS, averaged: one thread uses it, a few share it. 0: not known. */
	unsigned int ticks_per_use[2];
};

static _Thread_local struct unspin_lease_own unspin_lease_own;

static inline bool unspin_lease_is_past(unsigned long long since_ticks, unsigned long long ns)
{
	return unspin_lock_now() - since_ticks >= ns * unspin_lock_ticks_per_us() / 1000;
}

static inline void unspin_lease_forget_others(const struct unspin_lease_lock *lock)
{
	struct unspin_lease_own *own = &unspin_lease_own;

	if (own->lock == lock)
		return;
	own->lock = lock;
	own->measurements = 0;
	own->ticks_per_use[0] = own->ticks_per_use[1] = 0;
}

static inline void unspin_lease_begin_turn(struct unspin_lease_lock *lock)
{
	unspin_lease_forget_others(lock);
	unspin_lease_own.since_ticks = unspin_lease_own.yielded_ticks = unspin_lock_now();
	unspin_lease_own.uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);
}

/* An heir that has not come for so long may be waiting for this CPU. */
static inline void unspin_lease_offer_cpu(struct unspin_lease_lock *lock)
{
	unsigned long long before;

	if (!unspin_lease_is_past(unspin_lease_own.yielded_ticks, UNSPIN_LEASE_YIELD_NS))
		return;
	before = unspin_lock_now();
	unspin_lock_yield();
	/* A yield that runs no other thread does not prolong a turn: on many CPUs turns would not end. */
	if (unspin_lease_is_past(before, UNSPIN_LEASE_OTHERS_RAN_NS))
		unspin_lease_begin_turn(lock);
	else
		unspin_lease_own.yielded_ticks = unspin_lock_now();
}

/* Whether this thread may keep using the lock beside others. */
static inline bool unspin_lease_in_turn(struct unspin_lease_lock *lock)
{
	return unspin_lease_sharing(lock) && unspin_lease_own.lock == lock &&
	       !unspin_lease_is_past(unspin_lease_own.since_ticks, UNSPIN_LEASE_SHARED_TURN_NS);
}

/*
 * Whether to share the lock, by what is known and by its uses since @since_ticks, when their count was @from and
 * the lock was used as @sharing says. A time above @longest_ns does not count: this thread had no CPU.
 */
static inline unsigned int unspin_lease_faster(struct unspin_lease_lock *lock, unsigned int sharing,
					       unsigned short from, unsigned long long since_ticks,
					       unsigned long long longest_ns)
{
	struct unspin_lease_own *own = &unspin_lease_own;
	unsigned int *known = &own->ticks_per_use[sharing != 0];
	unsigned int used = unspin_lease_used(from, atomic_load_explicit(&lock->uses, memory_order_relaxed));
	unsigned long long ticks = unspin_lock_now() - since_ticks;
	unsigned int other, latest;

	unspin_lease_forget_others(lock);
	other = own->ticks_per_use[sharing == 0];
	if (used < UNSPIN_LEASE_MEASURED_USES || ticks >= longest_ns * unspin_lock_ticks_per_us() / 1000)
		return sharing;
	latest = (unsigned int)(UNSPIN_LEASE_TICK_PARTS * ticks / used);
	*known = *known ? (3 * *known + latest) / 4 : latest;
	if (!(++own->measurements % (other ? UNSPIN_LEASE_TRY_EVERY : UNSPIN_LEASE_FIRST_TRY_EVERY)))
		return sharing ^ UNSPIN_LEASE_SHARED;
	return other && other < *known ? sharing ^ UNSPIN_LEASE_SHARED : sharing;
}

/*
 * The turn of a user of a shared lock is over, and no thread is in line. Returns whether it begins another one:
 * not if other threads want its CPU, which may be users, or if one user at a time is faster.
 */
static inline bool unspin_lease_renew_turn(struct unspin_lease_lock *lock)
{
	unsigned long long before = unspin_lock_now();
	unsigned int sharing = UNSPIN_LEASE_SHARED;

	if (unspin_lease_own.lock == lock)
		sharing = unspin_lease_faster(lock, sharing, unspin_lease_own.uses,
					      unspin_lease_own.since_ticks, 3 * UNSPIN_LEASE_SHARED_TURN_NS);
	unspin_lock_yield();
	if (unspin_lease_is_past(before, UNSPIN_LEASE_OTHERS_RAN_NS))
		return false;
	if (sharing) {
		unspin_lease_begin_turn(lock);
		return true;
	}
	unspin_lease_stop_sharing(lock);
	return false;
}
#endif

#else
#define UNSPIN_LEASE_HEIR_SLEEPS false
static inline void unspin_lease_nap(atomic_uint *word, unsigned int seen, unsigned int key,
				    unsigned long long ns)
{
	struct unspin_lock_budget nap = unspin_lock_budget(ns, 1);

	(void)key;
	while (atomic_load_explicit(word, memory_order_relaxed) == seen && !unspin_lock_budget_spent(&nap))
		unspin_cpu_relax();
}

static inline void unspin_lease_yield(void)
{
	unspin_cpu_relax();
}

static inline void unspin_lease_begin_turn(struct unspin_lease_lock *lock)
{
	(void)lock;
}

static inline void unspin_lease_offer_cpu(struct unspin_lease_lock *lock)
{
	(void)lock;
}

static inline bool unspin_lease_in_turn(struct unspin_lease_lock *lock)
{
	(void)lock;
	return false;
}

static inline unsigned int unspin_lease_faster(struct unspin_lease_lock *lock, unsigned int sharing,
					       unsigned short from, unsigned long long since_ticks,
					       unsigned long long longest_ns)
{
	(void)lock, (void)from, (void)since_ticks, (void)longest_ns;
	return sharing;
}

static inline bool unspin_lease_renew_turn(struct unspin_lease_lock *lock)
{
	(void)lock;
	return false;
}
#endif

#endif
