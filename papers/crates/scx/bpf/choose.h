/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Chooses the vCPU that runs on a pCPU next: policy/credit.c, with the state of vCPUs and VMs.
 * Everything but index_of() is called with the lock held.
 */
#ifndef UNSPIN_SCX_CHOOSE_H
#define UNSPIN_SCX_CHOOSE_H

#include "config.h"

#define POL_FOR(i, count) bpf_for(i, 0, count)
#pragma GCC visibility push(hidden)
#include "credit.c"
#pragma GCC visibility pop

#define NOBODY CREDIT_NONE
#define LOCK_TRIES (1 << 22)

const volatile struct config config SEC(".rodata.config");
struct report report SEC(".data.report");

/* Not static: the compiler would take structures apart, and their type information would be wrong. */
struct credit_vcpu vcpus[VCPUS_MAX];
struct credit_vm vms[VMS_MAX];
struct credit_pcpu scratch[PCPUS_MAX];
struct credit_params params;

/* A vCPU's clock: up to when it has paid. */
u64 paid_ns[VCPUS_MAX];

struct place {
	u64 slot_end_ns;
	u32 current;	/* the vCPU that runs there, or NOBODY */
	u32 last;
	u32 came_first;	/* it was raised: no other is raised in its place before the slot ends */
};
struct place places[PCPUS_MAX];

u64 high_until_ns[VMS_MAX];
u64 assign_ns;
u64 raised_in_slot;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VCPUS_MAX);
	__type(key, u32);
	__type(value, u32);
} threads SEC(".maps");

/*
 * One context at a time for policy/credit.c. The holder is in the scheduler with interrupts off,
 * and calls no other code. bpf_spin_lock() forbids functions that the verifier checks separately.
 */
u32 locked;

static __always_inline int lock(void)
{
	int i;

	POL_FOR(i, LOCK_TRIES)
		if (!__sync_lock_test_and_set(&locked, 1))
			return 1;
	__sync_fetch_and_add(&report.lost_locks, 1);
	return 0;
}

static __always_inline void unlock(void)
{
	barrier();
	__sync_lock_test_and_set(&locked, 0);
}

#define HOST { vcpus, vms, scratch, &params, config.vcpu_count, config.vm_count, config.pcpu_count, 0 }

static __always_inline u32 index_of(const struct task_struct *p)
{
	u32 tid = p->pid;
	u32 *found = bpf_map_lookup_elem(&threads, &tid);

	return found && *found < VCPUS_MAX ? *found : NOBODY;
}

/* A vCPU that runs, or ran until now, pays. */
__noinline int charge(u32 i, u64 now)
{
	u64 us;

	if (i >= VCPUS_MAX || now <= paid_ns[i])
		return 0;
	us = (now - paid_ns[i]) / 1000;
	paid_ns[i] += us * 1000;
	credit_charge(&vcpus[i], &params, us);
	if (vcpus[i].vm < VMS_MAX)
		report.run_ns[vcpus[i].vm] += us * 1000;
	return 0;
}

/*
 * Whose vCPUs run together as of now. It is the guest that takes its word back (section 4.1): while
 * none of its vCPUs runs it cannot.
 */
__noinline int refresh_high(u64 now)
{
	u32 vm, i;

	POL_FOR(vm, VMS_MAX) {
		u32 runs = 0;

		POL_FOR(i, VCPUS_MAX)
			runs |= vcpus[i].vm == vm && vcpus[i].running;
		if (config.gang == GANG_NAMED)
			vms[vm].high = !!config.vms[vm].named;
		else if (config.gang == GANG_REPORTED)
			vms[vm].high = high_until_ns[vm] > now || (vms[vm].high && !runs);
		else
			vms[vm].high = 0;
	}
	return 0;
}

/* Algorithm 3. Pinned vCPUs are not moved. */
__noinline int assign(void)
{
	struct credit_host host = HOST;
	u32 i;

	credit_assign(&host);
	POL_FOR(i, VCPUS_MAX)
		if (config.vcpus[i].pinned)
			vcpus[i].pcpu = config.vcpus[i].pcpu;
	return 0;
}

