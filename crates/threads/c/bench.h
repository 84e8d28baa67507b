/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What bench.c and crates/threads/src/bench.rs share. */
#ifndef UNSPIN_THREADS_BENCH_H
#define UNSPIN_THREADS_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../../../locks/env_cpu.h"

#define BENCH_BUCKETS 48	/* waits of [2^b, 2^(b+1)) ticks */

struct bench_config {
	unsigned int threads;		/* at least 1 */
	unsigned int cpus;		/* thread i is pinned to CPU i modulo this */
	unsigned int critical_iterations;
	unsigned int outside_iterations;
	unsigned int warmup_ms;
	unsigned int window_ms;
	unsigned int waits;		/* not 0: time every wait (two reads of the clock a turn) */
};

struct bench_thread {
	unsigned long all;		/* acquisitions since the start */
	unsigned long acquisitions;	/* those in the window */
	unsigned long wait_hist[BENCH_BUCKETS];
};

static inline unsigned long long bench_ticks(void)
{
	return lock_cpu_ticks();
}

static inline unsigned int bench_bucket(unsigned long long ticks)
{
	unsigned int bucket = 63 - (unsigned int)__builtin_clzll(ticks | 1);

	return bucket < BENCH_BUCKETS ? bucket : BENCH_BUCKETS - 1;
}

/* Peers that need more than zeroed memory say how. */
#ifndef BENCH_INIT
#define BENCH_INIT(lock) ((void)(lock))
#endif

/*
 * Runs one measurement; @out has config->threads entries. 0, or an errno: EPROTO when the lock let two
 * threads in at a time.
 */
int BENCH(const struct bench_config *config, struct bench_thread *out,
	  unsigned long long *window_ns);

#endif
