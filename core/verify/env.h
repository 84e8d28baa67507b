/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The checker as the locks' environment (core/locks/env.h). A halted thread returns when it is woken, when
 * its time is over, which may be at any moment, and as often as a search allows without a reason. The
 * clock shows two times only: a budget is over when the time has changed since it began.
 */
#ifndef UNSPIN_VERIFY_ENV_H
#define UNSPIN_VERIFY_ENV_H

#include "model.h"

/* MODEL_UNTIMED: an environment whose halts have no time limit. */
#ifndef MODEL_UNTIMED
#define UNSPIN_LOCK_ENV_TIMED
#endif

static inline struct model_result model_env(uint8_t kind, const void *word, unsigned int seen,
					    unsigned int key, bool timed)
{
	struct model_op op = {
		.kind = kind, .size = sizeof(unsigned int), .timed = timed, .key = key,
		.file = __FILE__, .word = word, .value = seen,
	};

	return model_do(&op);
}

static inline void unspin_cpu_relax(void)
{
}

static inline void unspin_lock_yield(void)
{
}

static inline unsigned long long unspin_lock_now(void)
{
	return model_env(MODEL_CLOCK, 0, 0, 0, false).value;
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return model_env(MODEL_RATE, 0, 0, 0, false).value;
}

static inline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	model_env(MODEL_WAIT, word, seen, key, false);
}

static inline void unspin_lock_wait_for(atomic_uint *word, unsigned int seen, unsigned int key,
				 unsigned long long ns)
{
	(void)ns;
	model_env(MODEL_WAIT, word, seen, key, true);
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	model_env(MODEL_WAKE, word, 0, key, false);
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	unspin_lock_wake(word, 0);	/* env.h promises no more */
}

#endif
