/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * lease: the threads that use the lock keep it for a time; the others sleep in line for their turn.
 *
 * A busy lock is fastest when few threads pass it among themselves. It is delayed by a holder, or a
 * next waiter, that has no CPU. So a thread that sees others take the lock twice while it waits, or that
 * has waited for 20 us, draws a number and sleeps. One that comes while the lock is wanted, or while the
 * heir has it, does so at once. Only the first in line, the heir, is awake at times. If the lock is busy,
 * the heir sleeps for a lease of 30 us and then asks for the lock with a wish that stops the others. If
 * the lock is held for long at a time, the heir asks for it at once. When it releases the lock, the next
 * in line becomes the heir. The heir's sleep ends by itself, so that no wake-up can be lost, and a release
 * is a plain store.
 *
 * Whether one thread or a few use a busy lock at a time is measured. A few are faster if much of their work
 * is outside the lock, unless the lock's cache line is slow from CPU to CPU. While the lock is shared, a
 * thread keeps using it for a turn of 75 us, more than two leases, and looks at a held lock less and less
 * often. If others are in line after 50 us, it yields the CPU; if others then ran there, it begins another
 * turn. An heir that sleeps for a lease counts the uses by the others. A user counts those in its turn if no
 * thread is in line. The faster way is kept; the other one is tried for one turn of 64.
 *
 * Sources: most waiters are passive, and admitted by time: D. Dice, "Malthusian locks", EuroSys 2017;
 *         D. Dice, A. Kogan, "Avoiding scalability collapse by restricting concurrency", Euro-Par
 *         2019 (GCR). One heir that competes: D. Dice, "Competitive succession" in Java's monitors. A
 *         waiter that measures its wait and then gets the lock handed over: Go's sync.Mutex (after 1 ms)
 *         and Linux's rw_semaphore (4 ms). A wish that lapses when its owner does not run, instead of a
 *         queue that waits for it: J. Ouyang, J. Lange, VEE 2013, section 4.1. Count of uses in the word
 *         that is stored at release: preemptable.h.
 * Size:   8 bytes; at most 65,535 threads may wait at a time. With more of them, threads in line
 *         may wait for ever; still one thread at a time holds the lock.
 * Order:  threads in line get the lock first come, first served. If the heir gets a CPU, and no wish
 *         lapses, each gets it within a wake-up, 20 us of watching, a lease and a critical section after
 *         the one before it has released it. Threads that are not in line may overtake them meanwhile.
 * A preempted waiter delays no other thread: a sleeping one is not preempted, and if an heir asks for
 *         the lock and does not run, the others overtake it after tau (2 us, VEE 2013 section 4.2). But
 *         the line behind an heir without a CPU waits for it. A preempted holder delays all. Where the
 *         kernel extends time slices (Linux 7.0, slice_linux.h), the holder asks for it.
 *
 *	static struct unspin_lease_lock lock = UNSPIN_LEASE_LOCK_INIT;
 *
 *	unspin_lease_lock(&lock);
 *	...
 *	unspin_lease_unlock(&lock);
 */
#ifndef UNSPIN_LOCKS_LEASE_H
#define UNSPIN_LOCKS_LEASE_H

#include "lease_turn.h"

/* How long the heir of a busy lock sleeps before it wants the lock. */
#define UNSPIN_LEASE_NS 30000ULL
/*
 * How long the heir sleeps at a time while it wants the lock. A release wakes it earlier. While nothing changes,
 * each nap is twice as long as the one before, so that a lock that is held for long costs little: naps of 100 us
 * take 10 % of a CPU, those of 1.6 ms 1 %. Seldom a release misses a sleeping heir. Then the lock stays free for
 * the rest of the nap.
 */
