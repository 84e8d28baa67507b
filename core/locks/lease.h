/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * lease: the threads that use the lock keep it for a time; the others sleep in line for their turn.
 *
 * A busy lock is fastest when few threads pass it among themselves. It is delayed by a holder, or a
 * next waiter, that has no CPU. So a thread that cannot get the lock within some us draws a number and
 * sleeps. Only the first in line, the heir, keeps checking the lock, in naps of 0.1 ms. If the lock is
 * in use all the time, the heir waits until the lease (0.5 ms) is over, and then asks for the lock with
 * a wish that stops the others. If the lock is used less, the heir asks for it at once. When it has the
 * lock, the next in line becomes the heir. The heir's naps end by themselves, so that no wake-up can be
 * lost, and a release is a plain store.
 *
 * Sources: most waiters are passive, and admitted by time: D. Dice, "Malthusian locks", EuroSys 2017;
 *         D. Dice, A. Kogan, "Avoiding scalability collapse by restricting concurrency", Euro-Par
 *         2019 (GCR). One heir that competes: D. Dice, "Competitive succession" in Java's monitors. A
 *         wish that lapses when its owner does not run, instead of a queue that waits for it: J.
 *         Ouyang, J. Lange, VEE 2013, section 4.1. Count of uses in the word that is stored at
 *         release: preemptable.h. New: the sleeper measures the lease, not the holder.
 * Size:   8 bytes; at most 65,535 threads may wait at a time.
 * Order:  threads in line get the lock first come, first served. If the heir gets a CPU, each gets it
 *         within a lease (0.5 ms), a nap (0.1 ms and the timer's slack) and a critical section after
 *         the one before it. Threads that are not in line yet may overtake them meanwhile.
 * A preempted waiter delays no other thread: a sleeping one is not preempted, and if an heir asks for
 *         the lock and does not run, the others overtake it after tau (2 us, VEE 2013 section 4.2). A
 *         preempted holder delays all.
 *
 *	static struct lease_lock lock = LEASE_LOCK_INIT;
 *
 *	lease_lock(&lock);
 *	...
 *	lease_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_LEASE_H
#define UNSPIN_LOCKS_LEASE_H

#include "budget.h"

#define LEASE_NS 500000ULL
#define LEASE_NAP_NS 100000ULL
/* How long a thread that finds the lock held watches it before it sleeps. */
#define LEASE_WATCH_NS 20000ULL
/* A lock that is taken more often than this is busy, and another user would slow it down. */
#define LEASE_BUSY_NS 4000ULL
#define LEASE_BUSY_USES 4u
/* How long a wish stops the others while the lock is free: tau of VEE 2013 section 4.2. */
#define LEASE_WISH_NS 2000ULL
/* After this many uses with a thread in line, yield the CPU: the heir may be waiting for it. */
#define LEASE_USES_TO_YIELD 1024u
#define LEASE_YIELD_MASK (2 * LEASE_USES_TO_YIELD - 1)

struct lease_lock {
	union {
		atomic_uint both;
		struct {
			atomic_ushort uses;	/* odd: held; each lock and unlock adds 1 */
			atomic_ushort wish;	/* of the heir */
		};
	};
	atomic_uint line;	/* low half: the heir's number; high half: the next to be drawn */
};

_Static_assert(sizeof(struct lease_lock) == 8, "lease_lock is 8 bytes");

#define LEASE_LOCK_INIT { { 0 }, 0 }
#define LEASE_NEXT_ONE 0x10000u

enum lease_wish {
	LEASE_NO_WISH,
	LEASE_WANTED,
	LEASE_WANTED_ASLEEP,	/* a release must wake the heir */
};

/* What a thread found out by watching the lock. */
enum lease_seen {
	LEASE_GOT,	/* it has the lock now */
	LEASE_BUSY,	/* others use the lock all the time, or the heir wants it */
	LEASE_SLOW,	/* the lock is held for long at a time */
};

/*
 * In an environment whose halts have no time limit (see env.h), the heir spins instead.
 */
#ifdef LOCK_ENV_TIMED
#define LEASE_HEIR_SLEEPS true
#define lease_nap lock_wait_for
#define lease_offer_cpu lock_yield
#else
#define LEASE_HEIR_SLEEPS false
static inline void lease_nap(atomic_uint *word, unsigned int seen, unsigned int key,
			     unsigned long long ns)
{
	struct lock_budget nap = lock_budget(ns, 1);

	(void)key;
	while (atomic_load_explicit(word, memory_order_relaxed) == seen && !lock_budget_spent(&nap))
		cpu_relax();
}

static inline void lease_offer_cpu(void)
{
	cpu_relax();
}
#endif

static inline bool lease_is_locked(struct lease_lock *lock)
{
	return atomic_load_explicit(&lock->uses, memory_order_relaxed) & 1;
}

/* Takes the lock if its count of uses is @uses; acquire pairs with the release in lease_unlock(). */
static inline bool lease_take(struct lease_lock *lock, unsigned short uses)
{
	return !(uses & 1) &&
	       atomic_compare_exchange_strong_explicit(&lock->uses, &uses,
						       (unsigned short)(uses + 1),
						       memory_order_acquire, memory_order_relaxed);
}

static inline enum lease_wish lease_wish(struct lease_lock *lock)
{
	return (enum lease_wish)atomic_load_explicit(&lock->wish, memory_order_relaxed);
}

/* Also fails while the heir wants the lock. */
static inline bool lease_trylock(struct lease_lock *lock)
{
	unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

	return lease_wish(lock) == LEASE_NO_WISH && lease_take(lock, uses);
}

static inline void lease_unlock(struct lease_lock *lock)
{
	/*
	 * Read before the release, because the lock's memory may be freed after it. A wish that is
	 * made in between is missed; the heir's nap then ends by itself.
	 */
	enum lease_wish wish = lease_wish(lock);
	unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

	/* Only the holder writes `uses` while it is odd. Release pairs with lease_take(). */
	atomic_store_explicit(&lock->uses, (unsigned short)(uses + 1), memory_order_release);
	if (__builtin_expect(wish == LEASE_WANTED_ASLEEP, 0))
		lock_wake(&lock->both, 0);
}

/* Acquisitions between two counts of uses. */
static inline unsigned int lease_used(unsigned short from, unsigned short to)
{
	return (unsigned short)(to - from) / 2;
}

static inline bool lease_somebody_in_line(unsigned int line)
{
	return (line >> 16) != (line & 0xffff);
}

/* Takes the lock when it is free, unless it is so busy that another user would slow it down. */
static inline enum lease_seen lease_watch(struct lease_lock *lock)
{
	struct lock_budget budget = lock_budget(LEASE_WATCH_NS, 1);
	unsigned short from = atomic_load_explicit(&lock->uses, memory_order_relaxed);
	/* With a thread in line, the lock was busy just now: look later and less often. */
	bool line = lease_somebody_in_line(atomic_load_explicit(&lock->line, memory_order_relaxed));
	unsigned int turns = line ? 32 : 4;

	for (;;) {
		unsigned short uses;
		unsigned int turn;

		for (turn = 0; turn < turns; turn++)
			cpu_relax();
		uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);
		if (lease_used(from, uses) >= LEASE_BUSY_USES || lease_wish(lock) != LEASE_NO_WISH)
			return LEASE_BUSY;
		if (lease_take(lock, uses))
			return LEASE_GOT;
		if (lock_budget_spent(&budget))
			return LEASE_SLOW;
		if (turns < 64)
			turns *= 2;
	}
}

