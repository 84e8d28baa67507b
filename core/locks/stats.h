/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * With UNSPIN_LOCK_STATS: statistics of waits. The locks contain no code for it. Waits are watched through
 * unspin_cpu_relax(), which every lock calls in every turn of a wait, and the user of a lock reports when it
 * asks for it, has it and releases it.
 *
 * Paper:  VEE 2013. Table 1: a stall is more than 1 us in which a waiter sees the lock neither taken nor
 *         released; a lock held meanwhile has a preempted holder, a free one a preempted waiter next in
 *         line. Section 4.3: an overtake is an acquisition by one that asked later; after its waiter is
 *         rescheduled, the chance that it has the lock after x of them is x / R, with R waiters preempted.
 * Limits: a thread that makes no turn for 20 us counts as without a CPU, whether it is preempted or
 *         asleep. Of two threads that ask at the same time, either may count as the later one. Watching
 *         takes time, so rates measured with it are not those of the lock.
 */
#ifndef UNSPIN_LOCKS_STATS_H
#define UNSPIN_LOCKS_STATS_H

#include <string.h>

#define UNSPIN_LOCK_STATS_THREADS_MAX 64
#define UNSPIN_LOCK_STATS_STALL_US 1u		/* Table 1 */
#define UNSPIN_LOCK_STATS_OFF_US 20u
#define UNSPIN_LOCK_STATS_BUCKETS 48
#define UNSPIN_LOCK_STATS_SHARES 11

/* Of one thread, or of all. */
struct unspin_lock_stats_counts {
	unsigned long acquisitions;	/* N */
	unsigned long stalls_held;	/* N_h */
	unsigned long stalls_free;	/* N_w */
	/* Overtakes, by the state of the waiter. */
	unsigned long overtakes_running;	/* had been running all the time */
	unsigned long overtakes_off;	/* had no CPU: before rescheduling */
	unsigned long overtakes_back;	/* after rescheduling */
	/* Waits whose waiter was rescheduled; of these, by x / R: 0, up to 0.1, ... 0.9, more. */
	unsigned long returned;
	unsigned long by_share[UNSPIN_LOCK_STATS_SHARES];
	unsigned long waits[UNSPIN_LOCK_STATS_BUCKETS];	/* bucket b: [2^b, 2^(b+1)) ticks */
	unsigned long violations[UNSPIN_LOCK_STATS_BUCKETS];	/* waits, by overtakes: 0, then [2^(b-1), 2^b) */
};

/* The state of a waiter that other threads read. */
struct unspin_lock_stats_slot {
	struct unspin_lock_stats *stats;
	atomic_ulong asked;		/* its place among all requests, from 1; 0: it does not wait */
	atomic_ullong seen_ticks;	/* its last turn */
	atomic_bool back;		/* it has been rescheduled in this wait */
	atomic_ulong running, off, after;	/* overtakes in this wait; written only by holders */
	/* Its own. */
	unsigned long others_off, version;
	unsigned long long since_ticks, version_ticks;
	struct unspin_lock_stats_counts counts;
} __attribute__((aligned(2 * UNSPIN_LOCK_CACHELINE_BYTES)));

struct unspin_lock_stats {
	atomic_ulong requests;
	atomic_ulong version;	/* of the lock: counts acquisitions and releases */
	atomic_ulong stalled;	/* 1 + the version whose stall is counted */
	atomic_bool held;
	unsigned int threads;
	unsigned long long stall_ticks, off_ticks;
	struct unspin_lock_stats_slot slots[UNSPIN_LOCK_STATS_THREADS_MAX];
};

/* The slot of this thread; NULL: it is not counted. */
static _Thread_local struct unspin_lock_stats_slot *unspin_lock_stats_self;

#define UNSPIN_LOCK_STATS_GET(from) atomic_load_explicit(&(from), memory_order_relaxed)
#define UNSPIN_LOCK_STATS_SET(to, value) atomic_store_explicit(&(to), (value), memory_order_relaxed)

