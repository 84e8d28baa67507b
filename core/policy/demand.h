/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Demand: which VMs should run in turns, judged from outside by what their vCPUs waste.
 *
 * Turns that help remove what they were asked for by: a VM whose vCPUs run together does not
 * spin. So who is HIGH is judged where there are no turns. The host looks for some milliseconds
 * without any, and VMs that waste more than a share of their CPU time are HIGH for a
 * hold. Then it looks again. A look that finds the same VMs doubles the hold, any other
 * starts it anew. VMs that are LOW in a hold are looked at all the time, and may join it.
 * Waste comes in bursts, so a VM that was LOW must have wasted as much in two looks in a row, and one
 * that was HIGH stays so while it wastes half as much.
 *
 * ASMan (Weng, Liu, Yu, Li, HPDC 2011) lets the guest say when a lock was waited for too
 * long (vcrd.h). Here the guest is not asked: waste is time in pause-loop exits, and whatever else the
 * caller knows to be spinning.
 *
 * The caller passes sums that only grow, in any one unit of CPU time, and calls in from one context at a
 * time for given arrays. Nothing here locks, allocates or reads a clock.
 */
#ifndef UNSPIN_POLICY_DEMAND_H
#define UNSPIN_POLICY_DEMAND_H

#include "types.h"

#define DEMAND_PPM 1000000u

struct demand_params {
	pol_u32 threshold_ppm;	/* HIGH from this share of CPU time wasted on, 1-10^6; half of it to stay so */
	pol_u32 look_us;	/* length of a look, at least 1 */
	pol_u32 hold_us;	/* shortest hold, at least 1 */
	pol_u32 hold_max_us;	/* longest, at least hold_us */
};

#define DEMAND_THRESHOLD_PPM 50000u
#define DEMAND_LOOK_US 20000u
#define DEMAND_HOLD_US 100000u
#define DEMAND_HOLD_MAX_US 1600000u

struct demand_vm {
	pol_u64 wasted, cpu;		/* in: so far */
	pol_u64 wasted_base, cpu_base;	/* at the start of the look */
	pol_u64 look_started_us;
	pol_u8 asks;		/* in: may be HIGH at all */
	pol_u8 high;		/* out */
	pol_u8 was_high;	/* in the hold before */
	pol_u8 known;		/* its look has begun; 0 for a new VM */
	pol_u8 wasted_before;	/* so much that it may be HIGH, in its last look */
	pol_u8 reserved[3];
};

struct demand_host {
	pol_u64 until_us;	/* the hold or the look ends */
	pol_u32 held_us;	/* length of the hold, or of the one before this look */
	pol_u8 holds;		/* a hold, not a look */
	pol_u8 reserved[3];
};

/*
 * Whether the parameters make sense: 0, or the number (1-4) of the first field of struct
 * demand_params that does not. demand_step() needs no such check to be safe.
 */
int demand_params_check(const struct demand_params *params);

/*
 * To be called often, at best each turn: sets who is HIGH. A host of zeros begins with a
 * look. Returns 1 in a hold, 0 in a look: then nobody is HIGH.
 */
pol_u8 demand_step(struct demand_host *host, struct demand_vm *vms, pol_u32 count,
		   const struct demand_params *params, pol_u64 now_us);

#endif
