/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Demand: which VMs should run in turns, judged from outside by what their vCPUs waste.
 *
 * Turns that help remove their own reason: a VM whose vCPUs run together does not spin. So VMs are
 * judged without turns. In a *look* of some milliseconds there are no turns. VMs that waste more
 * than a share of their CPU time are HIGH for a *hold*, and then the next look begins. If it finds
 * the same VMs, the next hold is twice as long; otherwise it has the shortest length. VMs that are
 * LOW are also watched during a hold, and may become HIGH in it. Waste comes in bursts, so a VM that
 * was LOW must waste as much in two looks in a row, and one that was HIGH stays HIGH while it
 * wastes half as much.
 *
 * In ASMan (Weng, Liu, Yu, Li, HPDC 2011) the guest reports when it waited too long for a lock
 * (vcrd.h). Here the guest is not asked: waste is the time in pause-loop exits, and any other
 * spinning that the caller knows of.
 *
 * The caller passes sums that only grow, in any unit of CPU time, and calls from one context at a
 * time for given arrays. Nothing here locks, allocates or reads a clock.
 */
#ifndef UNSPIN_POLICY_DEMAND_H
#define UNSPIN_POLICY_DEMAND_H

#include "types.h"

#define DEMAND_PPM 1000000u

struct demand_params {
	pol_u32 threshold_ppm;	/* a VM that wastes this share of its CPU time is HIGH, 1-10^6; half keeps it HIGH */
	pol_u32 look_us;	/* length of a look, at least 1 */
	pol_u32 hold_us;	/* shortest hold, at least 1 */
	pol_u32 hold_max_us;	/* longest, at least hold_us */
};

#define DEMAND_THRESHOLD_PPM 50000u
#define DEMAND_LOOK_US 20000u
#define DEMAND_HOLD_US 100000u
#define DEMAND_HOLD_MAX_US 1600000u

struct demand_vm {
	pol_u64 wasted, cpu;		/* in: sums so far */
	pol_u64 wasted_base, cpu_base;	/* at the start of the look */
	pol_u64 look_started_us;
	pol_u8 asks;		/* in: it may be HIGH */
	pol_u8 high;		/* out */
	pol_u8 was_high;	/* it was HIGH in the last hold */
	pol_u8 known;		/* its look has begun; 0 for a new VM */
	pol_u8 wasted_before;	/* it wasted enough in its last look */
	pol_u8 reserved[3];
};

struct demand_host {
	pol_u64 until_us;	/* when the hold or the look ends */
	pol_u32 held_us;	/* length of this hold, or of the one before this look */
	pol_u8 holds;		/* 1: a hold, 0: a look */
	pol_u8 reserved[3];
};

/*
 * Returns 0 if the parameters are valid, or the number (1-4) of the first wrong field of struct
 * demand_params. demand_step() is safe without this check.
 */
int demand_params_check(const struct demand_params *params);

/*
 * Sets which VMs are HIGH. Call it often, at best in each turn. A zeroed host begins with a look.
 * Returns 1 in a hold, 0 in a look, in which no VM is HIGH.
 */
pol_u8 demand_step(struct demand_host *host, struct demand_vm *vms, pol_u32 count,
		   const struct demand_params *params, pol_u64 now_us);

#endif
