/* SPDX-License-Identifier: GPL-2.0-only */
/* What VMs and their units are owed: their virtual times. */
#ifndef UNSPIN_SCHEDULE_OWED_H
#define UNSPIN_SCHEDULE_OWED_H

#include "place.h"

#define NEVER (~0ull)
/*
 * By how many of its turns a VM may be ahead of the one before it. That one may not want, or not be able to use, the
 * CPUs that it had. If it then wants them, or one that starts does, it waits for as long as it was ahead. Virtual, by
 * turn_of().
 */
#define AHEAD_TURNS 4
#define REBASE (1ull << 60)	/* virtual */

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

/* The virtual time of a turn in which all units of a VM run; strangers may be on each CPU. */
static __always_inline u64 turn_of(u32 vm)
{
	return by_weight(vm << 6, config.turn_ns * (vm == STRANGERS ? ours : vcpus_of(vm) + 1));
}

/* The VM that has had least, but those of a set; of those that are ready, or of all. */
__noinline u32 least_vm(u64 but, u32 of_all)
{
	u64 least = NEVER;
	u32 vm, best = NOBODY;

	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);

		if (but >> (vm & 63) & 1 || v->vt >= least || !(of_all || v->waits | v->runs))
			continue;
		least = v->vt;
		best = vm;
	}
	return best;
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