/*
 * Algorithm 4 for a pCPU: the vCPU to run there. *raised is the number of siblings that come first
 * on their pCPUs.
 */
struct picked {
	u32 vcpu, raised;
};
struct picked picked;

__noinline int pick(u32 pcpu, u32 last, u32 may_raise)
{
	struct credit_decision decision;
	struct credit_host host = HOST;

	credit_pick(&host, pcpu, last, !!may_raise, &decision);
	picked.vcpu = decision.vcpu;
	picked.raised = decision.raised;
	return 0;
}

/* The policy does not move raised vCPUs, so mark those pinned to other pCPUs as raised. */
static __always_inline u32 hide_pinned(u32 pcpu)
{
	u32 hidden = 0, i;

	POL_FOR(i, VCPUS_MAX)
		if (config.vcpus[i].pinned && vcpus[i].pcpu != pcpu && !vcpus[i].raised) {
			vcpus[i].raised = 1;
			hidden |= 1u << i;
		}
	return hidden;
}

static __always_inline void show_pinned(u32 hidden, u32 pcpu)
{
	u32 vm = picked.raised && picked.vcpu < VCPUS_MAX ? vcpus[picked.vcpu].vm : NOBODY;
	u32 i;

	POL_FOR(i, VCPUS_MAX)
		if (hidden >> i & 1)
			vcpus[i].raised = vcpus[i].vm == vm && vcpus[i].pcpu != pcpu &&
					  vcpus[i].runnable && !vcpus[i].running;
}

/*
 * Algorithm 4, line 7: the pCPUs of raised siblings are to be interrupted, as bits. Siblings that run
 * begin a slot, or they would leave when their old one ends. Who came first himself stays: two
 * gangs would tear each other apart.
 */
static __always_inline u32 gather(u32 leader, u64 now)
{
	u32 kicks = 0, i;

	POL_FOR(i, VCPUS_MAX) {
		u32 pcpu = vcpus[i].pcpu;

		if (i == leader || vcpus[i].vm != vcpus[leader].vm || pcpu >= PCPUS_MAX)
			continue;
		if (vcpus[i].running)
			places[pcpu].slot_end_ns = now + config.slot_ns;
		else if (vcpus[i].raised && !places[pcpu].came_first)
			kicks |= 1u << pcpu;
	}
	report.gangs++;
	return kicks;
}

/* Chooses the vCPU that runs on a pCPU next, in *picked*. Returns the pCPUs to interrupt. */
__noinline int choose(u32 pcpu, u32 before, u64 now)
{
	u64 slot = now / config.slot_ns;
	u32 hidden, raised = 0, vcpu;
	struct place *place;

	if (pcpu >= PCPUS_MAX)
		return 0;
	place = &places[pcpu];
	if (before < VCPUS_MAX) {
		charge(before, now);
		vcpus[before].running = 0;
		vcpus[before].runnable = 1;
	}
	refresh_high(now);
	if (now >= assign_ns) {
		u64 period = config.slot_ns * params.slots_per_assignment;

		/* Counted from when it was due. Late distributions would give less than vCPUs pay. */
		assign_ns = now - assign_ns < period ? assign_ns + period : now + period;
		assign();
	}
	hidden = hide_pinned(pcpu);
	POL_FOR(vcpu, VCPUS_MAX)
		raised |= (u32)(vcpus[vcpu].raised && vcpus[vcpu].pcpu == pcpu) << vcpu;
	pick(pcpu, place->last, slot != raised_in_slot);
	show_pinned(hidden, pcpu);
	report.picks++;
	vcpu = picked.vcpu;
	if (vcpu != before && before < VCPUS_MAX)
		vcpus[before].runnable = 0;	/* until only this code refers to it */
	if (vcpu >= VCPUS_MAX)
		return 0;
	report.switches += vcpu != before;
	place->last = vcpu;
	place->slot_end_ns = now + config.slot_ns;
	place->came_first = raised >> vcpu & 1;
	if (!picked.raised)
		return 0;
	raised_in_slot = slot;
	place->came_first = 1;
	return gather(vcpu, now);
}

#endif
