/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who runs where in the next turn. The timer plans; only one CPU at a time does. A VM whose vCPUs spin for each
 * other is a gang: in its turn each of them that is ready has a CPU of its own. It gets a turn when no other VM
 * is owed more. VMs that are no gangs have no turns: their vCPUs are chosen one by one.
 */
#ifndef UNSPIN_SCHEDULE_PLAN_H
#define UNSPIN_SCHEDULE_PLAN_H

#include "owed.h"

/* Time that passes until the timer looks again where no gang has a turn. */
#define LOOK_NS (2 * MS)
/* CPU time of a VM, whatever its weight, after which it is judged whether it spins. */
#define JUDGE_NS (20 * MS)
/* Time that passes until a gang is judged again. */
#define GANG_NS (400 * MS)
/* Pause-loop exits per second of CPU time, whatever the VM's weight, that make a gang. */
#define SPINS_PER_S 500
/*
 * After how many turns a vCPU or a stranger is late; a VM's other threads are after one. Gangs wait for many. Time that
 * passes, whatever the weight.
 */
#define LATE_TURNS 64

/* A turn whose timer does not come, so that no other follows, counts for one turn more. */
static __always_inline int turn_counts(void)
{
	return bpf_ktime_get_ns() <= turn_end + config.turn_ns;
}

/* Where a unit is to run in this turn, or NOBODY. */
static __always_inline u32 planned_cpu(u32 id)
{
	u32 cpu = unit_of(id)->planned;

	if (!vm_of(id)->in_turn || cpu == NOBODY || cpus[bound(cpu)].planned != id)
		return NOBODY;
	return turn_counts() ? cpu : NOBODY;
}

/* Whether its pause-loop exits make it a gang; now and then it is no gang for a while, to see. */
__noinline int judge(u32 vm, u64 now)
{
	struct vm *v;
	u64 ran, spins;
	u32 gang;

	asm volatile("" : "+r"(vm));
	vm &= VMS_MAX - 1;
	v = &vms[vm];
	gang = settings.vms[vm].gang;
	if (now < v->apart_until || vcpus_of(vm) > ours)
		gang = GANG_NEVER;
	if (gang != GANG_AUTO) {
		v->gang = gang != GANG_NEVER;
		return 0;
	}
	ran = report.vms[vm].ran_ns - v->looked_ran;
	spins = report.vms[vm].spins - v->looked_spins;
	if (v->gang ? now < v->gang_until : ran < JUDGE_NS)
		return 0;
	v->gang = !v->gang && spins * (1000 * MS) >= SPINS_PER_S * ran;
	v->gang_until = now + GANG_NS;
	v->looked_ran += ran;
	v->looked_spins += spins;
	return 0;
}

/* Notes vCPUs that are in a queue whose bit is not set: the number of a thread may have changed meanwhile. */
__noinline int look_at_queues(u32 vm, u64 now)
{
	struct vm *v = vm_of(vm << 6);
	u32 unit;

	bpf_for(unit, 0, vcpus_of(vm)) {
		u32 id = id_of(vm, unit);

		if (v->waits & bit(unit) || scx_bpf_dsq_nr_queued(QUEUE + id) <= 0)
			continue;
		unit_of(id)->ready_at = now;
		__sync_fetch_and_or(&v->waits, bit(unit));
	}
	return 0;
}

static __always_inline void note_late(u32 vm, u64 late)
{
	late_vms = late ? late_vms | bit(vm) : late_vms & ~bit(vm);
}

/*
 * Which units of a VM are late or owed, and what the least virtual time of those that are ready is. Whether one is far
 * ahead of another.
 */
