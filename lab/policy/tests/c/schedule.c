/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decisions of the scheduler (host/schedule/bpf/) as functions. What it needs of the kernel does nothing here. Nothing
 * is constant, so that the configuration can be set.
 */
#define UNSPIN_SCHEDULE_KERNEL_H
#define EXPORT __attribute__((visibility("default")))
#define const

typedef __UINT8_TYPE__ __u8;
typedef __UINT32_TYPE__ u32;
typedef __INT32_TYPE__ s32;
typedef __UINT64_TYPE__ u64;
typedef __INT64_TYPE__ s64;

#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define SCHED_EXT 7
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)
#define bpf_probe_read_kernel_str(to, size, from) ((void)0)

struct cpumask;

struct task_struct {
	int pid;
	int tgid;
	struct cpumask *cpus_ptr;
};

struct scx_exit_info {
	int kind;
	char *reason;
	char *msg;
};

/* Every map has one value. */
static void *bpf_map_lookup_elem(void *map, void *key)
{
	static u64 value[128];

	return value;
}

static u64 bpf_ktime_get_ns(void)
{
	return 0;
}

static s32 scx_bpf_dsq_nr_queued(u64 queue)
{
	return 0;
}

static _Bool dsq_move_to_local(u64 queue)
{
	return 0;
}

static _Bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	return 0;
}

static void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
}

static _Bool bpf_cpumask_test_cpu(u32 cpu, struct cpumask *cpumask)
{
	return 1;
}

#include "wake.h"

/* VMs 1 to 3 without threads, and one CPU that is idle. */
EXPORT void start(u64 turn_ns)
{
	u32 vm;

	config.turn_ns = turn_ns;
	config.cpu_count = 1;
	cpus[0] = (struct cpu){ 0 };
	cpus[0].is_ours = 1;
	cpus[0].id = cpus[0].planned = cpus[0].next = cpus[0].held = cpus[0].prefer = cpus[0].spinner = NOBODY;
	for (vm = 1; vm < 4; vm++)
		vms[vm] = (struct vm){ 0 };
}

/* A unit of VM 1. */
EXPORT void set_unit(u32 unit, u64 vt, u32 weight, u32 is_ready)
{
	unit_of(id_of(1, unit))->vt = vt;
	unit_of(id_of(1, unit))->weight = weight;
	if (is_ready)
		vms[1].waits |= bit(unit);
}

EXPORT u64 vt_of(u32 unit)
{
	return unit_of(id_of(1, unit))->vt;
}

/* As settle() does. */
EXPORT void close_one_gap(void)
{
	if (look_at_units(1, 0))
		close_gap(1);
}

/*
 * Whether a vCPU of VM 1 that wakes up in its turn takes the CPU. It may be kept free for a vCPU of VM 2, which may
 * wait, and be owed time by itself; a vCPU of VM 3 may run there. The virtual times are those of the VMs.
 */
EXPORT u32 takes(u32 is_held, u32 waits, u32 is_owed, u32 runs, u64 *vts)
{
	start(6 * MS);
	vms[1].vt = vts[0];
	vms[2].vt = vts[1];
	vms[3].vt = vts[2];
	unit_of(id_of(1, 0))->mask[0] = 1;
	vms[2].waits = waits;
	vms[2].owed = is_owed;
	if (is_held) {
		/* It may use this CPU only, of two. */
		ours = 2;
		settings.vms[2].vcpus = 1;
		unit_of(id_of(2, 0))->choices = 1;
		unit_of(id_of(2, 0))->mask[0] = 1;
		hold(2, 1);
	}
	if (runs)
		cpus[0].id = id_of(3, 0);
	return claim(id_of(1, 0)) == 0;
}

/* Whether a CPU that was kept free for a vCPU still is after a plan for which the vCPU is not ready. */
EXPORT u32 is_held_after_a_plan(void)
{
	start(6 * MS);
	cpus[0].held = id_of(2, 0);
	plan(6 * MS);
	return cpus[0].held != NOBODY;
}
