/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is known of VMs and CPUs. Threads that wait are in the kernel's queues, one for each vCPU, and one for all
 * other threads of a VM. The bits here say in which queue a look is worth while: a bit that is wrong costs a look,
 * or a wait until the timer looks everywhere, once a second.
 */
#ifndef UNSPIN_SCHEDULE_STATE_H
#define UNSPIN_SCHEDULE_STATE_H

#include "kernel.h"

/*
 * 0, which the verifier does not know: a loop that counts from a number that it knows has a state for each round.
 */
volatile u32 zero;

#define KEY_FIRST zero
#include "shared.h"

/*
 * Times are in ns. CPU time becomes virtual time by a weight: of VMs by by_weight(), of a VM's units by
 * among_siblings(). Virtual times of VMs are compared with each other, and those of units with their siblings'. All
 * other times are real: CPU time, or time that passes.
 */

#define MS 1000000ull
/*
 * CPU time: how long a vCPU that is in no gang's turn runs before it is compared with others; the kernel looks at its
 * ticks.
 */
#define SLICE_NS (3 * MS)
/* How many queues are tried before a CPU stays with what it has; a power of 2. */
#define TRIES 8
#define MASK_WORDS (CPUS_MAX / 64)
/* A unit that was late: it is about to run, or has run. */
#define LATE_NEXT 1
#define LATE_DONE 2
#define QUEUE 0x1000ull	/* the queue of unit 0 of VM 0 */
#define ELSEWHERE (QUEUE + VMS_MAX * UNITS)	/* of threads on CPUs that are not ours, which no VM pays for */

#define id_of(vm, unit) ((vm) << 6 | (unit))
#define vm_part(id) ((id) >> 6 & (VMS_MAX - 1))
#define unit_part(id) ((id) & (UNITS - 1))
#define bit(unit) (1ull << ((unit) & 63))

struct unit {
	u64 vt;		/* virtual, among its siblings */
	s64 owed;	/* CPU time that it is owed by itself; see look_at_owed() */
	u64 ready_at;	/* since when it is ready */
	u32 cpu;	/* where it ran last */
	u32 planned;	/* its CPU in this turn, or NOBODY */
	u32 next;	/* the same in the turn that is being planned */
	u32 weight;	/* among its siblings */
	u32 choices;	/* how many of our CPUs a vCPU may use */
	u64 mask[MASK_WORDS];	/* the CPUs that it may use */
	u64 off_at;	/* since when it has no CPU, or sleeps */
	__u8 category;	/* enum hvs_category */
	__u8 mark;	/* it was given a CPU by a sibling since it last lost one */
	__u8 in_exit;	/* it is within a pause-loop exit */
	__u8 unused[5];
};

struct vm {
	u64 vt;		/* virtual, among VMs */
	u64 waits;	/* units that are ready */
	u64 runs;	/* units that have a CPU */
	u64 late;	/* units that are ready for too long beside gangs' turns */
	u64 owed;	/* vCPUs that are owed more than a turn by themselves */
	u64 unit_vt;	/* the least vt of its units that are ready */
	u64 looked_ran, looked_spins;	/* when it was last judged whether it spins */
	u64 gang_until;	/* then it is judged again */
	u64 apart_until;	/* until then it is no gang: not all of its vCPUs got a CPU */
	u32 gang;	/* its vCPUs run together */
	u32 in_turn;	/* and do so now */
	struct unit units[UNITS];
};

struct cpu {
	u64 since;	/* up to when the thread that runs has paid; see by_count() */
	u64 counted;	/* up to when the kernel had counted when a thread stopped last, or was to go on; "since" may be ahead */
	u64 clock_offset;	/* bpf_ktime_get_ns() less the clock of by_count(), when a thread began to run last, or was to go on */
	u32 id;		/* who runs, or NOBODY */
	u32 planned;	/* who is to run in this turn, or NOBODY */
	u32 next;	/* the same in the turn that is being planned */
	u32 held;	/* which vCPU of a VM without a turn it is kept free for, or NOBODY */
	u32 prefer;	/* which unit took it by waking up, or NOBODY */
	u32 spinner;	/* which vCPU gives it up to a sibling, or NOBODY */
	u32 yielded;
	u32 fills;	/* who runs fills a hole */
	u32 is_ours;
	u32 is_off;
	u32 elsewhere_last;	/* it is left, and first had threads from before that */
	u32 late;	/* whether a unit that was late got it in this turn */
	u32 tries;	/* vCPUs that were not to be had here, in this choice */
	u32 tried[TRIES];
	u64 tried_others;	/* VMs whose other threads were not */
	u64 parts;	/* of VMs' weights: those of vCPUs that were ready for it at the last plan */
	u64 parts_next;	/* the same for the next plan, without vCPUs that may use all CPUs */
	u64 shared_ns;	/* time since the last plan that tasks of the host left to them */
	u64 host_since;	/* up to when the host's task that runs is counted, or 0 */
	u64 host_before;	/* their time when the last turn was planned */
	u64 taken_ns;	/* for how long they use more than half of it */
	u32 is_taken;	/* so long that no vCPU of a gang is given this CPU */
};

