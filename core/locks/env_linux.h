/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The environment of a Linux program: halting is futex(2), the clock is the time-stamp counter.
 *
 * The futexes are private to the process, unless UNSPIN_LOCK_LINUX_FUTEX is defined to be 0. Nothing here
 * needs a constructor: the first wait that needs the counter's rate measures it. errno is preserved.
 */
#ifndef UNSPIN_LOCKS_ENV_LINUX_H
#define UNSPIN_LOCKS_ENV_LINUX_H

#ifdef __cplusplus
#error "the locks are C11: call them from a C file of the program"
#endif
#if defined(__STRICT_ANSI__) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#error "-std=c11 hides syscall(): compile with -std=gnu11, or define _DEFAULT_SOURCE"
#endif

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "env_cpu.h"

/* Define it to 0 if locks may be shared between processes, so that a wake-up finds all waiters. */
#ifndef UNSPIN_LOCK_LINUX_FUTEX
#define UNSPIN_LOCK_LINUX_FUTEX FUTEX_PRIVATE_FLAG
#endif

static inline void unspin_cpu_relax(void)
{
	unspin_lock_cpu_pause();
}

static inline unsigned long long unspin_lock_now(void)
{
	return unspin_lock_cpu_ticks();
}

static inline unsigned long long unspin_lock_linux_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

/* One per program; 0: not measured yet. */
__attribute__((weak, visibility("hidden"))) atomic_uint unspin_lock_linux_ticks_per_us;

/*
 * Reads both clocks as a pair. The rate needs two pairs at least 20 us apart. Of several tries the
 * shortest one is taken, because no preemption came between its two readings.
 */
static inline void unspin_lock_linux_read_pair(unsigned long long *ticks, unsigned long long *ns)
{
	unsigned long long best = ~0ULL;
	int turn;

	for (turn = 0; turn < 4; turn++) {
		unsigned long long before = unspin_lock_cpu_ticks();
		unsigned long long clock_ns = unspin_lock_linux_clock_ns();
		unsigned long long took = unspin_lock_cpu_ticks() - before;

		if (took < best) {
			best = took;
			*ticks = before + took / 2;
			*ns = clock_ns;
		}
	}
}

static inline unsigned int unspin_lock_linux_measure(void)
{
	unsigned long long ticks0 = 0, ticks1 = 0, ns0 = 0, ns1 = 0, rate;

	unspin_lock_linux_read_pair(&ticks0, &ns0);
	while (unspin_lock_linux_clock_ns() - ns0 < 20000)
		unspin_lock_cpu_pause();
	unspin_lock_linux_read_pair(&ticks1, &ns1);
	rate = (ticks1 - ticks0) * 1000 / (ns1 - ns0);
	return rate ? (unsigned int)rate : 1;
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	unsigned int rate = atomic_load_explicit(&unspin_lock_linux_ticks_per_us, memory_order_relaxed);

	if (__builtin_expect(!rate, 0)) {
		rate = unspin_lock_linux_measure();
		atomic_store_explicit(&unspin_lock_linux_ticks_per_us, rate, memory_order_relaxed);
	}
	return rate;
}

#define UNSPIN_LOCK_ENV_TIMED

static inline void unspin_lock_yield(void)
{
	sched_yield();
}

/* FUTEX_WAKE_BITSET picks by mask: keys that are equal modulo 32 share a bit. */
static inline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET | UNSPIN_LOCK_LINUX_FUTEX, seen, NULL, NULL,
		1u << (key & 31));
	errno = saved;
}

/* FUTEX_WAIT_BITSET's time limit is a point in time. */
static inline void unspin_lock_wait_for(atomic_uint *word, unsigned int seen, unsigned int key,
					unsigned long long ns)
{
	int saved = errno;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += (unsigned long long)until.tv_nsec;
	until.tv_sec += (time_t)(ns / 1000000000);
	until.tv_nsec = (long)(ns % 1000000000);
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET | UNSPIN_LOCK_LINUX_FUTEX, seen, &until, NULL,
		1u << (key & 31));
	errno = saved;
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE_BITSET | UNSPIN_LOCK_LINUX_FUTEX, INT_MAX, NULL, NULL,
		1u << (key & 31));
	errno = saved;
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE | UNSPIN_LOCK_LINUX_FUTEX, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

#endif
