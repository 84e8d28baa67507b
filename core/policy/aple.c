// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * APLE: Algorithm 1 of the APPLES paper, as one transition per epoch.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.1.3 and 3.1.4.
 */
#include "aple.h"

#define PPM 1000000u
#define EXIT_RATE ((pol_u64)1 << 32)
/* Where inefficiency saturates: a VM that wasted 2^32 times the CPU time it got. */
#define APLE_PPM_RATIO_MAX ((pol_u64)1 << 32)
#define APLE_PPM_MAX (PPM * APLE_PPM_RATIO_MAX)

_Static_assert(sizeof(struct aple_params) == 28, "part of the trace format");
_Static_assert(sizeof(struct aple_epoch) == 32, "part of the trace format");
_Static_assert(sizeof(struct aple_state) == 88, "part of the trace format");

int aple_params_check(const struct aple_params *params)
{
	if (!params->window_min_cycles)
		return 2;
	if (params->window_max_cycles < params->window_min_cycles)
		return 3;
	if (params->window_init_cycles < params->window_min_cycles ||
	    params->window_init_cycles > params->window_max_cycles)
		return 1;
	if (params->delta_cycles > params->window_max_cycles)
		return 4;
	if (!params->epoch_ple_exits)
		return 5;
	if (params->delta_max_cycles > params->window_max_cycles)
		return 6;
	return 0;
}

/* If the bounds contradict each other, the window is the upper bound. */
static pol_u32 clamp_up_to(const struct aple_params *params, pol_u32 high, pol_u64 window_cycles)
{
	pol_u32 low = params->window_min_cycles < high ? params->window_min_cycles : high;

	return pol_clamp_u32(window_cycles, low, high);
}

static pol_u32 clamp_window(const struct aple_params *params, pol_u64 window_cycles)
{
	return clamp_up_to(params, params->window_max_cycles, window_cycles);
}

/* Then the only step is delta_cycles, and windows are compared as in the paper. */
static int step_is_constant(const struct aple_params *params)
{
	return !params->delta_cycles || params->delta_max_cycles <= params->delta_cycles;
}

static pol_u32 clamp_step(const struct aple_params *params, pol_u64 step_cycles)
{
	pol_u32 low = params->delta_cycles;

	return pol_clamp_u32(step_cycles, low,
			     step_is_constant(params) ? low : params->delta_max_cycles);
}

void aple_init(struct aple_state *state, const struct aple_params *params)
{
	state->desired_cycles = clamp_window(params, params->window_init_cycles);
	state->window_cycles = state->desired_cycles;
	state->phase = 0;
	state->best_cycles = state->desired_cycles;
	state->best_ppm = 0;
	state->first.ple_exits = 0;
	state->first.spin_cycles = 0;
	state->first.switch_cycles = 0;
	state->first.cpu_cycles = 0;
	state->last_ppm = 0;
	state->epochs = 0;
	state->rounds = 0;
	state->step_cycles = clamp_step(params, params->delta_max_cycles);
	state->moved = 0;
}

/* A share of an epoch's CPU time in parts per million, as aple_inefficiency_ppm() has it. */
static pol_u64 share_ppm(const struct aple_epoch *epoch, pol_u64 cycles)
{
	pol_u64 whole, part;

	if (!cycles)
		return 0;
	if (!epoch->cpu_cycles)
		return APLE_PPM_MAX;

	whole = cycles / epoch->cpu_cycles;
	part = cycles % epoch->cpu_cycles;
	if (whole >= APLE_PPM_RATIO_MAX)
		return APLE_PPM_MAX;
	return whole * PPM + pol_mul_div(part, PPM, epoch->cpu_cycles);
}

pol_u64 aple_inefficiency_ppm(const struct aple_epoch *epoch)
{
	return share_ppm(epoch, pol_sat_add(epoch->spin_cycles, epoch->switch_cycles));
}

/* PLE exits per 2^32 cycles of CPU time. */
static pol_u64 exit_rate(const struct aple_epoch *epoch)
{
	return epoch->cpu_cycles ? pol_mul_div(epoch->ple_exits, EXIT_RATE, epoch->cpu_cycles) : 0;
}