const volatile struct config config SEC(".rodata.config");
volatile struct settings settings SEC(".data.settings");
struct report report SEC(".data.report");
struct vm vms[VMS_MAX];
struct cpu cpus[CPUS_MAX];
u64 vnow;	/* the virtual time of the VM that is owed most */
u64 turn_end;
u64 planned_at;	/* when the last turn was planned */
u64 looked_at;	/* when the timer last looked at all queues */
u64 late_vms;	/* that have a unit that is late; the timer's */
u64 parts_anywhere;	/* parts of vCPUs that are ready, and may use all CPUs; the timer's */
u64 wanted[MASK_WORDS];	/* CPUs that units which wait may use; the timer's */
u32 ours;	/* how many of the command's CPUs are not left to tasks of the host */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, u32);
	__type(value, u32);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VMS_MAX);
	__type(key, u32);
	__type(value, u32);
} processes SEC(".maps");

/* A time of another CPU may be a little later than "now". */
static __always_inline u64 time_since(u64 then, u64 now)
{
	return now > then ? now - then : 0;
}

/* The verifier is to see the bound. */
static __always_inline u32 bound(u32 cpu)
{
	asm volatile("" : "+r"(cpu));
	return cpu & (CPUS_MAX - 1);
}

static __always_inline struct vm *vm_of(u32 id)
{
	u32 vm = id >> 6;

	asm volatile("" : "+r"(vm));
	return &vms[vm & (VMS_MAX - 1)];
}

static __always_inline struct unit *unit_of(u32 id)
{
	u32 vm = id >> 6, unit = id;

	asm volatile("" : "+r"(vm), "+r"(unit));
	return &vms[vm & (VMS_MAX - 1)].units[unit & (UNITS - 1)];
}

/* Whether a vCPU is owed more than a turn by itself. */
static __always_inline int is_owed(u32 id)
{
	return vm_of(id)->owed >> unit_part(id) & 1;
}

static __always_inline u32 weight_of(u32 id)
{
	u32 vm = id >> 6, weight;

	asm volatile("" : "+r"(vm));
	weight = settings.vms[vm & (VMS_MAX - 1)].weight;
	return weight ? weight : WEIGHT_USUAL;
}

/* The virtual time of a unit's VM for CPU time of the unit. */
static __always_inline u64 by_weight(u32 id, u64 cpu_ns)
{
	return cpu_ns * WEIGHT_USUAL / weight_of(id);
}

/* A unit's own virtual time for its CPU time. */
static __always_inline u64 among_siblings(const struct unit *u, u64 cpu_ns)
{
	u32 weight = u->weight;

	return cpu_ns * 100 / (weight ? weight : 100);
}

static __always_inline u32 vcpus_of(u32 vm)
{
	asm volatile("" : "+r"(vm));
	return settings.vms[vm & (VMS_MAX - 1)].vcpus;
}

/*
 * A thread's unit; one that its VM started since the command looked is one of the other threads, and one of no VM
 * is a stranger.
 */
static __always_inline u32 id_of_task(const struct task_struct *p)
{
	u32 tid = p->pid, tgid = p->tgid, *found;

	found = bpf_map_lookup_elem(&threads, &tid);
	if (found)
		return *found;
	found = bpf_map_lookup_elem(&processes, &tgid);
	return id_of(found ? *found : STRANGERS, OTHERS);
}

/* Whether it schedules a CPU: it is one of its own, and is not left to tasks of the host. */
static __always_inline int is_ours(u32 cpu)
{
	cpu = bound(cpu);
	return cpus[cpu].is_ours && !settings.left[cpu];
}