/* Naps until the lease is over, or the lock is not busy. */
static inline void lease_sit_out(struct lease_lock *lock, unsigned int mine)
{
	struct lock_budget lease = lock_budget(LEASE_NS, 1);
	bool busy = true;

	while (busy && !lock_budget_spent(&lease)) {
		unsigned short from = atomic_load_explicit(&lock->uses, memory_order_relaxed);
		unsigned int line = atomic_load_explicit(&lock->line, memory_order_relaxed);
		struct lock_budget allowed;

		allowed.since_ticks = lock_now();
		lease_nap(&lock->line, line, mine, LEASE_NAP_NS);
		allowed.limit_ticks = LEASE_BUSY_NS * lock_ticks_per_us() / 1000 *
			lease_used(from, atomic_load_explicit(&lock->uses, memory_order_relaxed));
		busy = !lock_budget_spent(&allowed);
	}
}

/*
 * The heir takes the lock, before all others once it is free. If it was overtaken while it slept, it
 * stays awake for longer: a woken thread may take longer to run than its wish stops the others.
 */
static inline void lease_claim(struct lease_lock *lock)
{
	unsigned long long awake_ns = LEASE_WISH_NS;
	struct lock_budget awake = lock_budget(awake_ns, 1);

	while (!lease_take(lock, atomic_load_explicit(&lock->uses, memory_order_relaxed))) {
		if (!LEASE_HEIR_SLEEPS || !lock_budget_spent(&awake)) {
			/* Repeat the wish in every turn, because others end one that seems abandoned. */
			if (lease_wish(lock) == LEASE_NO_WISH)
				atomic_store_explicit(&lock->wish, LEASE_WANTED, memory_order_relaxed);
			cpu_relax();
		} else {
			unsigned int both;

			atomic_store_explicit(&lock->wish, LEASE_WANTED_ASLEEP, memory_order_relaxed);
			both = atomic_load_explicit(&lock->both, memory_order_relaxed);
			if ((both & 1) && both >> 16 == LEASE_WANTED_ASLEEP)
				lease_nap(&lock->both, both, 0, LEASE_NAP_NS);
			if (lease_wish(lock) == LEASE_NO_WISH) {
				awake_ns *= 2;
				awake = lock_budget(awake_ns, 1);
			}
		}
	}
	atomic_store_explicit(&lock->wish, LEASE_NO_WISH, memory_order_relaxed);
}

