/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A waiting budget: how long to spin before a wait does something else.
 *
 * The papers count iterations of their loops on their machines. VEE'13 section 3 equates 2048 of them
 * with 1 us, and every count of the papers is converted at that rate here, so that a budget is the same
 * time on every CPU. The time passes while a vCPU is preempted: its budget is spent when it returns.
 */
#ifndef UNSPIN_LOCKS_BUDGET_H
#define UNSPIN_LOCKS_BUDGET_H

#include "env.h"

#define UNSPIN_LOCK_ITERATIONS_PER_US 2048ULL	/* VEE'13 section 3 */
#define UNSPIN_LOCK_ITERATIONS_NS(iterations) ((iterations) * 1000ULL / UNSPIN_LOCK_ITERATIONS_PER_US)
#define UNSPIN_LOCK_NS_FOREVER (~0ULL)

struct unspin_lock_budget {
	unsigned long long since_ticks;
	unsigned long long limit_ticks;	/* all ones: never spent */
};

/* @ns times @times; saturates to a budget that is never spent. */
static inline struct unspin_lock_budget unspin_lock_budget(unsigned long long ns, unsigned int times)
{
	struct unspin_lock_budget budget = { unspin_lock_now(), ~0ULL };
	unsigned long long total_ns, ticks;

	if (ns == UNSPIN_LOCK_NS_FOREVER || __builtin_mul_overflow(ns, times, &total_ns) ||
	    __builtin_mul_overflow(total_ns, unspin_lock_ticks_per_us(), &ticks))
		return budget;
	budget.limit_ticks = ticks / 1000;
	return budget;
}

static inline bool unspin_lock_budget_spent(const struct unspin_lock_budget *budget)
{
	return budget->limit_ticks != ~0ULL &&
	       unspin_lock_now() - budget->since_ticks >= budget->limit_ticks;
}

#endif