/* Of a vCPU; other threads may have different CPUs. */
static __always_inline int may_use(struct unit *u, u32 cpu)
{
	return u->mask[cpu >> 6 & (MASK_WORDS - 1)] >> (cpu & 63) & 1;
}

static __always_inline void may_use_all(struct unit *u)
{
	u32 word;

	for (word = 0; word < MASK_WORDS; word++)
		u->mask[word] = ~0ull;
	u->choices = config.cpu_count;
}

static __always_inline u32 count_bits(u64 set)
{
	set -= set >> 1 & 0x5555555555555555ull;
	set = (set & 0x3333333333333333ull) + (set >> 2 & 0x3333333333333333ull);
	set = (set + (set >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return set * 0x0101010101010101ull >> 56;
}

static __always_inline u64 vcpus_in(u64 set)
{
	return set & ~bit(OTHERS);
}

/* Units of a VM that were not to be had there in this choice. */
__noinline u64 tried(u32 cpu, u32 vm)
{
	struct cpu *c = &cpus[bound(cpu)];
	u64 set = c->tried_others >> (vm & 63) & 1 ? bit(OTHERS) : zero;
	u32 i;

	bpf_for(i, 0, c->tries) {
		u32 at = i, id;

		asm volatile("" : "+r"(at));
		id = c->tried[at & (TRIES - 1)];
		if (vm_part(id) == vm)
			set |= bit(unit_part(id));
	}
	return set;
}

/* A unit was not to be had there. Whether another may be tried. */
static __always_inline int note_tried(u32 cpu, u32 id)
{
	struct cpu *c = &cpus[bound(cpu)];
	u32 at = c->tries;

	if (unit_part(id) == OTHERS) {
		c->tried_others |= bit(vm_part(id));
		return 1;
	}
	if (at >= TRIES)
		return 0;
	asm volatile("" : "+r"(at));
	c->tried[at & (TRIES - 1)] = id;
	c->tries = at + 1;
	return 1;
}

/* Counts a task of the host that runs on a CPU up to now. */
static __always_inline void charge_host(u32 cpu, u64 now)
{
	struct cpu *c = &cpus[bound(cpu)];
	u64 since = c->host_since;

	if (since && since < now && __sync_val_compare_and_swap(&c->host_since, since, now) == since)
		__sync_fetch_and_add(&report.host_ns[bound(cpu)], now - since);
}

/*
 * A time of bpf_ktime_get_ns() by the clock with which the kernel counts CPU time on a CPU. On kernels that count
 * interrupts, or time stolen by a hypervisor, that clock stops in them; those since the offset was taken are not taken off.
 */
static __always_inline u64 by_count(u32 cpu, u64 now)
{
	return now - cpus[bound(cpu)].clock_offset;
}

/*
 * Whoever runs on a CPU pays up to "now", a time by that clock. Time in a hole is nobody's: no other wanted it. Two CPUs
 * may do this at once, the timer's with a "now" from before: the one that moves "since" on pays for that time, and nobody
 * moves it back.
 */
static __always_inline void charge(u32 cpu, u64 now)
{
	struct cpu *c = &cpus[cpu & (CPUS_MAX - 1)];
	u32 id = c->id, vm;
	u64 since, ran;

	if (id == NOBODY || !c->is_ours)
		return;
	since = c->since;
	if (since >= now || __sync_val_compare_and_swap(&c->since, since, now) != since)
		return;
	ran = now - since;
	vm = vm_part(id);
	asm volatile("" : "+r"(vm));
	vm &= VMS_MAX - 1;
	__sync_fetch_and_add(&report.vms[vm].ran_ns, ran);
	/* Tasks of the host have it: threads that can use no other CPU, and strangers, run there, and no VM pays. */
	if (!is_ours(cpu))
		return;
	/* Only a hole in another VM's turn is free: elsewhere there may be a VM that is owed the CPU. */
	if (c->fills && c->planned != NOBODY && vm_part(c->planned) != vm_part(id)) {
		__sync_fetch_and_add(&report.vms[vm].filled_ns, ran);
	} else {
		__sync_fetch_and_add(&vm_of(id)->vt, by_weight(id, ran));
		__sync_fetch_and_sub(&unit_of(id)->owed, ran);
	}
	/* In a turn siblings run together, whatever their weights. */
	__sync_fetch_and_add(&unit_of(id)->vt, c->planned == id ? ran : among_siblings(unit_of(id), ran));
}

#endif