/* The mean window in force at an epoch's exits: a vCPU may have another one than its VM. */
static pol_u64 mean_window(const struct aple_epoch *epoch, pol_u32 window_cycles)
{
	return epoch->ple_exits ? epoch->spin_cycles / epoch->ple_exits : window_cycles;
}

/*
 * By how much an epoch's spinning exceeds that of the round's epoch with Td, in parts per million of
 * CPU time: an exit is taken to end a spin that a window longer by n cycles would let go on for n
 * cycles at most. As some of these spins end before, n cycles are counted for the mean of both
 * windows' exits. Negative where the window is shorter.
 */
static pol_s64 more_spinning_ppm(const struct aple_state *state, const struct aple_epoch *epoch)
{
	pol_u64 window = mean_window(epoch, state->window_cycles);
	pol_u64 other = mean_window(&state->first, state->desired_cycles);
	pol_u64 longer = window > other ? window - other : other - window;
	pol_u64 exits = pol_sat_add(exit_rate(epoch), exit_rate(&state->first));
	pol_u64 ppm = pol_mul_div(pol_sat_mul(longer, PPM / 2), exits, EXIT_RATE);

	if (ppm > APLE_PPM_MAX)
		ppm = APLE_PPM_MAX;
	return window > other ? (pol_s64)ppm : -(pol_s64)ppm;
}

/* What an epoch wasted, to be compared with the other epochs of its round. */
static pol_s64 wasted(const struct aple_state *state, const struct aple_params *params,
		      const struct aple_epoch *epoch)
{
	if (step_is_constant(params))
		return (pol_s64)aple_inefficiency_ppm(epoch);
	return (pol_s64)share_ppm(epoch, epoch->switch_cycles) + more_spinning_ppm(state, epoch);
}

/* A round ended: its best window becomes the desired one, and the step adapts to the move. */
static void round_end(struct aple_state *state)
{
	pol_s32 moved = (state->best_cycles > state->desired_cycles) -
			(state->best_cycles < state->desired_cycles);

	if (!moved || moved == -state->moved)
		state->step_cycles /= 2;
	else if (moved == state->moved)
		state->step_cycles = pol_clamp_u32((pol_u64)state->step_cycles * 2, 0, ~0u);
	state->moved = moved;
	state->desired_cycles = state->best_cycles;
	state->rounds = pol_sat_add(state->rounds, 1);
}

/* The window to try in this phase of a round, around the desired one. */
static pol_u32 phase_window(const struct aple_params *params, pol_u32 desired, pol_u32 step,
			    pol_u32 phase)
{
	pol_u64 up = (pol_u64)desired + step;
	pol_u64 down = desired > step ? desired - step : 0;

	switch (phase) {
	case 1:
		return clamp_window(params, up);
	case 2:
		return clamp_window(params, down);
	default:
		return clamp_window(params, desired);
	}
}

pol_u32 aple_epoch_end(struct aple_state *state, const struct aple_params *params,
		       const struct aple_epoch *epoch)
{
	pol_s64 ppm;

	if (state->phase == 0)
		state->first = *epoch;
	ppm = wasted(state, params, epoch);
	if (state->phase == 0 || ppm < state->best_ppm) {
		state->best_ppm = ppm;
		state->best_cycles = state->window_cycles;
	}
	state->last_ppm = aple_inefficiency_ppm(epoch);
	state->epochs = pol_sat_add(state->epochs, 1);

	if (state->phase < APLE_EPOCHS_PER_ROUND - 1) {
		state->phase++;
	} else {
		state->phase = 0;
		round_end(state);
	}
	state->step_cycles = clamp_step(params, state->step_cycles);

	if (!params->delta_cycles)
		state->desired_cycles = params->window_init_cycles;
	/* The bounds may have changed since the best window was tried. */
	state->desired_cycles = clamp_window(params, state->desired_cycles);
	state->window_cycles =
		phase_window(params, state->desired_cycles, state->step_cycles, state->phase);
	return state->window_cycles;
}

pol_u32 aple_window_complete(const struct aple_params *params, pol_u32 window_cycles,
			     pol_u32 kvm_window_cycles)
{
	pol_u32 longest = aple_window_longest(params, kvm_window_cycles);

	return clamp_up_to(params, longest, (pol_u64)window_cycles << (params->delta_cycles != 0));
}
