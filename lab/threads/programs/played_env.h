/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An environment in which a test decides which thread runs. Threads are played one at a time, and
 * each step of a lock (an access of its words, a turn of a wait, a halt or a wake-up) may be
 * followed by one of another thread. A halt ends only by its wake-up or its time limit, and a
 * wake-up ends only what it must.
 *
 * A tick of the clock is 1 us. The clock advances by one with each reading, so that waiters time
 * out and halt. With SPENT an hour passes from each reading to the next: every budget is spent
 * before its first check.
 */
#include <stdatomic.h>
#include <stdbool.h>

/* Steps of other threads, some or none. */
void played_step(void);
/* Returns only after another thread has changed the word, or at @until_ticks. */
void played_halt(atomic_uint *word, unsigned int seen, unsigned int key, unsigned long long until_ticks);
void played_wake(atomic_uint *word, unsigned int key, bool all);

static unsigned long long played_ticks;

/* Every access of a lock's words names its order; this adds a step before each. */
#define memory_order_relaxed (played_step(), __ATOMIC_RELAXED)
#define memory_order_acquire (played_step(), __ATOMIC_ACQUIRE)
#define memory_order_release (played_step(), __ATOMIC_RELEASE)
#define memory_order_acq_rel (played_step(), __ATOMIC_ACQ_REL)
#define memory_order_seq_cst (played_step(), __ATOMIC_SEQ_CST)

#define PLAYED_FOREVER (~0ULL)
#define UNSPIN_LOCK_ENV_TIMED

static inline void unspin_cpu_relax(void)
{
	played_step();
}

static inline void unspin_lock_yield(void)
{
	played_step();
}

static inline unsigned long long unspin_lock_now(void)
{
#ifdef SPENT
	played_ticks += 1ULL << 32;
#else
	played_ticks++;
#endif
	return played_ticks;
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return 1;
}

static inline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	played_halt(word, seen, key, PLAYED_FOREVER);
}

static inline void unspin_lock_wait_for(atomic_uint *word, unsigned int seen, unsigned int key,
					unsigned long long ns)
{
	played_halt(word, seen, key, played_ticks + ns / 1000);
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	played_wake(word, key, false);
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	played_wake(word, 0, true);
}
