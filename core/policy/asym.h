/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Asymmetric vCPUs: gives each vCPU of a VM the CPU time and the wake-up latency that its
 * work can use, and keeps the busiest ones on different cores.
 *
 * Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey
 * Institute of Technology, sections 5.4.1-5.4.3 (dynamic asymmetric virtual CPUs). At the end
 * of each allocation period the caller fills in what every vCPU did, calls asym_latency and
 * asym_allocate for each VM and the two resolvers for the host, and applies what they
 * wrote: allocated_ns (as weights within the VM), latency_us (as wake-up granularity), core.
 * One context at a time for a given array. Nothing here locks, allocates or reads a clock.
 *
 * The text leaves some points open. Here:
 *  - A latency is halved or doubled. "High urgency" is a latency of at most urgent_us.
 *  - No prediction falls below demand_min_us. Otherwise a vCPU that slept through a period
 *    would never get time again.
 *  - The demand of a vCPU that used more than it was given grows from what it used.
 *  - The time resolver swaps the pair that leaves the least difference. The urgency resolver
 *    swaps as many pairs as the smaller half has.
 *  - Neither resolver moves a vCPU to a core with as many siblings as the core it leaves,
 *    except by a swap with a sibling. The set-up of the text places vCPUs of a VM on different
 *    cores (5.5.2), and undoing this would cost as much as a resolver gains.
 */
#ifndef UNSPIN_POLICY_ASYM_H
#define UNSPIN_POLICY_ASYM_H

#include "types.h"

#define ASYM_PPM 1000000u
#define ASYM_WAKERS_MAX 64u
/* Predictions saturate here, at 18 minutes, so that sums of 2^23 of them fit. */
#define ASYM_DEMAND_MAX_NS ((pol_u64)1 << 40)

struct asym_params {
	pol_u32 grow_ppm;	/* by this much a demand that was not met is predicted higher */
	pol_u32 demand_min_us;	/* least prediction */
	pol_u32 latency_min_us;	/* bounds of the wake-up latency, at least 1 */
	pol_u32 latency_max_us;
	pol_u32 latency_init_us;	/* of a new vCPU */
	pol_u32 urgent_us;	/* a latency at or below it is of high urgency */
	pol_u32 imbalance_ppm;	/* cores that differ by more in allocated time conflict */
	pol_u32 conflict_ratio;	/* cores whose conflicts differ by more than this factor do */
};

#define ASYM_GROW_PPM 100000u		/* 10 %, section 5.4.1 */
#define ASYM_DEMAND_MIN_US 1000u
#define ASYM_LATENCY_MIN_US 250u
#define ASYM_LATENCY_MAX_US 16000u
#define ASYM_LATENCY_INIT_US 4000u	/* CFS's wake-up granularity on 8 CPUs and more */
#define ASYM_URGENT_US 1000u
#define ASYM_IMBALANCE_PPM 100000u	/* 10 %, section 5.4.3 */
#define ASYM_CONFLICT_RATIO 2u		/* 2x, section 5.4.3 */

struct asym_vcpu {
	pol_u64 allocated_ns;	/* what it was given; also its predicted demand (5.4.1) */
	pol_u64 consumed_ns;	/* CPU time it used in the period that ended */
	pol_u64 wakers;		/* bit i: vCPU i of its VM sent it a wake-up IPI */
	pol_u32 latency_us;
	pol_u32 core;
	pol_u8 ready;		/* it is runnable at the end of the period */
	pol_u8 change;		/* scratch of asym_latency */
	pol_u16 vm;		/* its VM: siblings are kept apart */
	pol_u8 reserved[4];
};

struct asym_core {
	pol_u64 allocated_ns;	/* written by asym_resolve_time */
	/*
	 * How often in the period a vCPU of high urgency was preempted on this core, or waited
	 * longer than its latency after it became ready.
	 */
	pol_u64 conflicts;
	pol_u32 vcpus;		/* written by asym_resolve_time */
	pol_u32 reserved;
};

/*
 * Returns 0 if the parameters are consistent, or the number of the first wrong field of struct
 * asym_params. Checked in the order 1 (above 10^6), 3 (0), 4 (below 3), 5 (outside both), 6 (not
 * below 4: everything would be urgent), 8 (0). The other functions are safe without this check.
 */
int asym_params_check(const struct asym_params *params);

/* Initialises a new vCPU, which is on this core. */
void asym_vcpu_init(struct asym_vcpu *vcpu, const struct asym_params *params, pol_u32 core);

/*
 * Section 5.4.2, on all vCPUs of one VM, before asym_allocate(). A late vCPU (ready, with time
 * left) gets a lower latency. If it has the lowest already, those that woke it (up to index 63)
 * get a lower one. A vCPU that is not urgent (idle, its time used) gets a higher one. A latency is
 * lowered at most once per period, and not raised in a period in which it is lowered.
 */
void asym_latency(struct asym_vcpu *vcpus, pol_u32 count, const struct asym_params *params);

/*
 * Section 5.4.1, on all vCPUs of one VM: predict each demand and distribute the VM's CPU
 * time of the next period in proportion. It distributes vm_ns minus switch_ns, the cost of
 * switching the VM's vCPUs (its footnote 3), to the nanosecond; each vCPU's part is exact to one
 * nanosecond. If all demands are 0, they count as equal.
 */
void asym_allocate(struct asym_vcpu *vcpus, pol_u32 count, const struct asym_params *params,
		   pol_u64 vm_ns, pol_u64 switch_ns);

/*
 * Section 5.4.3, demands for CPU time, on the vCPUs of all VMs. If the core with the most
 * allocated time has over 10 % more than the one with the least, it swaps the two of their
 * vCPUs that leave the least difference, or moves one if the lesser core has fewer vCPUs.
 * Siblings stay on different cores.
 * Returns how many changed their core (0, 1 or 2). vCPUs on no core of cores[] are left out.
 */
pol_u32 asym_resolve_time(struct asym_vcpu *vcpus, pol_u32 count, struct asym_core *cores,
			  pol_u32 core_count, const struct asym_params *params);

/*
 * Section 5.4.3, urgent demands. If the core with the most conflicts has over twice as many as
 * the core with the fewest, it swaps half of its vCPUs of high urgency with half of the other
 * core's of low urgency. Halves are rounded down, in order. Siblings stay on different cores.
 * Returns how many changed their core.
 */
pol_u32 asym_resolve_urgency(struct asym_vcpu *vcpus, pol_u32 count,
			     const struct asym_core *cores, pol_u32 core_count,
			     const struct asym_params *params);

#endif
