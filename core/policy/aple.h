/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * APLE: adapt one VM's pause-loop-exit window to the least wasted share of CPU.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.1.2-3.1.4, Algorithm 1.
 * The caller counts PLE exits and cycles, and calls once per epoch, from one context at
 * a time for a given state. Nothing here locks, allocates or reads a clock.
 *
 * Four things differ from the paper. The paper always tries the same delta to each side.
 * If a VM has few PLE exits, the noise of an epoch is larger than the effect of such a
 * step, and the window wanders. So delta adapts: it starts at delta_max_cycles, halves
 * when a round keeps the window or turns back, doubles when two rounds in a row move the
 * window the same way, and stays within [delta_cycles, delta_max_cycles].
 *
 * The paper chooses the window with the least inefficiency. Spins that end within the window
 * are no part of it, so that a longer window looks better than it is: it seems to save all
 * cycles of a spin that now ends without an exit, and saves the exit only. Here windows are
 * compared by the handling of exits and by the spinning between the ends of the two windows
 * (more_spinning_ppm() in aple.c).
 *
 * An epoch lasts at least epoch_min_us. PLE exits come in bursts while a lock holder waits
 * for a core. An epoch inside a burst finds every window wasteful; a longer one weighs bursts
 * against the rest. And the handling of an exit is counted without the time in which the
 * vCPU was switched out; the paper counts all time from the exit to the entry.
 *
 * With delta_max_cycles <= delta_cycles the step is constant, and windows are compared by
 * inefficiency. With epoch_min_us = 0, too, this is Algorithm 1 of the paper, but for the time
 * switched out, which the caller leaves out.
 */
#ifndef UNSPIN_POLICY_APLE_H
#define UNSPIN_POLICY_APLE_H

#include "types.h"

/* Parameters of Algorithm 1, in TSC cycles. Defaults (section 4.1): uapi/unspin.h. */
struct aple_params {
	pol_u32 window_init_cycles;	/* T0 */
	pol_u32 window_min_cycles;	/* Tl */
	pol_u32 window_max_cycles;	/* Tu */
	pol_u32 delta_cycles;		/* 0 keeps the window fixed at T0 */
	pol_u32 epoch_ple_exits;	/* PLE exits per epoch, at least 1 */
	pol_u32 delta_max_cycles;	/* initial delta; not in the paper */
	pol_u32 epoch_min_us;		/* shortest epoch; 0 as in the paper */
};

#define APLE_EPOCHS_PER_ROUND 3u

/* What one VM spent during one epoch. */
struct aple_epoch {
	pol_u64 ple_exits;
	pol_u64 spin_cycles;	/* sum of the window in force at each exit */
	pol_u64 switch_cycles;	/* sum of exit-handling time, less time scheduled out */
	pol_u64 cpu_cycles;	/* CPU time of all the VM's vCPUs in the epoch */
};

struct aple_state {
	pol_u32 desired_cycles;	/* Td */
	pol_u32 window_cycles;	/* what this epoch tries: Td, Td + step or Td - step */
	pol_u32 phase;		/* 0, 1, 2: which of the round's epochs runs now */
	pol_u32 best_cycles;	/* window of the round's best epoch so far */
	pol_s64 best_ppm;	/* and what that epoch wasted, as wasted() in aple.c has it */
	struct aple_epoch first;	/* what the round's epoch with Td spent */
	pol_u64 last_ppm;	/* inefficiency of the last finished epoch */
	pol_u64 epochs;
	pol_u64 rounds;
	pol_u32 step_cycles;	/* delta of this round */
	pol_s32 moved;		/* direction in which the last round moved Td: -1, 0, 1 */
};

/*
 * Returns 0 if the parameters are consistent, or the number (1-6) of the first wrong field of
 * struct aple_params. Checked in this order: 2 is 0; 3 is below 2; 1 is outside both; 4 is
 * above 3; 5 is 0; 6 is above 3. aple_epoch_end() is safe without this check.
 */
int aple_params_check(const struct aple_params *params);

void aple_init(struct aple_state *state, const struct aple_params *params);

/*
 * Share of CPU time wasted in an epoch, in parts per million, rounded down: spinning that
 * the processor stopped plus the handling of those exits, divided by the CPU time used
 * (section 3.1.3). Exact unless spin + switch cycles pass 2^64, where the sum saturates. The
 * result saturates at 10^6 x 2^32. With 0 CPU cycles it is 0 if nothing was wasted, and the
 * saturated value otherwise.
 */
pol_u64 aple_inefficiency_ppm(const struct aple_epoch *epoch);

/*
 * Call when an epoch ends. Records its inefficiency and returns the window for the next,
 * within [window_min_cycles, window_max_cycles], or window_max_cycles if that is below the
 * minimum. Parameters may have changed since the last call. Of equals, the one tried first
 * wins: Td, then the longer window, then the shorter.
 */
pol_u32 aple_epoch_end(struct aple_state *state, const struct aple_params *params,
		       const struct aple_epoch *epoch);

/*
 * The longest window of a VM of which no vCPU waits for a core: window_max_cycles, or KVM's initial
 * window if that is longer, so that such a VM has no more PLE exits than under KVM alone. With a
 * delta of 0 it is window_max_cycles. Not in the paper.
 */
static inline pol_u32 aple_window_longest(const struct aple_params *params,
					  pol_u32 kvm_window_cycles)
{
	if (!params->delta_cycles || params->window_max_cycles > kvm_window_cycles)
		return params->window_max_cycles;
	return kvm_window_cycles;
}

/*
 * The window of one vCPU after a PLE exit that found its VM complete (hvs.h), instead of the
 * VM's window: twice the one in force, at most aple_window_longest(). So contention in a complete
 * VM soon causes no exits. The vCPU has the VM's window again once it has lost its core. The
 * result is never shorter than the window in force, unless that was above the maximum. A delta
 * of 0 keeps it. Not in the paper; KVM grows its window at every exit instead.
 */
pol_u32 aple_window_complete(const struct aple_params *params, pol_u32 window_cycles,
			     pol_u32 kvm_window_cycles);

#endif