__noinline int look_at_units(u32 vm, u64 now)
{
	struct vm *v = vm_of(vm << 6);
	u64 set, late = zero, owed = zero, least = NEVER, most = zero, part;
	u32 unit;

	/* Threads that left the queue without having run are no longer there. */
	if (scx_bpf_dsq_nr_queued(QUEUE + id_of(vm, OTHERS)) > 0)
		__sync_fetch_and_or(&v->waits, bit(OTHERS));
	else
		__sync_fetch_and_and(&v->waits, ~bit(OTHERS));
	set = v->waits | v->runs;
	if (!set) {
		v->late = v->owed = 0;
		note_late(vm, 0);
		return 0;
	}
	part = part_of(vm, set);
	bpf_for(unit, 0, UNITS) {
		struct unit *u = unit_of(id_of(vm, unit));
		u64 wait = config.turn_ns * (unit == OTHERS && vm != STRANGERS ? 1 : LATE_TURNS);

		if (!(set & bit(unit)))
			continue;
		if (u->vt < least)
			least = u->vt;
		if (u->vt > most)
			most = u->vt;
		if (v->waits & bit(unit) && u->ready_at + wait < now)
			late |= bit(unit);
		if (unit != OTHERS && look_at_owed(u, part))
			owed |= bit(unit);
	}
	v->late = late;
	v->owed = owed;
	note_late(vm, late);
	if (least != NEVER && least > v->unit_vt)
		v->unit_vt = least;
	return most > least + AHEAD_TURNS * config.turn_ns;
}

/* Its unit that is late, may run there, and has been ready for longest; NOBODY if there is none. */
__noinline u32 late_unit(u32 vm, u32 cpu)
{
	struct vm *v = vm_of(vm << 6);
	u64 first = NEVER, set = v->late & v->waits & ~tried(cpu, vm);
	u32 unit, best = NOBODY;

	bpf_for(unit, 0, UNITS) {
		struct unit *u = unit_of(id_of(vm, unit));

		if (!(set & bit(unit)) || !may_use(u, cpu) || u->ready_at >= first)
			continue;
		first = u->ready_at;
		best = unit;
	}
	return best;
}

/* The one of all VMs. */
__noinline u32 late_one(u32 cpu)
{
	u64 first = NEVER;
	u32 vm, best = NOBODY;

	bpf_for(vm, 0, settings.count) {
		u32 unit, id;

		if (!vm_of(vm << 6)->late)
			continue;
		unit = late_unit(vm, cpu);
		if (unit == NOBODY)
			continue;
		id = id_of(vm, unit);
		if (unit_of(id)->ready_at >= first)
			continue;
		first = unit_of(id)->ready_at;
		best = id;
	}
	return best;
}

/*
 * Which VMs have other threads that run. All of a VM's have one bit: the first that stops takes it away while others
 * run, and a stranger that became a VM's thread while it ran leaves it behind.
 */
__noinline int look_at_others(void)
{
	u32 i, vm;

	/* Cleared first: running() sets the bit of a thread that starts meanwhile after it has set the CPU's id. */
	bpf_for(vm, 0, settings.count)
		__sync_fetch_and_and(&vm_of(vm << 6)->runs, ~bit(OTHERS));
	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i), id = cpus[bound(cpu)].id;

		if (id != NOBODY && unit_part(id) == OTHERS && is_ours(cpu))
			__sync_fetch_and_or(&vm_of(id)->runs, bit(OTHERS));
	}
	return 0;
}

/*
 * VMs pay, and none is owed more than it could use in two turns. Where nobody waits, none is owed anything: all
 * have what they want.
 */
__noinline int settle(u64 now, u64 passed)
{
	u64 waiting = NEVER, running = zero, floor, anywhere = parts_anywhere / (ours ? ours : 1);
	u32 i, vm, look = zero, ahead = zero;

	parts_anywhere = 0;
	bpf_for(i, 0, config.cpu_count) {
		charge(cpu_at(i), by_count(cpu_at(i), now));
		charge_host(cpu_at(i), now);
		look_at_parts(cpu_at(i), anywhere, passed);
	}
	look_at_others();
	if (now - looked_at > 1000 * MS) {
		looked_at = now;
		look = 1;
	}
	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);

		if (look)
			look_at_queues(vm, now);
		if (look_at_units(vm, now))
			close_gap(vm);
		if (v->waits && v->vt < waiting)
			waiting = v->vt;
		if (v->runs && v->vt > running)
			running = v->vt;
	}
	floor = waiting != NEVER ? waiting : running;
	if (floor > vnow)
		vnow = floor;
	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);
		u64 turn = turn_of(vm), vt = v->vt;

		judge(vm, now);
		/* Added: other CPUs charge it meanwhile. */
		if (vt + 2 * turn < vnow)
			__sync_fetch_and_add(&v->vt, vnow - 2 * turn - vt);
		ahead |= vt > vnow + AHEAD_TURNS * turn;
	}
	if (ahead)
		close_gaps();
	if (vnow > 2 * REBASE)
		rebase();
	return 0;
}

