/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * VCRD: whether the vCPUs of one VM should run together, and for how long.
 *
 * Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC
 * 2011, sections 4.2 and 4.3, Algorithms 1 and 2. The VCPU related degree of a VM is LOW
 * until a spin-lock in it was waited for longer than a threshold; such an adjusting event
 * sets it HIGH for as long as a learner expects the locality of synchronization to last.
 * The caller measures waits, passes time and random numbers, and calls in from one context
 * at a time for a given state; nothing here locks, allocates or reads a clock.
 *
 * The paper prints the threshold (2^20 cycles in section 4.2; its section 3.3 says 2^8,
 * which every contended lock passes) and no other parameter. The others are ours, and so is
 * what the paper leaves open: the possible values are equal steps; A is their average in
 * steps, as payoffs are of the order of 1; equal propensities keep the last estimate, else
 * go to the next longer one, cyclically; a last interval that came within its estimate
 * counts as one microsecond over it where Algorithm 2 divides by it. That quotient is bounded
 * too, by 1 unless set otherwise: unbounded, it rewards an estimate the more, the sooner after
 * the one before it was needed, and an estimate that two events in a locality add up with
 * is held for good. ratio_max = 2^20 is the paper to the letter.
 */
#ifndef UNSPIN_POLICY_VCRD_H
#define UNSPIN_POLICY_VCRD_H

#include "types.h"

#define VCRD_VALUES_MAX 32u
#define VCRD_RATIO_LIMIT (1u << 20)
#define VCRD_PPM 1000000u
/* Where a propensity saturates, in millionths: 2^20 times a payoff of 1, and more. */
#define VCRD_PROPENSITY_MAX_PPM ((pol_u64)1 << 41)

/* Parameters of Algorithms 1 and 2. */
struct vcrd_params {
	pol_u32 threshold_log2_cycles;	/* delta: a wait above 2^delta is over-threshold */
	pol_u32 values;			/* N: how many estimates there are, 1-32 */
	pol_u32 step_us;		/* they are step_us, 2 step_us, ... N step_us */
	pol_u32 initial_ppm;		/* s(0): scales the initial propensities */
	pol_u32 recency_ppm;		/* r: how fast experience is forgotten */
	pol_u32 experiment_ppm;		/* e: how much goes to the values not tried */
	pol_u32 margin_us;		/* Delta: an event this soon after HIGH came of its end */
	pol_u32 ratio_max;		/* bound of (z_i - x_i) / (z_i-1 - x_i-1), 1-2^20; ours */
};

#define VCRD_THRESHOLD_LOG2_CYCLES 20u	/* section 4.2 */

/* The defaults of everybody, as an initializer; the threshold is what some set otherwise. */
#define VCRD_PARAMS(threshold_log2) { \
	.threshold_log2_cycles = (threshold_log2), \
	.values = 16, \
	.step_us = 10000, /* a slot of Credit, section 3.3 */ \
	.initial_ppm = 1000000, \
	.recency_ppm = 100000, \
	.experiment_ppm = 200000, \
	.margin_us = 10000, \
	.ratio_max = 1, \
}

struct vcrd_state {
	pol_u64 propensity_ppm[VCRD_VALUES_MAX];	/* q_x, in millionths */
	pol_u64 events;		/* adjusting events so far */
	pol_u64 event_us;	/* when the last one came */
	pol_u64 high_until_us;	/* the VCRD is HIGH before that */
	pol_u64 over_us;	/* z - x of the interval before the last, at least 1 */
	pol_u64 estimate_us;	/* x: how long the last event set it HIGH */
	pol_u32 estimate;	/* which value that is, from 0 */
	pol_u32 reserved;
};

/*
 * Whether the parameters make sense: 0, or the number (1-8) of the first field of struct
 * vcrd_params that does not: 1 is above 63; 2 is not in 1-32; 3 is 0; 4 is 0; 5 or 6 is
 * above 10^6; 8 is not in 1-2^20. Any margin (7) does. vcrd_event needs no such check to be
 * safe.
 */
int vcrd_params_check(const struct vcrd_params *params);

void vcrd_init(struct vcrd_state *state, const struct vcrd_params *params);

/* Whether a wait for a spin-lock is over-threshold, which makes it an adjusting event. */
pol_u8 vcrd_is_over_threshold(const struct vcrd_params *params, pol_u64 waited_cycles);

/*
 * An adjusting event at now_us: learn from the last interval, set the VCRD HIGH and return
 * for how many microseconds, always one of the possible values. draw is a random number,
 * uniform over 32 bits; the first two events choose by it (section 4.3), later ones take the
 * largest propensity. Parameters may have changed since the last call. A clock that ran
 * back counts as standing still.
 */
pol_u64 vcrd_event(struct vcrd_state *state, const struct vcrd_params *params, pol_u64 now_us,
		   pol_u32 draw);

/* The VCRD at now_us: 1 is HIGH, 0 is LOW. */
pol_u8 vcrd_is_high(const struct vcrd_state *state, pol_u64 now_us);

#endif
