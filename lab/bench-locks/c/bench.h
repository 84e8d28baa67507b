/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What bench.c and src/bench.rs share. */
#ifndef UNSPIN_BENCH_LOCKS_BENCH_H
#define UNSPIN_BENCH_LOCKS_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../../../core/locks/env_cpu.h"

/*
 * A wait's bucket: 16 to each power of two (a width of 1/16 at most), single ticks below 16. The last
 * is for all waits of 2^43 ticks and more.
 */
#define BENCH_SUB_BITS 4
#define BENCH_SUB (1u << BENCH_SUB_BITS)
#define BENCH_BUCKETS (40 * BENCH_SUB)

struct bench_config {
	unsigned int threads;		/* at least 1 */
	unsigned int cpus;		/* thread i is pinned to CPU i modulo this; 0: to none */
	unsigned int critical_iterations;
	unsigned int outside_iterations;
	unsigned int warmup_ms;
	unsigned int window_ms;
	unsigned int waits;		/* not 0: time every wait (two reads of the clock a turn) */
	unsigned int locks;		/* at least 1: each turn draws one of so many */
	/*
	 * Not 0, open loop: requests of a thread fall due this far apart on average, whether or not the
	 * ones before are done. A wait begins when its request falls due. Else, closed loop: a thread asks
	 * again after its work outside.
	 */
	unsigned int gap_us;
	/* Not 0: threads with even numbers fill a queue of so many places and the others empty it. */
	unsigned int places;
	unsigned int busy;		/* threads beside that only compute, pinned to CPUs in turn */
	/*
	 * Not 0: all threads are SCHED_RR, so that no program of another class runs in the window. They take
	 * turns on a CPU by slices of sched_rr_timeslice_ms, and a thread that wakes waits for its turn.
	 */
	unsigned int realtime;
};

struct bench_thread {
	unsigned long all;		/* turns since the start */
	unsigned long acquisitions;	/* those in the window */
	unsigned long unfinished;	/* 1: it waits at the window's end, as long as wait_hist counts it */
	unsigned long wait_hist[BENCH_BUCKETS];
};

/* The measuring time by both clocks, and the CPU time of the threads that use the lock. */
struct bench_window {
	unsigned long long ns;
	unsigned long long ticks;
	unsigned long long cpu_ns;
};

static inline unsigned long long bench_ticks(void)
{
	return unspin_lock_cpu_ticks();
}

static inline unsigned int bench_bucket(unsigned long long ticks)
{
	unsigned int power, bucket;

	if (ticks < BENCH_SUB)
		return (unsigned int)ticks;
	power = 63 - (unsigned int)__builtin_clzll(ticks);
	bucket = (power - BENCH_SUB_BITS) * BENCH_SUB +
		 (unsigned int)(ticks >> (power - BENCH_SUB_BITS));
	return bucket < BENCH_BUCKETS ? bucket : BENCH_BUCKETS - 1;
}

/* Peers that need more than zeroed memory say how. */
#ifndef BENCH_INIT
#define BENCH_INIT(lock) ((void)(lock))
#endif

struct unspin_lock_stats_counts;

/*
 * Runs one measurement; @out has config->threads entries. 0, or an errno: EPROTO when the lock let two
 * threads in at a time. With UNSPIN_LOCK_STATS, @counts of the whole run, E2BIG for too many threads.
 */
int BENCH(const struct bench_config *config, struct bench_thread *out,
	  struct bench_window *window, struct unspin_lock_stats_counts *counts);

#endif