/* A unit runs on a CPU, or goes on there: whether it fills a hole. There is none where the vCPU of the turn waits. */
static __always_inline void has_cpu(u32 cpu, u32 id)
{
	struct cpu *c = &cpus[bound(cpu)];
	u32 planned = c->planned;

	c->fills = unit_part(id) != OTHERS && is_gang(vm_of(id)) && planned != id &&
		   (planned == NOBODY || !(vm_of(planned)->waits & bit(unit_part(planned))));
}

static __always_inline void want(const struct unit *u)
{
	u32 word;

	for (word = 0; word < MASK_WORDS; word++)
		wanted[word] |= u->mask[word];
}

/* The CPUs that units which wait may use. One that has a CPU in this turn waits for that. */
__noinline int look_who_waits(void)
{
	u32 i, vm, unit;

	for (i = 0; i < MASK_WORDS; i++)
		wanted[i] = 0;
	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);

		if (!v->waits)
			continue;
		bpf_for(unit, 0, vcpus_of(vm)) {
			struct unit *u = unit_of(id_of(vm, unit));

			if (v->waits & bit(unit) && planned_cpu(id_of(vm, unit)) == NOBODY)
				want(u);
		}
		/* The bit of other threads stays until the next plan. */
		if (v->waits & bit(OTHERS) && scx_bpf_dsq_nr_queued(QUEUE + id_of(vm, OTHERS)) > 0)
			want(unit_of(id_of(vm, OTHERS)));
	}
	return 0;
}

/* Whether a CPU runs something else than it is to; if so, how it is told. */
__noinline u64 kick_of(u32 cpu)
{
	struct cpu *c = &cpus[bound(cpu)];
	u32 id = c->id, planned = c->planned;

	if (c->is_off || !is_ours(cpu))
		return 0;
	if (planned != NOBODY && vm_of(planned)->waits & bit(unit_part(planned)))
		return SCX_KICK_PREEMPT;	/* also where no thread of ours runs: it may have been chosen just now */
	if (!(wanted[cpu >> 6 & (MASK_WORDS - 1)] >> (cpu & 63) & 1))
		return 0;
	if (id == NOBODY)
		return SCX_KICK_IDLE;
	/* A gang whose turn has ended. */
	return planned == NOBODY && unit_part(id) != OTHERS && is_gang(vm_of(id)) && !c->fills ?
	       SCX_KICK_PREEMPT : 0;
}

/* The next turn becomes this one. */
__noinline int begin(void)
{
	u32 i, vm, unit;

	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);
		u32 in_turn = zero;

		bpf_for(unit, 0, vcpus_of(vm)) {
			struct unit *u = unit_of(id_of(vm, unit));

			u->planned = u->next;
			in_turn |= u->next != NOBODY;
		}
		v->in_turn = in_turn;
		if (in_turn)
			report.vms[vm & (VMS_MAX - 1)].gangs++;
	}
	bpf_for(i, 0, config.cpu_count) {
		struct cpu *c = &cpus[bound(cpu_at(i))];

		c->planned = c->next == HELD ? NOBODY : c->next;
		c->late = 0;
	}
	look_who_waits();
	bpf_for(i, 0, config.cpu_count) {
		struct cpu *c = &cpus[bound(cpu_at(i))];
		u64 kick = kick_of(cpu_at(i));

		/* It has the CPU in its own turn now. Others that run go on as they came: as fillers, or not. */
		if (c->planned == c->id)
			c->fills = 0;
		if (kick)
			scx_bpf_kick_cpu(cpu_at(i), kick);
	}
	return 0;
}