/* Called by the heir that now holds the lock: makes the next in line the heir. */
static inline void lease_pass_on(struct lease_lock *lock, unsigned int mine)
{
	unsigned int heir = (mine + 1) & 0xffff;
	/* Only the heir changes the low half, which must not carry into the high half. */
	unsigned int line = atomic_fetch_add_explicit(&lock->line, heir ? 1 : 1 - 0x10000u,
						      memory_order_relaxed);

	if (line >> 16 != heir)
		lock_wake(&lock->line, heir);
}

static inline void lease_wait_in_line(struct lease_lock *lock, enum lease_seen seen)
{
	unsigned int line = atomic_fetch_add_explicit(&lock->line, LEASE_NEXT_ONE,
						      memory_order_relaxed);
	unsigned int mine = line >> 16;

	if ((line & 0xffff) != mine) {
		for (;;) {
			line = atomic_load_explicit(&lock->line, memory_order_relaxed);
			if ((line & 0xffff) == mine)
				break;
			/* The word also changes when others draw a number: then this returns and checks again. */
			lock_wait(&lock->line, line, mine);
		}
		seen = lease_watch(lock);
	}
	if (seen == LEASE_BUSY)
		lease_sit_out(lock, mine);
	if (seen != LEASE_GOT)
		lease_claim(lock);
	lease_pass_on(lock, mine);
}

/*
 * Lets an heir that wants the lock go first. Returns true if the heir did not come, and ends its wish.
 */
static inline bool lease_wish_lapsed(struct lease_lock *lock)
{
	struct lock_budget budget = lock_budget(LEASE_WISH_NS, 1);
	bool offered = false;

	for (;;) {
		unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);

		if ((both & 1) || both >> 16 == LEASE_NO_WISH)
			return false;
		if (!lock_budget_spent(&budget)) {
			cpu_relax();
		} else if (!offered) {
			offered = true;
			lease_offer_cpu();
		} else {
			atomic_store_explicit(&lock->wish, LEASE_NO_WISH, memory_order_relaxed);
			return true;
		}
	}
}

/* The lock is held, or the heir wants it, or it is time to yield the CPU. */
static __attribute__((noinline)) void lease_lock_slow(struct lease_lock *lock)
{
	enum lease_seen seen = LEASE_BUSY;

	if (lease_wish(lock) == LEASE_NO_WISH || lease_wish_lapsed(lock)) {
		unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

		if (!(uses & LEASE_YIELD_MASK) &&
		    lease_somebody_in_line(atomic_load_explicit(&lock->line, memory_order_relaxed)))
			lease_offer_cpu();
		if (lease_take(lock, uses))
			return;
		seen = lease_watch(lock);
	}
	if (seen != LEASE_GOT)
		lease_wait_in_line(lock, seen);
}

static inline void lease_lock(struct lease_lock *lock)
{
	unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

	if (__builtin_expect(lease_wish(lock) == LEASE_NO_WISH && (uses & LEASE_YIELD_MASK) &&
			     lease_take(lock, uses), 1))
		return;
	lease_lock_slow(lock);
}

#endif
