/* SPDX-License-Identifier: GPL-2.0-only */
/* What VMs are owed: their virtual times; and what vCPUs are owed by themselves. */
#ifndef UNSPIN_SCHEDULE_OWED_H
#define UNSPIN_SCHEDULE_OWED_H

#include "place.h"
#include "trace.h"

/*
 * By how many of its turns a VM may be ahead of the one before it. That one may not want, or not be able to use, the
 * CPUs that it had. If it then wants them, or one that starts does, it waits for as long as it was ahead. Virtual, by
 * turn_of(). The same for a unit among its siblings, by among_siblings().
 */
#define AHEAD_TURNS 4
#define REBASE (1ull << 60)	/* virtual */
#define PARTS 1024	/* parts of a weight of 1 */

/* A gang whose vCPUs are to run together, or alone. */
static __always_inline u32 is_gang(struct vm *v)
{
	return v->gang && count_bits(vcpus_in(v->waits | v->runs)) > 1;
}

/* A unit that slept is owed no more than a slice of its own before its siblings. */
static __always_inline void lift(struct vm *v, struct unit *u)
{
	u64 slice = among_siblings(u, SLICE_NS);

	if (u->vt + slice < v->unit_vt)
		u->vt = v->unit_vt - slice;
}

/* What vCPUs that are ready for a CPU have shared since the last plan. */
static __always_inline void look_at_parts(u32 cpu, u64 anywhere, u64 passed)
{
	struct cpu *c = &cpus[bound(cpu)];
	u64 host_ns = report.host_ns[bound(cpu)] - c->host_before, most = 2 * config.turn_ns;
	u64 shared = passed > host_ns ? passed - host_ns : 0;

	c->parts = c->parts_next + anywhere;
	c->parts_next = 0;
	c->shared_ns = shared < most ? shared : most;
}

/* A unit's part of its VM's weight: units that are ready have the same. */
static __always_inline u64 part_of(u32 vm, u64 ready)
{
	u32 count = count_bits(ready);

	return (u64)weight_of(vm << 6) * PARTS / (count ? count : 1);
}

/*
 * Whether a ready vCPU is owed more than a turn by itself. Its VM may be ahead by time on CPUs that others cannot use,
 * and those would always come first where one of its vCPUs can use no other CPU. So a vCPU that may use only some CPUs
 * is due, on the one that it ran on last, its part beside the parts of all that are ready for that CPU, as under the
 * fair scheduler. The weights are in the parts, so what it is owed, and the turn, are CPU time.
 */
static __always_inline int look_at_owed(struct unit *u, u64 part)
{
	struct cpu *c = &cpus[bound(u->cpu)];
	s64 turn = config.turn_ns, before = u->owed, owed;

	/* What changes is added: charge() may take from it meanwhile. */
	if (u->choices >= ours) {
		parts_anywhere += part;
		__sync_fetch_and_add(&u->owed, -before);
		return 0;
	}
	c->parts_next += part;
	owed = before + (s64)(c->shared_ns * part / (c->parts > part ? c->parts : part));
	if (owed > 2 * turn)
		owed = 2 * turn;
	if (owed < -turn)
		owed = -turn;
	__sync_fetch_and_add(&u->owed, owed - before);
	return owed > turn;
}

/*
 * Keeps CPUs free for vCPUs that are owed more than a turn by themselves, before gangs have their turns: a gang waits,
 * or has other CPUs, rather than lose one in its turn. Returns how many CPUs these are.
 */
__noinline u32 hold_owed(void)
{
	u32 vm, count = zero;

	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);

		if (v->owed && !is_gang(v))
			count += hold(vm, v->owed);
	}
	return count;
}

/* The virtual time of a turn in which all units of a VM run; strangers may be on each CPU. */
static __always_inline u64 turn_of(u32 vm)
{
	return by_weight(vm << 6, config.turn_ns * (vm == STRANGERS ? ours : vcpus_of(vm) + 1));
}

/*
 * The VM that has had least, but those of a set. Of all; or of those that are ready, where a gang with a vCPU that is
 * owed by itself comes first.
 */
__noinline u32 least_vm(u64 but, u32 of_all)
{
	struct first first = NO_FIRST;
	u32 vm;

	begin_decision(&in_plan);
	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);
		u32 comes_first;
		u64 vt;

		if (but >> (vm & 63) & 1 || !(of_all || v->waits | v->runs))
			continue;
		vt = v->vt;
		comes_first = !of_all && v->owed && is_gang(v);
		note_wish(&in_plan, vt, vm, comes_first, 0);
		consider(&first, turn_key(vt, comes_first), vm);
	}
	return first.id;
}

/* Shortens what VMs are ahead of vnow, and of each other: their order stays, and so do small differences. */
__noinline int close_gaps(void)
{
	u64 done = zero, before = vnow, back = zero;
	u32 i, vm;

	bpf_for(i, 0, VMS_MAX) {
		u64 vt, most;

		vm = least_vm(done, 1);
		if (vm == NOBODY)
			break;
		done |= bit(vm);
		vt = vm_of(vm << 6)->vt;
		if (vt < vnow)
			continue;
		most = AHEAD_TURNS * turn_of(vm);
		if (vt - before > most)
			back += vt - before - most;
		before = vt;
		__sync_fetch_and_sub(&vm_of(vm << 6)->vt, back);
	}
	return 0;
}

/* Takes virtual time from units of a set that have had at least so much. */
static __always_inline void move_back(u32 vm, u64 set, u64 from, u64 back)
{
	u32 unit;

	bpf_for(unit, 0, UNITS) {
		struct unit *u = unit_of(id_of(vm, unit));

		if (set & bit(unit) && u->vt >= from)
			__sync_fetch_and_sub(&u->vt, back);
	}
}

/*
 * Shortens what ready units of a VM are ahead of their siblings, as close_gaps() does among VMs: one that had a CPU to
 * itself would wait for that long if it then has to share a CPU with them. Closes one gap; others are for later plans.
 */
__noinline int close_gap(u32 vm)
{
	u64 set = vm_of(vm << 6)->waits | vm_of(vm << 6)->runs, step = AHEAD_TURNS * config.turn_ns, from = NEVER;
	u32 i, unit;

	bpf_for(unit, 0, UNITS)
		if (set & bit(unit) && unit_of(id_of(vm, unit))->vt < from)
			from = unit_of(id_of(vm, unit))->vt;
	bpf_for(i, 0, UNITS) {
		u64 below = from, above = NEVER, most;
		u32 first = zero;

		bpf_for(unit, 0, UNITS) {
			u64 vt = unit_of(id_of(vm, unit))->vt;

			if (!(set & bit(unit)))
				continue;
			if (vt > from + step) {
				first = vt < above ? unit : first;
				above = vt < above ? vt : above;
			} else if (vt > below) {
				below = vt;
			}
		}
		if (above == NEVER)
			break;
		most = AHEAD_TURNS * among_siblings(unit_of(id_of(vm, first)), config.turn_ns);
		if (above - below > most) {
			move_back(vm, set, above, above - below - most);
			break;
		}
		from = above;
	}
	return 0;
}

/* Virtual times do not overflow: that of a VM of a small weight may grow a million times as fast as time. */
__noinline int rebase(void)
{
	u32 vm;

	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);

		__sync_fetch_and_sub(&v->vt, v->vt > REBASE ? REBASE : v->vt);
	}
	vnow -= REBASE;
	return 0;
}

#endif