/* For @threads threads, numbered from 0. False: too many. */
static inline bool unspin_lock_stats_init(struct unspin_lock_stats *stats, unsigned int threads)
{
	memset(stats, 0, sizeof(*stats));
	stats->threads = threads;
	stats->stall_ticks = (unsigned long long)unspin_lock_ticks_per_us() * UNSPIN_LOCK_STATS_STALL_US;
	stats->off_ticks = (unsigned long long)unspin_lock_ticks_per_us() * UNSPIN_LOCK_STATS_OFF_US;
	return threads <= UNSPIN_LOCK_STATS_THREADS_MAX;
}

/* Makes the calling thread number @index. */
static inline void unspin_lock_stats_join(struct unspin_lock_stats *stats, unsigned int index)
{
	unspin_lock_stats_self = &stats->slots[index];
	unspin_lock_stats_self->stats = stats;
}

static inline bool unspin_lock_stats_is_off(const struct unspin_lock_stats *stats,
					    struct unspin_lock_stats_slot *slot,
					    unsigned long long now)
{
	unsigned long long seen = UNSPIN_LOCK_STATS_GET(slot->seen_ticks);

	return now > seen && now - seen > stats->off_ticks;
}

static inline void unspin_lock_stats_count_off(struct unspin_lock_stats_slot *self, unsigned long long now)
{
	struct unspin_lock_stats *stats = self->stats;
	unsigned int i;

	self->others_off = 1;	/* itself, until now */
	for (i = 0; i < stats->threads; i++) {
		struct unspin_lock_stats_slot *slot = &stats->slots[i];

		if (slot != self && UNSPIN_LOCK_STATS_GET(slot->asked) && unspin_lock_stats_is_off(stats, slot, now))
			self->others_off++;
	}
}

/* Notes that the thread runs. Returns whether it was without a CPU since the last call. */
static inline bool unspin_lock_stats_look(struct unspin_lock_stats_slot *self, unsigned long long now)
{
	bool was_off = unspin_lock_stats_is_off(self->stats, self, now);

	if (was_off && !UNSPIN_LOCK_STATS_GET(self->back)) {
		unspin_lock_stats_count_off(self, now);
		UNSPIN_LOCK_STATS_SET(self->back, true);
	}
	UNSPIN_LOCK_STATS_SET(self->seen_ticks, now);
	return was_off;
}

/* Called in every turn of a wait. */
static inline void unspin_lock_stats_turn(void)
{
	struct unspin_lock_stats_slot *self = unspin_lock_stats_self;
	struct unspin_lock_stats *stats;
	unsigned long long now;
	unsigned long version;

	if (!self || !UNSPIN_LOCK_STATS_GET(self->asked))
		return;
	stats = self->stats;
	now = unspin_lock_now();
	version = UNSPIN_LOCK_STATS_GET(stats->version);
	/* A thread without a CPU cannot tell whether the lock stood still. */
	if (unspin_lock_stats_look(self, now) || version != self->version) {
		self->version = version;
		self->version_ticks = now;
	} else if (now - self->version_ticks > stats->stall_ticks &&
		   UNSPIN_LOCK_STATS_GET(stats->stalled) != version + 1 &&
		   atomic_exchange_explicit(&stats->stalled, version + 1,
					    memory_order_relaxed) != version + 1) {
		if (UNSPIN_LOCK_STATS_GET(stats->held))
			self->counts.stalls_held++;
		else
			self->counts.stalls_free++;
	}
}

/* Call before asking for the lock. */
static inline void unspin_lock_stats_ask(void)
{
	struct unspin_lock_stats_slot *self = unspin_lock_stats_self;

	self->since_ticks = self->version_ticks = unspin_lock_now();
	self->version = UNSPIN_LOCK_STATS_GET(self->stats->version);
	UNSPIN_LOCK_STATS_SET(self->seen_ticks, self->since_ticks);
	UNSPIN_LOCK_STATS_SET(self->back, false);
	UNSPIN_LOCK_STATS_SET(self->running, 0);
	UNSPIN_LOCK_STATS_SET(self->off, 0);
	UNSPIN_LOCK_STATS_SET(self->after, 0);
	/* Release pairs with the acquire in unspin_lock_stats_pass_by(). */
	atomic_store_explicit(&self->asked, 1 + atomic_fetch_add_explicit(&self->stats->requests, 1,
									  memory_order_relaxed),
			      memory_order_release);
}

