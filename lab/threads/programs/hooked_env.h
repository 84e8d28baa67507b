/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An environment for a single thread, in which a test plays all the others: it sets functions to be
 * called in a turn of a wait, in a reading of the clock, and in a halt. A tick of the clock is 1 us.
 * A hook is called once, unless it sets itself again.
 */
#include <stdatomic.h>
#include <stdbool.h>

typedef void hook_fn(void);

static hook_fn *on_turn, *on_clock, *on_halt;
static unsigned long long now_us;
static unsigned int wakes;

#define UNSPIN_LOCK_ENV_TIMED

static inline void call(hook_fn **hook)
{
	hook_fn *fn = *hook;

	*hook = 0;
	if (fn)
		fn();
}

static inline void unspin_cpu_relax(void)
{
	now_us++;
	call(&on_turn);
}

static inline void unspin_lock_yield(void)
{
}

static inline unsigned long long unspin_lock_now(void)
{
	call(&on_clock);
	return now_us;
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return 1;
}

static inline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	(void)word;
	(void)seen;
	(void)key;
	call(&on_halt);
}

static inline void unspin_lock_wait_for(atomic_uint *word, unsigned int seen, unsigned int key,
					unsigned long long ns)
{
	(void)ns;
	unspin_lock_wait(word, seen, key);
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	(void)word;
	(void)key;
	wakes++;
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	unspin_lock_wake(word, 0);
}
