/* SPDX-License-Identifier: GPL-2.0-only */
/* Who runs next on a CPU that asks. */
#ifndef UNSPIN_SCHEDULE_CHOOSE_H
#define UNSPIN_SCHEDULE_CHOOSE_H

#include "yields.h"

static __always_inline u64 had(const struct vm *v)
{
	return beside(v->vt, vnow);
}

/* Its ready unit that has had least, and may run there; NOBODY if there is none. */
__noinline u32 least_unit(u32 vm, u64 set, u32 cpu)
{
	u64 least = NEVER;
	u32 unit, best = NOBODY;

	if (set & bit(OTHERS)) {
		best = OTHERS;
		/* vCPUs of a gang have turns, or fill holes. */
		if (is_gang(vm_of(vm << 6)))
			return best;
		least = unit_of(id_of(vm, OTHERS))->vt;
	}
	bpf_for(unit, 0, vcpus_of(vm)) {
		u32 id = id_of(vm, unit), planned;
		struct unit *u = unit_of(id);

		if (!(set & bit(unit)) || !may_use(u, cpu))
			continue;
		planned = planned_cpu(id);
		if ((planned != NOBODY && planned != cpu) || u->vt >= least)
			continue;
		least = u->vt;
		best = unit;
	}
	return best;
}

/* A VM's units that are ready. Only the timer takes the bit of other threads away: one may be on its way to the queue. */
static __always_inline u64 ready_units(u32 vm)
{
	u64 set = vm_of(vm << 6)->waits;

	if (set & bit(OTHERS) && scx_bpf_dsq_nr_queued(QUEUE + id_of(vm, OTHERS)) <= 0)
		set &= ~bit(OTHERS);
	return set;
}

/* The unit that comes first of those that wait and "before", without those that were tried. */
__noinline u32 pick(u32 cpu, u32 before)
{
	struct first first = NO_FIRST;
	u64 base = vnow;
	u32 vm;

	begin_decision(&on_cpu[bound(cpu)]);
	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);
		u64 set = ready_units(vm), vt, key;
		u32 unit, id, comes_first;

		if (cpus[bound(cpu)].tries || cpus[bound(cpu)].tried_others)
			set &= ~tried(cpu, vm);
		if (before != NOBODY && vm_part(before) == vm)
			set |= bit(unit_part(before));
		if (!set)
			continue;
		unit = least_unit(vm, set, cpu);
		if (unit == NOBODY)
			continue;
		id = id_of(vm, unit);
		vt = v->vt;
		comes_first = is_owed(id);
		key = next_key(vt, base, comes_first);
		if (unit != OTHERS && is_gang(v)) {
			key = behind(key);
			note_wish(&on_cpu[bound(cpu)], vt, id, comes_first, 1);
		} else {
			note_wish(&on_cpu[bound(cpu)], vt, id, comes_first, 0);
		}
		consider(&first, key, id);
	}
	tell(&on_cpu[bound(cpu)], DECIDES_NEXT, base, cpu, before, first.id);
	return first.id;
}

/* Takes a unit that is late and may run there, once in the time between two plans. */
__noinline int take_late(u32 cpu)
{
	struct cpu *c = &cpus[bound(cpu)];
	u32 i, id;

	if (c->late || !late_vms)
		return 0;
	bpf_for(i, 0, TRIES + VMS_MAX) {
		id = late_one(cpu);
		if (id == NOBODY)
			break;
		if (take(id)) {
			/* There may be several threads: those that come next go behind other VMs' units. */
			if (unit_part(id) == OTHERS)
				unit_of(id)->ready_at = bpf_ktime_get_ns();
			c->late = LATE_NEXT;
			return 1;
		}
		if (!note_tried(cpu, id))
			break;
	}
	return 0;
}

/* Takes a thread that is no vCPU, whatever is known of its VM. */
__noinline int take_any_others(void)
{
	u32 vm;

	bpf_for(vm, 0, settings.count) {
		u64 queue = QUEUE + id_of(vm, OTHERS);

		if (scx_bpf_dsq_nr_queued(queue) > 0 && dsq_move_to_local(queue))
			return 1;
	}
	return 0;
}

static __always_inline int take_elsewhere(void)
{
	return scx_bpf_dsq_nr_queued(ELSEWHERE) > 0 && dsq_move_to_local(ELSEWHERE);
}

/* Whether "before" goes on. If not, who is to run there has been moved there, or nobody waits. */
__noinline int choose(u32 cpu, u32 before)
{
	struct cpu *c = &cpus[bound(cpu)];
	u32 id = c->planned, i, yielded = c->yielded, spinner = c->spinner, prefer;

	c->yielded = 0;
	c->spinner = NOBODY;
	c->tries = 0;
	c->tried_others = 0;
	/* A gang may spin on all CPUs, and a VM that is owed more may want one CPU, for ever. */
	if (take_late(cpu))
		return 0;
	prefer = c->prefer;
	c->prefer = NOBODY;
	/*
	 * Also in a turn one that woke up comes first, for a slice, if it is owed more than a turn gives: so a VM that
	 * answers does so as without turns.
	 */
	if (prefer != NOBODY && take(prefer))
		return 0;
	if (id != NOBODY && planned_cpu(id) == cpu) {
		if (id == before)
			return 1;
		if (take(id))
			return 0;
	}
	if (spinner != NOBODY && spinner == before && follow(cpu, spinner))
		return 0;
	bpf_for(i, 0, TRIES + VMS_MAX) {
		id = pick(cpu, yielded ? NOBODY : before);
		if (id == NOBODY)
			break;
		/* Other threads of a VM take turns with each other. */
		if ((id != before || unit_part(id) == OTHERS) && take(id))
			return 0;
		if (id == before)
			return 1;
		if (!note_tried(cpu, id))
			break;
	}
	/* Others are threads that were queued while this CPU was not ours. */
	if (take_any_others() || take_elsewhere())
		return 0;
	return before != NOBODY;
}

#endif