/*
 * Whether tasks of the host have used more than half of each interval between plans, for a turn: a vCPU of a gang
 * would wait there while its siblings run.
 */
static __always_inline void judge_cpu(u32 cpu, u64 passed)
{
	struct cpu *c = &cpus[bound(cpu)];
	u64 host_ns = report.host_ns[bound(cpu)], used = host_ns - c->host_before;

	c->host_before = host_ns;
	c->taken_ns = 2 * used > passed ? c->taken_ns + passed : 0;
	c->is_taken = c->taken_ns >= config.turn_ns;
}

/*
 * The gang that comes first is none for a while if its vCPUs cannot run together although all CPUs are free. vCPUs that
 * are owed by themselves have none yet: on a large host there may always be some.
 */
static __always_inline void try_first_gang(u64 apart_until)
{
	u64 others = zero, set;
	struct vm *v;
	u32 vm;

	bpf_for(vm, 0, settings.count)
		if (!is_gang(vm_of(vm << 6)))
			others |= bit(vm);
	vm = least_vm(others, 0);
	if (vm == NOBODY)
		return;
	v = vm_of(vm << 6);
	set = vcpus_in(v->waits | v->runs);
	if (place(vm, set) != count_bits(set)) {
		v->apart_until = apart_until;
		v->gang = 0;
	}
	take_back(vm);
}

/* Plans a turn, and begins it. Returns how long it is. */
__noinline u64 plan(u64 now)
{
	u32 i, vm, unit, all = zero, left, turns = zero;
	u64 done = zero, taken_ns = zero, passed = now - planned_at;

	planned_at = now;
	settle(now, passed);
	ours = zero;
	bpf_for(i, 0, config.cpu_count) {
		struct cpu *c = &cpus[bound(cpu_at(i))];

		c->next = c->held = NOBODY;
		judge_cpu(cpu_at(i), passed);
		if (c->is_taken && c->taken_ns > taken_ns)
			taken_ns = c->taken_ns;
		ours += is_ours(cpu_at(i));
		all += is_ours(cpu_at(i)) && !c->is_off && !c->is_taken;
	}
	bpf_for(vm, 0, settings.count)
		bpf_for(unit, 0, vcpus_of(vm))
			unit_of(id_of(vm, unit))->next = NOBODY;
	/* What keeps vCPUs of a gang apart may last, but tasks of the host only for as long as they have. */
	if (!taken_ns || taken_ns > 1000 * MS)
		taken_ns = 1000 * MS;
	try_first_gang(now + taken_ns);
	left = hold_owed();
	left = left < all ? all - left : 0;
	bpf_for(i, 0, VMS_MAX) {
		struct vm *v;
		u32 count;
		u64 set;

		vm = least_vm(done, 0);
		if (vm == NOBODY || !left)
			break;
		done |= bit(vm);
		v = vm_of(vm << 6);
		if (is_gang(v)) {
			set = vcpus_in(v->waits | v->runs);
			count = count_bits(set);
			/* Others that come first have CPUs that it needs. */
			if (count > left) {
				tell(&in_plan, DECIDES_TURN, count, left, TURN_WAITS, vm);
				continue;
			}
			if (place(vm, set) != count) {
				take_back(vm);
				tell(&in_plan, DECIDES_TURN, count, left, TURN_APART, vm);
				continue;
			}
			turns++;
			tell(&in_plan, DECIDES_TURN, count, left, TURN_BEGINS, vm);
		} else {
			count = hold(vm, (v->waits | v->runs) & ~v->owed);
			tell(&in_plan, DECIDES_TURN, count, left, TURN_HOLDS, vm);
		}
		left -= count < left ? count : left;
	}
	/* Before vCPUs have their CPUs in it: these count until then. */
	turn_end = now + (turns ? config.turn_ns : LOOK_NS);
	begin();
	if (turns)
		report.turns++;
	return turn_end;
}

#endif