#define UNSPIN_LEASE_NAP_NS 100000ULL
#define UNSPIN_LEASE_NAP_MAX_NS 1600000ULL
/* How long a thread that finds the lock held watches it before it sleeps; an heir, before it asks. */
#define UNSPIN_LEASE_WATCH_NS 20000ULL
/* A lock that others take so often while a thread watches it is busy: another user may slow it down. */
#define UNSPIN_LEASE_BUSY_USES 2u
/* Of a shared lock, for a thread in its turn. */
#define UNSPIN_LEASE_SHARED_BUSY_USES 256u
/* Pauses between two looks at a shared lock. Each look takes the cache line from the holder. */
#define UNSPIN_LEASE_PAUSES_MIN 4u
#define UNSPIN_LEASE_PAUSES_MAX 16u
/* How long a wish stops the others while the lock is free: tau of VEE 2013 section 4.2. */
#define UNSPIN_LEASE_WISH_NS 2000ULL
/* After so many uses, a user looks whether it is time to. */
#define UNSPIN_LEASE_USES_TO_YIELD 256u
#define UNSPIN_LEASE_YIELD_MASK (2 * UNSPIN_LEASE_USES_TO_YIELD - 1)

_Static_assert(sizeof(struct unspin_lease_lock) == 8, "unspin_lease_lock is 8 bytes");

/* What a thread found out by watching the lock. */
enum unspin_lease_seen {
	UNSPIN_LEASE_GOT,	/* it has the lock now */
	UNSPIN_LEASE_BUSY,	/* others use the lock all the time, or the heir wants it */
	UNSPIN_LEASE_SLOW,	/* the lock is held for long at a time */
};

/* Changes the wish if it is @from. Only an heir that has taken the lock may do it otherwise. */
static inline void unspin_lease_change_wish(struct unspin_lease_lock *lock, enum unspin_lease_wish from,
					    enum unspin_lease_wish to)
{
	unsigned short wish = atomic_load_explicit(&lock->wish, memory_order_relaxed);

	/* Again if a bit beside the wish changes: a wish of a thread that is gone would make trylock() fail. */
	while ((wish & UNSPIN_LEASE_WISH_MASK) == from &&
	       !atomic_compare_exchange_strong_explicit(&lock->wish, &wish, (unsigned short)(wish ^ from ^ to),
							memory_order_relaxed, memory_order_relaxed))
		continue;
}

static inline bool unspin_lease_is_locked(struct unspin_lease_lock *lock)
{
	return atomic_load_explicit(&lock->uses, memory_order_relaxed) & 1;
}

/* Takes the lock if its count of uses is @uses; acquire pairs with the release in unspin_lease_unlock(). */
static inline bool unspin_lease_take(struct unspin_lease_lock *lock, unsigned short uses)
{
	return !(uses & 1) &&
	       atomic_compare_exchange_strong_explicit(&lock->uses, &uses,
						       (unsigned short)(uses + 1),
						       memory_order_acquire, memory_order_relaxed);
}

/* Also fails while another thread wants the lock. */
static inline bool unspin_lease_trylock(struct unspin_lease_lock *lock)
{
	unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

	if (unspin_lease_is_wanted(lock) || !unspin_lease_take(lock, uses))
		return false;
	unspin_lock_hold();
	return true;
}

/* Called by the holder that is the heir: makes the next in line the heir, @heir. Returns whether to wake it. */
static inline bool unspin_lease_pass_on(struct unspin_lease_lock *lock, unsigned int *heir)
{
	unsigned int line = atomic_load_explicit(&lock->line, memory_order_relaxed);

	*heir = (line + 1) & 0xffff;
	/* Only the heir changes the low half, which must not carry into the high half. */
	line = atomic_fetch_add_explicit(&lock->line, *heir ? 1 : 1 - 0x10000u, memory_order_relaxed);
	/* The wish of a thread with a limit stands. */
	atomic_fetch_and_explicit(&lock->wish, (unsigned short)~UNSPIN_LEASE_PASSING, memory_order_relaxed);
	return line >> 16 != *heir;
}

/*
 * A thread is woken after the release, not before: to wake one on an idle CPU of a VM may take longer than the
 * lock is held. The lock's memory may be freed after the release, so all that is read is read before it. A wish
 * that is made in between is missed; the heir's nap then ends by itself.
 */
