// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * VCRD: Algorithms 1 and 2 of the ASMan paper, as one transition per adjusting event.
 *
 * Weng, Liu, Yu, Li, HPDC 2011, section 4.3.
 */
#include "vcrd.h"

_Static_assert(sizeof(struct vcrd_params) == 32, "part of the trace format");
_Static_assert(sizeof(struct vcrd_state) == 304, "part of the trace format");

int vcrd_params_check(const struct vcrd_params *params)
{
	if (params->threshold_log2_cycles > 63)
		return 1;
	if (!params->values || params->values > VCRD_VALUES_MAX)
		return 2;
	if (!params->step_us)
		return 3;
	if (!params->initial_ppm)
		return 4;
	if (params->recency_ppm > VCRD_PPM)
		return 5;
	if (params->experiment_ppm > VCRD_PPM)
		return 6;
	if (!params->ratio_max || params->ratio_max > VCRD_RATIO_LIMIT)
		return 8;
	return 0;
}

static pol_u32 value_count(const struct vcrd_params *params)
{
	return pol_clamp_u32(params->values, 1, VCRD_VALUES_MAX);
}

static pol_u64 value_us(const struct vcrd_params *params, pol_u32 value)
{
	return ((pol_u64)value + 1) * params->step_us;
}

/* The share 1 - part_ppm, or 0 if that is negative. */
static pol_u32 rest_ppm(pol_u32 part_ppm)
{
	return VCRD_PPM - pol_clamp_u32(part_ppm, 0, VCRD_PPM);
}

void vcrd_init(struct vcrd_state *state, const struct vcrd_params *params)
{
	pol_u32 count = value_count(params);
	pol_u32 x;

	/* q_x(0) = s(0) A / N, and A = (N + 1) / 2 steps */
	for (x = 0; x < VCRD_VALUES_MAX; x++)
		state->propensity_ppm[x] =
			(pol_u64)params->initial_ppm * (count + 1) / (2 * count);
	state->events = 0;
	state->event_us = 0;
	state->high_until_us = 0;
	state->over_us = 1;
	state->estimate_us = 0;
	state->estimate = 0;
	state->reserved = 0;
}

pol_u8 vcrd_is_over_threshold(const struct vcrd_params *params, pol_u64 waited_cycles)
{
	pol_u32 log2 = pol_clamp_u32(params->threshold_log2_cycles, 0, 63);

	return waited_cycles > (pol_u64)1 << log2;
}

/* q_x(i) e / (N - 1): for a value about which the last interval says nothing. */
static pol_u64 experiment(const struct vcrd_params *params, pol_u64 propensity_ppm)
{
	pol_u32 others = value_count(params) - 1;

	if (!others)
		return 0;
	return propensity_ppm * (VCRD_PPM - rest_ppm(params->experiment_ppm)) / VCRD_PPM / others;
}

/* (z_i - x_i) / (z_i-1 - x_i-1) (1 - e): for an estimate that was long enough. */
static pol_u64 reward(const struct vcrd_params *params, pol_u64 over_us, pol_u64 last_over_us)
{
	pol_u64 most = (pol_u64)pol_clamp_u32(params->ratio_max, 1, VCRD_RATIO_LIMIT) *
		       rest_ppm(params->experiment_ppm);
	pol_u64 exact = pol_mul_div(over_us, rest_ppm(params->experiment_ppm),
				    last_over_us ? last_over_us : 1);

	return exact < most ? exact : most;
}

/* Algorithm 2: U(x, x_i, i, N, e), where z_i is interval_us. */
static pol_u64 update(const struct vcrd_state *state, const struct vcrd_params *params,
		      pol_u64 interval_us, pol_u32 x)
{
	if (interval_us <= pol_sat_add(state->estimate_us, params->margin_us)) {
		if (x > state->estimate)
			return rest_ppm(params->experiment_ppm);
	} else if (x == state->estimate) {
		return reward(params, interval_us - state->estimate_us, state->over_us);
	}
	return experiment(params, state->propensity_ppm[x]);
}

/* Algorithm 1, lines 2 to 5. last is the estimate's number; values are fewer than 2^31. */
static pol_u32 learn(struct vcrd_state *state, const struct vcrd_params *params,
		     pol_u64 interval_us, pol_u32 last)
{
	pol_u32 count = value_count(params);
	pol_u32 x, step, best;

	for (x = 0; x < count; x++) {
		pol_u64 kept = state->propensity_ppm[x] * rest_ppm(params->recency_ppm) / VCRD_PPM;
		pol_u64 sum = kept + update(state, params, interval_us, x);

		state->propensity_ppm[x] =
			sum < VCRD_PROPENSITY_MAX_PPM ? sum : VCRD_PROPENSITY_MAX_PPM;
	}

	best = last;
	for (step = 1; step < count; step++) {
		x = last + step < count ? last + step : last + step - count;
		if (state->propensity_ppm[x] > state->propensity_ppm[best])
			best = x;
	}
	return best;
}

pol_u64 vcrd_event(struct vcrd_state *state, const struct vcrd_params *params, pol_u64 now_us,
		   pol_u32 draw)
{
	pol_u32 count = value_count(params);
	pol_u64 interval_us = now_us > state->event_us ? now_us - state->event_us : 0;
	/* There may be fewer values now than when the estimate was chosen. */
	pol_u32 last = state->estimate < count ? state->estimate : count - 1;
	pol_u32 next;

	state->estimate = last;
	if (state->events < 2)
		next = (pol_u32)((pol_u64)draw * count >> 32);
	else
		next = learn(state, params, interval_us, last);
	if (state->events)
		state->over_us = interval_us > state->estimate_us ?
					 interval_us - state->estimate_us : 1;
	state->estimate = next;
	state->events = pol_sat_add(state->events, 1);
	state->estimate_us = value_us(params, state->estimate);
	if (now_us > state->event_us)
		state->event_us = now_us;
	state->high_until_us = pol_sat_add(state->event_us, state->estimate_us);
	return state->estimate_us;
}

pol_u8 vcrd_is_high(const struct vcrd_state *state, pol_u64 now_us)
{
	return now_us < state->high_until_us;
}
