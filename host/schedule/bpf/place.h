/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where vCPUs run in the turn that is being planned: whole cores before second threads, and one last-level cache
 * and node if there is room (the order of config.cpus, and config.places).
 */
#ifndef UNSPIN_SCHEDULE_PLACE_H
#define UNSPIN_SCHEDULE_PLACE_H

#include "state.h"

/* Keeps a CPU free in the turn that is being planned. */
#define HELD 0xfffffffeu

static __always_inline u32 cpu_at(u32 i)
{
	asm volatile("" : "+r"(i));
	return config.cpus[i & (CPUS_MAX - 1)];
}

static __always_inline int is_free(u32 cpu)
{
	struct cpu *c = &cpus[bound(cpu)];

	return is_ours(cpu) && !c->is_off && !c->is_taken && c->next == NOBODY;
}

static __always_inline void give(u32 id, u32 cpu)
{
	cpus[bound(cpu)].next = id;
	unit_of(id)->next = cpu;
}

static __always_inline u32 place_of(u32 cpu)
{
	return config.places[bound(cpu)];
}

/* The first free CPU that a vCPU may use, the one that it ran on before others; NOBODY if there is none. */
__noinline u32 free_for(u32 id)
{
	struct unit *u = unit_of(id);
	u32 i, last = u->cpu;

	if (is_free(last) && may_use(u, last))
		return last;
	bpf_for(i, 0, config.cpu_count)
		if (is_free(cpu_at(i)) && may_use(u, cpu_at(i)))
			return cpu_at(i);
	return NOBODY;
}

/*
 * Where in the list of CPUs a place begins that has this many free ones: where the vCPU ran last if it has, else
 * the first; NOBODY if none has.
 */
__noinline u32 room_for(u32 count, u32 id)
{
	u32 i, begin = zero, free = zero, place = NOBODY, best = NOBODY, last = place_of(unit_of(id)->cpu);

	bpf_for(i, 0, config.cpu_count) {
		if (place_of(cpu_at(i)) != place) {
			place = place_of(cpu_at(i));
			begin = i;
			free = zero;
		}
		free += is_free(cpu_at(i));
		if (free < count)
			continue;
		if (place == last)
			return begin;
		if (best == NOBODY)
			best = begin;
	}
	return best;
}

/* Gives vCPUs of a set that may use all CPUs a free one: from a place on, or, without, the one that they ran on. */
__noinline u32 place_rest(u32 vm, u64 set, u32 from)
{
	u32 unit, at = from, placed = zero, i;

	bpf_for(unit, 0, vcpus_of(vm)) {
		struct unit *u = unit_of(id_of(vm, unit));
		u32 last = u->cpu;

		if (!(set & bit(unit)) || !is_free(last) ||
		    (from != NOBODY && place_of(last) != place_of(cpu_at(from))))
			continue;
		give(id_of(vm, unit), last);
		placed++;
	}
	at = from == NOBODY ? zero : from;
	unit = zero;
	bpf_for(i, 0, CPUS_MAX + UNITS) {
		u32 cpu = cpu_at(at);
		struct unit *u;

		if (unit >= vcpus_of(vm))
			break;
		u = unit_of(id_of(vm, unit));
		if (!(set & bit(unit)) || u->next != NOBODY) {
			unit++;
			continue;
		}
		if (is_free(cpu)) {
			give(id_of(vm, unit), cpu);
			placed++;
			unit++;
		}
		at = at + 1 < config.cpu_count ? at + 1 : zero;
	}
	return placed;
}

/*
 * Gives each vCPU of a set a CPU: first those that may use only one, then those that may use some, and at last
 * those that may use all, in one place if there is room. Returns how many got one.
 */
__noinline u32 place(u32 vm, u64 set)
{
	u64 rest = set;
	u32 unit, placed = zero, pass, first = NOBODY;

	bpf_for(pass, 0, 2) {
		bpf_for(unit, 0, vcpus_of(vm)) {
			u32 id = id_of(vm, unit), choices = unit_of(id)->choices, cpu;

			if (!(set & bit(unit)) || choices >= ours || (choices == 1) == pass)
				continue;
			rest &= ~bit(unit);
			cpu = free_for(id);
			if (cpu == NOBODY)
				continue;
			give(id, cpu);
			placed++;
		}
	}
	bpf_for(unit, 0, vcpus_of(vm))
		if (rest & bit(unit) && first == NOBODY)
			first = id_of(vm, unit);
	if (first == NOBODY)
		return placed;
	return placed + place_rest(vm, rest, room_for(count_bits(rest), first));
}

/* Takes back what place() gave: siblings would wait for the vCPU that got none. */
static __always_inline void take_back(u32 vm)
{
	u32 unit;

	bpf_for(unit, 0, vcpus_of(vm)) {
		struct unit *u = unit_of(id_of(vm, unit));

		if (u->next != NOBODY)
			cpus[bound(u->next)].next = NOBODY;
		u->next = NOBODY;
	}
}

/*
 * Keeps CPUs free for those vCPUs of a VM without a turn that may use only some: gangs can use others. Returns how
 * many CPUs its units need.
 */
__noinline u32 hold(u32 vm, u64 set)
{
	u32 unit, count = set >> OTHERS & 1;	/* other threads may have different CPUs */

	bpf_for(unit, 0, vcpus_of(vm)) {
		u32 id = id_of(vm, unit), cpu;

		if (!(set & bit(unit)))
			continue;
		if (unit_of(id)->choices >= ours) {
			count++;
			continue;
		}
		cpu = free_for(id);
		if (cpu == NOBODY)
			continue;
		cpus[bound(cpu)].next = HELD;
		cpus[bound(cpu)].held = id;
		count++;
	}
	return count;
}

#endif
