/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * VCRD: whether the vCPUs of one VM should run together, and for how long.
 *
 * Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC
 * 2011, sections 4.2 and 4.3, Algorithms 1 and 2. The VCPU related degree of a VM is LOW
 * until the wait for a spin-lock in it exceeds a threshold. Such an adjusting event sets it
 * HIGH for as long as a learner expects the locality of synchronization to last. The caller
 * measures waits, passes time and random numbers, and calls from one context at a time for a
 * given state. Nothing here locks, allocates or reads a clock.
 *
 * The paper gives the threshold (2^20 cycles in section 4.2; section 3.3 says 2^8, which
 * every contended lock exceeds) and no other parameter. It also leaves some points open. Here:
 *  - The possible values are equal steps. A is their average in steps, because payoffs are of
 *    the order of 1.
 *  - Of equal propensities, the last estimate is kept, or else the next longer one is taken,
 *    cyclically.
 *  - Where Algorithm 2 divides by the last interval, and this was shorter than its estimate, it
 *    counts as one microsecond longer.
 *  - The quotient is bounded, by 1 unless set otherwise. Unbounded, it rewards an estimate more,
 *    the sooner it was needed after the one before, and an estimate that two events of a
 *    locality add up to is kept forever. With ratio_max = 2^20 it is practically unbounded, as in
 *    the paper; the other points remain.
 */
#ifndef UNSPIN_POLICY_VCRD_H
#define UNSPIN_POLICY_VCRD_H

#include "types.h"

#define VCRD_VALUES_MAX 32u
#define VCRD_RATIO_LIMIT (1u << 20)
#define VCRD_PPM 1000000u
/* Propensities saturate here, in millionths: above 2^20 times a payoff of 1. */
#define VCRD_PROPENSITY_MAX_PPM ((pol_u64)1 << 41)

/* Parameters of Algorithms 1 and 2. */
struct vcrd_params {
	pol_u32 threshold_log2_cycles;	/* delta: a wait above 2^delta is over-threshold */
	pol_u32 values;			/* N: number of estimates, 1-32 */
	pol_u32 step_us;		/* the estimates are step_us, 2 step_us, ... N step_us */
	pol_u32 initial_ppm;		/* s(0): scales the initial propensities */
	pol_u32 recency_ppm;		/* r: how fast propensities are forgotten */
	pol_u32 experiment_ppm;		/* e: the part for values that were not tried */
	pol_u32 margin_us;		/* Delta: an event this soon after HIGH is due to its end */
	pol_u32 ratio_max;		/* bound of (z_i - x_i) / (z_i-1 - x_i-1), 1-2^20 */
};

#define VCRD_THRESHOLD_LOG2_CYCLES 20u	/* section 4.2 */

/* An initializer with the defaults; only the threshold differs between users. */
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
	pol_u64 high_until_us;	/* until when the VCRD is HIGH */
	pol_u64 over_us;	/* z - x of the interval before the last, at least 1 */
	pol_u64 estimate_us;	/* x: how long the last event set it HIGH */
	pol_u32 estimate;	/* index of that value, from 0 */
	pol_u32 reserved;
};

/*
 * Returns 0 if the parameters are valid, or the number (1-8) of the first wrong field of struct
 * vcrd_params: 1 is above 63; 2 is not in 1-32; 3 is 0; 4 is 0; 5 or 6 is above 10^6; 8 is not
 * in 1-2^20. Any margin (7) is valid. vcrd_event() is safe without this check.
 */
int vcrd_params_check(const struct vcrd_params *params);

void vcrd_init(struct vcrd_state *state, const struct vcrd_params *params);

/* Whether a wait for a spin-lock exceeds the threshold, so that it is an adjusting event. */
pol_u8 vcrd_is_over_threshold(const struct vcrd_params *params, pol_u64 waited_cycles);

/*
 * Handles an adjusting event at now_us: learns from the last interval, sets the VCRD HIGH and
 * returns for how many microseconds, always one of the possible values. draw is a random number,
 * uniform over 32 bits. The first two events choose by it (section 4.3), later ones take the
 * largest propensity. Parameters may have changed since the last call. A clock that went back
 * counts as standing still.
 */
pol_u64 vcrd_event(struct vcrd_state *state, const struct vcrd_params *params, pol_u64 now_us,
		   pol_u32 draw);

/* The VCRD at now_us: 1 is HIGH, 0 is LOW. */
pol_u8 vcrd_is_high(const struct vcrd_state *state, pol_u64 now_us);

#endif
