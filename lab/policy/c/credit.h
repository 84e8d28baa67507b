/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Credit: proportional shares by credits per vCPU; a VM's vCPUs may run together.
 *
 * Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
 * sections 3.3, 4.1, 4.4 and 4.5, Algorithms 3 and 4. One code for three schedulers, which differ
 * in the VMs that the caller marks as HIGH: none for plain Credit; the named ones for static
 * coscheduling (CON, section 5.3); those that vcrd.h finds for ASMan. The caller keeps time: it
 * calls credit_assign() every slots_per_assignment slots, then credit_pick() for each PCPU in every
 * slot and when a vCPU blocks or wakes, and credit_charge() for the time that ran. One context at a
 * time for a given array. Nothing here locks, allocates or reads a clock.
 *
 * The paper leaves some points open. Here credits stay within credit_max in both directions, as Xen
 * bounds them. Of several PCPUs without a vCPU of the VM, the one with the fewest queued is taken,
 * then the lowest. Equal credits take turns, from after the vCPU that ran last. A raised vCPU runs
 * whatever its credit is, and pays. A work-conserving host gives time for which no VM has credit to
 * the largest credit; a capped one (section 5.2) idles.
 */
#ifndef UNSPIN_POLICY_CREDIT_H
#define UNSPIN_POLICY_CREDIT_H

#include "types.h"

typedef __INT64_TYPE__ pol_s64;

#define CREDIT_NONE 0xffffffffu
#define CREDIT_LIMIT 0x40000000u	/* bound of credit_max, so that sums of 2^32 of them fit */

struct credit_params {
	pol_u32 slot_us;		/* the basic unit of scheduling */
	pol_u32 slots_per_assignment;	/* K */
	pol_u32 credit_per_slot;	/* Cred_unit: what a running vCPU pays per slot */
	pol_u32 credit_max;		/* credits stay within -credit_max..credit_max; ours */
	pol_u32 capped;			/* 1: non work-conserving */
};

#define CREDIT_SLOT_US 10000u		/* section 3.3 */
#define CREDIT_SLOTS_PER_ASSIGNMENT 3u	/* 30 ms, section 3.3 */
#define CREDIT_PER_SLOT 10000u		/* one per microsecond */
#define CREDIT_MAX 30000u		/* what a whole core yields per assignment */

struct credit_vm {
	pol_u32 weight;
	pol_u8 high;		/* its vCPUs run together, now */
	pol_u8 was_high;	/* and did at the last assignment */
	pol_u8 reserved[2];
	pol_u32 vcpus;		/* scratch of credit_assign, like the next two */
	pol_u32 served;
	pol_u64 part;
};

struct credit_vcpu {
	pol_s64 credit;
	pol_u32 vm;		/* index of its VM */
	pol_u32 pcpu;		/* whose run queue it is in, or runs on */
	pol_u8 runnable;	/* running or ready, not blocked */
	pol_u8 running;		/* on its PCPU now */
	pol_u8 raised;		/* its priority is, until it has run (Algorithm 4, line 7) */
	pol_u8 reserved[5];
};

/* One PCPU, scratch of credit_assign. */
struct credit_pcpu {
	pol_u32 queued;
	pol_u32 of_vm;
};

/* All vCPUs, VMs and PCPUs. credit_pick needs no pcpus. */
struct credit_host {
	struct credit_vcpu *vcpus;
	struct credit_vm *vms;
	struct credit_pcpu *pcpus;
	const struct credit_params *params;
	pol_u32 count;		/* of vcpus */
	pol_u32 vm_count;
	pol_u32 pcpu_count;
	pol_u32 reserved;
};

/* What credit_pick decided for one PCPU. */
struct credit_decision {
	pol_u32 vcpu;		/* the vCPU that runs; CREDIT_NONE: the idle one */
	pol_u32 migrated;	/* 1: it came from another run queue */
	pol_u32 raised;		/* siblings raised: their PCPUs are to be interrupted */
};

/*
 * Whether the parameters make sense: 0, or the number (1-5) of the first field of struct
 * credit_params that does not: 1, 2 or 3 is 0; 4 is 0 or above CREDIT_LIMIT; 5 is
 * neither 0 nor 1. Nothing else here needs such a check to be safe.
 */
int credit_params_check(const struct credit_params *params);

/*
 * Algorithm 3. Each VM gets its weight's part (Equation 1, over all VMs) of what the PCPUs yield
 * per assignment, exact to one credit, and its vCPUs get equal parts of it. If all weights are 0,
 * they count as equal. Then the vCPUs of each VM that has become HIGH go to run queues of different
 * PCPUs, as far as there are as many; running ones stay. vCPUs of no VM in vms[] are left alone.
 * Returns how many were moved.
 */
pol_u32 credit_assign(const struct credit_host *host);

/* A vCPU ran for ran_us: it pays credit_per_slot a slot, rounded down, to -credit_max at most. */
void credit_charge(struct credit_vcpu *vcpu, const struct credit_params *params, pol_u64 ran_us);

/*
 * Algorithm 4 for one PCPU that has nothing to run, or whose slot ended (then its vCPU
 * is no longer marked running). Marks the vCPU it picks running and on that PCPU. may_raise is 1
 * for the first PCPU in a slot that schedules a vCPU of a HIGH VM: the paper's mutex. last is
 * the vCPU that ran there last, any number for none.
 */
void credit_pick(const struct credit_host *host, pol_u32 pcpu, pol_u32 last, pol_u8 may_raise,
		 struct credit_decision *decision);

#endif