/* The holder has overtaken all threads that asked before it and still wait. */
static inline void unspin_lock_stats_pass_by(struct unspin_lock_stats_slot *self, unsigned long mine,
					     unsigned long long now)
{
	struct unspin_lock_stats *stats = self->stats;
	unsigned int i;

	for (i = 0; i < stats->threads; i++) {
		struct unspin_lock_stats_slot *slot = &stats->slots[i];
		unsigned long asked = atomic_load_explicit(&slot->asked, memory_order_acquire);
		atomic_ulong *of;

		if (!asked || asked >= mine)
			continue;
		of = unspin_lock_stats_is_off(stats, slot, now) ? &slot->off :
		     UNSPIN_LOCK_STATS_GET(slot->back) ? &slot->after : &slot->running;
		UNSPIN_LOCK_STATS_SET(*of, UNSPIN_LOCK_STATS_GET(*of) + 1);
	}
}

static inline unsigned int unspin_lock_stats_power(unsigned long long value)
{
	return 63 - (unsigned int)__builtin_clzll(value | 1);
}

/* Call once the lock is held. */
static inline void unspin_lock_stats_got(void)
{
	struct unspin_lock_stats_slot *self = unspin_lock_stats_self;
	struct unspin_lock_stats_counts *counts = &self->counts;
	unsigned long long now = unspin_lock_now();
	unsigned long mine = UNSPIN_LOCK_STATS_GET(self->asked);
	unsigned long running, off, after, all;

	unspin_lock_stats_look(self, now);
	UNSPIN_LOCK_STATS_SET(self->asked, 0);
	UNSPIN_LOCK_STATS_SET(self->stats->held, true);
	UNSPIN_LOCK_STATS_SET(self->stats->version, UNSPIN_LOCK_STATS_GET(self->stats->version) + 1);
	unspin_lock_stats_pass_by(self, mine, now);
	counts->acquisitions++;
	counts->waits[unspin_lock_stats_power(now - self->since_ticks) % UNSPIN_LOCK_STATS_BUCKETS]++;
	running = UNSPIN_LOCK_STATS_GET(self->running);
	off = UNSPIN_LOCK_STATS_GET(self->off);
	after = UNSPIN_LOCK_STATS_GET(self->after);
	all = running + off + after;
	counts->violations[all ? 1 + unspin_lock_stats_power(all) % (UNSPIN_LOCK_STATS_BUCKETS - 1) : 0]++;
	counts->overtakes_running += running;
	counts->overtakes_off += off;
	counts->overtakes_back += after;
	if (UNSPIN_LOCK_STATS_GET(self->back)) {
		unsigned long tenths = (10 * after + self->others_off - 1) / self->others_off;

		counts->returned++;
		counts->by_share[tenths < UNSPIN_LOCK_STATS_SHARES ? tenths : UNSPIN_LOCK_STATS_SHARES - 1]++;
	}
}

/* Call before releasing the lock. */
static inline void unspin_lock_stats_release(void)
{
	struct unspin_lock_stats *stats = unspin_lock_stats_self->stats;

	UNSPIN_LOCK_STATS_SET(stats->held, false);
	UNSPIN_LOCK_STATS_SET(stats->version, UNSPIN_LOCK_STATS_GET(stats->version) + 1);
}

/* Adds up the counts of all threads, once they have ended. */
static inline void unspin_lock_stats_sum(const struct unspin_lock_stats *stats, struct unspin_lock_stats_counts *sum)
{
	unsigned int i;
	size_t word;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < stats->threads; i++)
		for (word = 0; word < sizeof(*sum) / sizeof(unsigned long); word++)
			((unsigned long *)sum)[word] +=
				((const unsigned long *)&stats->slots[i].counts)[word];
}

static inline void unspin_lock_stats_cpu_relax(void)
{
	unspin_lock_stats_turn();
	unspin_cpu_relax();
}

#define unspin_cpu_relax unspin_lock_stats_cpu_relax

#endif