static __attribute__((noinline)) void unspin_lease_unlock_slow(struct unspin_lease_lock *lock,
								unsigned short wish, unsigned short uses)
{
	unsigned int heir = 0;
	bool next = (wish & UNSPIN_LEASE_PASSING) && unspin_lease_pass_on(lock, &heir);

	atomic_store_explicit(&lock->uses, (unsigned short)(uses + 1), memory_order_release);
	unspin_lock_let_go();
	if (next)
		unspin_lock_wake(&lock->line, heir);
	if (wish & UNSPIN_LEASE_WANTED_ASLEEP)
		unspin_lock_wake(&lock->both, 0);
}

static inline void unspin_lease_unlock(struct unspin_lease_lock *lock)
{
	unsigned short wish = atomic_load_explicit(&lock->wish, memory_order_relaxed);
	unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

	if (__builtin_expect(wish & (UNSPIN_LEASE_WANTED_ASLEEP | UNSPIN_LEASE_PASSING), 0)) {
		unspin_lease_unlock_slow(lock, wish, uses);
		return;
	}
	/* Only the holder writes `uses` while it is odd. Release pairs with unspin_lease_take(). */
	atomic_store_explicit(&lock->uses, (unsigned short)(uses + 1), memory_order_release);
	unspin_lock_let_go();
}

static inline bool unspin_lease_somebody_in_line(unsigned int line)
{
	return (line >> 16) != (line & 0xffff);
}

/*
 * Lets an heir that wants the lock go first. Returns true if the heir did not come, and ends its wish.
 */
static inline bool unspin_lease_wish_lapsed(struct unspin_lease_lock *lock)
{
	struct unspin_lock_budget budget = unspin_lock_budget(UNSPIN_LEASE_WISH_NS, 1);
	bool offered = false;

	for (;;) {
		unsigned int both = atomic_load_explicit(&lock->both, memory_order_relaxed);
		enum unspin_lease_wish wish = (enum unspin_lease_wish)(both >> 16 & UNSPIN_LEASE_WISH_MASK);

		if ((both & 1) || wish == UNSPIN_LEASE_NO_WISH)
			return false;
		if (!unspin_lock_budget_spent(&budget)) {
			unspin_cpu_relax();
		} else if (!offered) {
			offered = true;
			unspin_lease_yield();
		} else {
			unspin_lease_change_wish(lock, wish, UNSPIN_LEASE_NO_WISH);
			return true;
		}
	}
}

/*
 * Takes the lock when it is free and the heir does not want it, unless it is so busy that another user may slow
 * it down. A thread in its turn (@in_turn) has a right to a part of a busy lock.
 */
static inline enum unspin_lease_seen unspin_lease_watch(struct unspin_lease_lock *lock, bool in_turn)
{
	struct unspin_lock_budget budget;
	unsigned short from = atomic_load_explicit(&lock->uses, memory_order_relaxed);
	unsigned int busy_uses = in_turn ? UNSPIN_LEASE_SHARED_BUSY_USES : UNSPIN_LEASE_BUSY_USES;
	unsigned int pauses = in_turn ? UNSPIN_LEASE_PAUSES_MIN : 1, pause;

	/*
	 * As if the holder had just released it. If it has not, its release is still faster: the cache line
	 * is then this CPU's alone, and not shared by both.
	 */
	if (!unspin_lease_is_wanted(lock) && unspin_lease_take(lock, (unsigned short)(from + (from & 1))))
		return UNSPIN_LEASE_GOT;
	budget = unspin_lock_budget(UNSPIN_LEASE_WATCH_NS, 1);
	for (;;) {
		unsigned short uses;

		for (pause = 0; pause < pauses; pause++)
			unspin_cpu_relax();
		if (in_turn && pauses < UNSPIN_LEASE_PAUSES_MAX)
			pauses *= 2;
		uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);
		if (unspin_lease_used(from, uses) >= busy_uses)
			return UNSPIN_LEASE_BUSY;
		if (!unspin_lease_is_wanted(lock)) {
			if (unspin_lease_take(lock, uses))
				return UNSPIN_LEASE_GOT;
		} else if (!in_turn) {
			return UNSPIN_LEASE_BUSY;
		} else {
			unspin_lease_wish_lapsed(lock);
		}
		if (unspin_lock_budget_spent(&budget))
			return UNSPIN_LEASE_SLOW;
	}
}

