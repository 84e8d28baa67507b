/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An environment in which only a test moves the clock, and in which a test preempts a thread: the
 * thread stops in its next iteration of a wait until it is scheduled again.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct scripted_vcpu {
	atomic_bool preempted;
	atomic_bool stands;	/* still, preempted */
	atomic_ulong turns;	/* of waiting loops, finished */
};

static atomic_ullong scripted_now_us;
static _Thread_local struct scripted_vcpu *scripted_self;

static inline unsigned long long unspin_lock_now(void)
{
	return atomic_load(&scripted_now_us);
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return 1;
}

static inline void unspin_cpu_relax(void)
{
	if (!scripted_self)
		return;
	do {
		atomic_store(&scripted_self->stands, atomic_load(&scripted_self->preempted));
		sched_yield();
	} while (atomic_load(&scripted_self->preempted));
	atomic_fetch_add(&scripted_self->turns, 1);
}

/* Spurious wake-ups are allowed: a halt is one turn of a wait. */
static inline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	(void)word;
	(void)seen;
	(void)key;
	unspin_cpu_relax();
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	(void)word;
	(void)key;
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	(void)word;
}
