/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which vCPU gets the CPU that a sibling gives up because it spins: HVS's choice (core/policy/hvs.h), among those
 * of its VM that are ready. The kernel's own choice, ops.yield(), only says that there is one.
 */
#ifndef UNSPIN_SCHEDULE_YIELDS_H
#define UNSPIN_SCHEDULE_YIELDS_H

#include "plan.h"

#define POL_FOR(i, count) bpf_for(i, 0, count)
#define POL_ZERO zero
#pragma GCC visibility push(hidden)
#include "hvs.c"
#pragma GCC visibility pop

/* Whether a vCPU that lost its CPU was in the guest's user mode is not known here. */
#define HVS_FLAGS (HVS_ADDED & ~HVS_USER_MODE_LAST)

_Static_assert(UNITS <= HVS_SLOTS_MAX, "all vCPUs of a VM are considered");

struct slots {
	struct hvs_slot of[HVS_SLOTS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slots);
} slots SEC(".maps");

static __always_inline int take(u32 id)
{
	return vm_of(id)->waits & bit(unit_part(id)) && dsq_move_to_local(QUEUE + id);
}

/* A vCPU has no CPU any longer: it could have run on, or it sleeps. */
static __always_inline void note_off(struct unit *u, int runnable, u64 now)
{
	__u8 mark = u->mark;

	u->off_at = now;
	u->category = HVS_NOT_PREEMPTED;
	if (runnable) {
		u->category = hvs_category_on_preempt(u->in_exit, 0, &mark, HVS_FLAGS);
		u->mark = mark;
	}
}

/* The vCPU that gets a CPU from one that spins there, of those that were not tried; NOBODY if none is to. */
__noinline u32 choice(u32 id, u32 cpu, u64 tried)
{
	u32 vm = vm_part(id), count = vcpus_of(vm) & (UNITS - 1), key = 0, unit;
	struct vm *v = vm_of(id);
	struct slots *all = bpf_map_lookup_elem(&slots, &key);
	s32 picked;

	if (!all)
		return NOBODY;
	bpf_for(unit, 0, count) {
		u32 of = id_of(vm, unit), planned = planned_cpu(of);
		struct unit *u = unit_of(of);
		struct hvs_slot *slot = &all->of[unit & (HVS_SLOTS_MAX - 1)];

		slot->running = !!(v->runs & bit(unit));
		slot->ready = !slot->running && v->waits & bit(unit);
		slot->category = slot->running ? HVS_NOT_PREEMPTED : u->category;
		if (slot->ready && slot->category == HVS_NOT_PREEMPTED)
			slot->category = HVS_WOKEN;	/* it slept */
		slot->preempted_at = u->off_at;
		slot->cpu = u->cpu;
		slot->user_mode = 0;
		if (!may_use(u, cpu) || (planned != NOBODY && planned != cpu))
			tried |= bit(unit);
	}
	picked = hvs_pick(all->of, count, unit_part(id), tried, HVS_FLAGS);
	tell_yield(cpu, id, tried, picked, all, count, HVS_FLAGS);
	if (picked == HVS_PICK_GIVE_WAY)
		__sync_fetch_and_add(&report.gave_way, 1);
	return picked < 0 ? NOBODY : (u32)picked;
}

/* Gives a CPU to a sibling of the vCPU that spins there; whether there was one. */
static __always_inline int follow(u32 cpu, u32 id)
{
	u64 tried = zero;
	u32 i;

	bpf_for(i, 0, HVS_TRIES) {
		u32 unit = choice(id, cpu, tried);

		if (unit == NOBODY)
			break;
		unit &= UNITS - 1;
		if (take(id_of(vm_part(id), unit))) {
			unit_of(id_of(vm_part(id), unit))->mark = 1;
			__sync_fetch_and_add(&report.yields, 1);
			return 1;
		}
		tried |= bit(unit);
	}
	return 0;
}

#endif