/* Sleeps until the lease is over. A nap returns at once if another thread draws a number before it. */
static inline void unspin_lease_sit_out(struct unspin_lease_lock *lock, unsigned int mine)
{
	struct unspin_lock_budget lease = unspin_lock_budget(UNSPIN_LEASE_NS, 1);

	do
		unspin_lease_nap(&lock->line, atomic_load_explicit(&lock->line, memory_order_relaxed),
				 mine, UNSPIN_LEASE_NS);
	while (!unspin_lock_budget_spent(&lease));
}

/*
 * Takes the lock, before all others once it is free: for the heir, and for threads with a limit (null: none). If
 * such a thread was overtaken while it slept, it stays awake for longer: a woken thread may take longer to run
 * than its wish stops the others. False: the limit is over.
 *
 * Several threads may want the lock at a time. One of them that takes it, or gives up, ends the wish of all. The
 * others repeat it in their next turn, or after their nap.
 */
static inline bool unspin_lease_claim(struct unspin_lease_lock *lock, const struct unspin_lock_budget *limit)
{
	unsigned long long awake_ns = UNSPIN_LEASE_WISH_NS, nap_ns = UNSPIN_LEASE_NAP_NS;
	struct unspin_lock_budget awake = unspin_lock_budget(awake_ns, 1);
	bool got;

	while (!(got = unspin_lease_take(lock, atomic_load_explicit(&lock->uses, memory_order_relaxed)))) {
		if (limit && unspin_lock_budget_spent(limit))
			break;
		if (!UNSPIN_LEASE_HEIR_SLEEPS || !unspin_lock_budget_spent(&awake)) {
			/* Repeat the wish in every turn, because others end one that seems abandoned. */
			unspin_lease_change_wish(lock, UNSPIN_LEASE_NO_WISH, UNSPIN_LEASE_WANTED);
			unspin_cpu_relax();
		} else {
			unsigned int both, after;

			unspin_lease_change_wish(lock, UNSPIN_LEASE_NO_WISH, UNSPIN_LEASE_WANTED_ASLEEP);
			unspin_lease_change_wish(lock, UNSPIN_LEASE_WANTED, UNSPIN_LEASE_WANTED_ASLEEP);
			both = atomic_load_explicit(&lock->both, memory_order_relaxed);
			if ((both & 1) && (both >> 16 & UNSPIN_LEASE_WISH_MASK) == UNSPIN_LEASE_WANTED_ASLEEP) {
				unspin_lease_nap(&lock->both, both, 0, nap_ns);
				if (!limit && nap_ns < UNSPIN_LEASE_NAP_MAX_NS)
					nap_ns *= 2;
			}
			after = atomic_load_explicit(&lock->both, memory_order_relaxed);
			if (after != both)
				nap_ns = UNSPIN_LEASE_NAP_NS;
			if ((after >> 16 & UNSPIN_LEASE_WISH_MASK) == UNSPIN_LEASE_NO_WISH &&
			    ((after ^ both) & 0xffff)) {
				awake_ns *= 2;
				awake = unspin_lock_budget(awake_ns, 1);
			}
		}
	}
	/* The heir stores its own wish. */
	if (!limit)
		return true;
	unspin_lease_change_wish(lock, UNSPIN_LEASE_WANTED, UNSPIN_LEASE_NO_WISH);
	unspin_lease_change_wish(lock, UNSPIN_LEASE_WANTED_ASLEEP, UNSPIN_LEASE_NO_WISH);
	/* A release wakes nobody without a wish, so a sleeping heir must repeat it. */
	if (!got)
		unspin_lock_wake(&lock->both, 0);
	return got;
}

