/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A Linux program that yields the CPU in every turn of a wait, so that first-come locks make
 * progress on few CPUs. With HASTY every budget is over after some cycles, so that waiters time out
 * and halt all the time. With SPENT every budget is spent before the waiter has checked once, as on
 * a host that preempts it each time: an hour passes from each reading of the clock to the next.
 */
#include <sched.h>

#if defined(HASTY) || defined(SPENT)
#define SHORT_OF_TIME
#endif

#define unspin_cpu_relax lock_linux_cpu_relax
#ifdef SPENT
#define unspin_lock_now lock_linux_now
#endif
#ifdef SHORT_OF_TIME
#define unspin_lock_ticks_per_us lock_linux_measured_ticks_per_us
#define unspin_lock_wait_for lock_linux_wait_for
#endif
#include "env_linux.h"
#undef unspin_cpu_relax
#undef unspin_lock_now
#undef unspin_lock_ticks_per_us
#undef unspin_lock_wait_for

static inline void unspin_cpu_relax(void)
{
	sched_yield();
}

#ifdef SPENT
static inline unsigned long long unspin_lock_now(void)
{
	static atomic_ullong now;

	/* Relaxed order: a stronger one would hide from ThreadSanitizer that a lock has none. */
	return atomic_fetch_add_explicit(&now, 1ULL << 32, memory_order_relaxed);
}
#endif

#ifdef SHORT_OF_TIME
static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return 1;
}

static inline void unspin_lock_wait_for(atomic_uint *word, unsigned int seen, unsigned int key,
					unsigned long long ns)
{
	(void)ns;
	lock_linux_wait_for(word, seen, key, 1);
}
#endif