static inline void unspin_lease_wait_in_line(struct unspin_lease_lock *lock, enum unspin_lease_seen seen)
{
	unsigned int line = atomic_fetch_add_explicit(&lock->line, UNSPIN_LEASE_NEXT_ONE,
						      memory_order_relaxed);
	unsigned int mine = line >> 16, sharing;

	if ((line & 0xffff) != mine) {
		for (;;) {
			line = atomic_load_explicit(&lock->line, memory_order_relaxed);
			if ((line & 0xffff) == mine)
				break;
			/* The word also changes when others draw a number: then this returns and checks again. */
			unspin_lock_wait(&lock->line, line, mine);
		}
		seen = unspin_lease_watch(lock, false);
	}
	sharing = unspin_lease_sharing(lock);
	if (seen == UNSPIN_LEASE_BUSY) {
		unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);
		unsigned long long since_ticks = unspin_lock_now();

		unspin_lease_sit_out(lock, mine);
		sharing = unspin_lease_faster(lock, sharing, uses, since_ticks, 3 * UNSPIN_LEASE_NS);
	}
	if (seen != UNSPIN_LEASE_GOT)
		unspin_lease_claim(lock, 0);
	unspin_lease_begin_turn(lock);
	atomic_store_explicit(&lock->wish, (unsigned short)(UNSPIN_LEASE_PASSING | sharing), memory_order_relaxed);
}

/* The lock is held, or the heir wants it, or it is time to look whether to yield the CPU. */
static __attribute__((noinline)) void unspin_lease_lock_slow(struct unspin_lease_lock *lock)
{
	enum unspin_lease_seen seen = UNSPIN_LEASE_BUSY;
	bool in_turn = unspin_lease_in_turn(lock);

	if (!unspin_lease_is_wanted(lock) || unspin_lease_wish_lapsed(lock) || in_turn) {
		unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);
		bool line = unspin_lease_somebody_in_line(atomic_load_explicit(&lock->line,
									       memory_order_relaxed));

		if (line)
			unspin_lease_offer_cpu(lock);
		if (!unspin_lease_is_wanted(lock) && unspin_lease_take(lock, uses))
			return;
		if (!in_turn && !line && unspin_lease_sharing(lock))
			in_turn = unspin_lease_renew_turn(lock);
		seen = unspin_lease_watch(lock, in_turn);
	}
	UNSPIN_LOCK_CONTENDED(lock);
	if (seen != UNSPIN_LEASE_GOT)
		unspin_lease_wait_in_line(lock, seen);
}

static inline void unspin_lease_lock(struct unspin_lease_lock *lock)
{
	unsigned short uses = atomic_load_explicit(&lock->uses, memory_order_relaxed);

	if (__builtin_expect(unspin_lease_is_wanted(lock) || !(uses & UNSPIN_LEASE_YIELD_MASK) ||
			     !unspin_lease_take(lock, uses), 0))
		unspin_lease_lock_slow(lock);
	unspin_lock_hold();
}

/*
 * Gives up after @ns, or up to some 0.1 ms later. Returns whether it has the lock. It does not draw a
 * number, because a number cannot be given back: it asks for the lock beside the heir, after a lease if the lock
 * is busy.
 */
static inline bool unspin_lease_lock_for(struct unspin_lease_lock *lock, unsigned long long ns)
{
	struct unspin_lock_budget limit;
	enum unspin_lease_seen seen;

	if (unspin_lease_trylock(lock))
		return true;
	UNSPIN_LOCK_CONTENDED(lock);
	limit = unspin_lock_budget(ns, 1);
	seen = unspin_lease_watch(lock, false);
	if (seen == UNSPIN_LEASE_BUSY)
		unspin_lease_sit_out(lock, 0);
	if (seen != UNSPIN_LEASE_GOT && !unspin_lease_claim(lock, &limit))
		return false;
	unspin_lock_hold();
	return true;
}

#endif
