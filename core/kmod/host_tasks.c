// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs that tasks of the host use have no turns. policy/gang.h says why, and from which use on.
 *
 * The host's share of a CPU is the time that neither vCPUs in turns nor the idle task used. A vCPU of
 * a VM that takes no part in turns counts as a task of the host.
 */
#include <linux/cpumask.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>
#include <linux/tick.h>

#include "../policy/gang.h"
#include "host_tasks.h"

struct use {
	u64 at_tsc, vcpus, idle_us;	/* at the last turn's end: when, and sums */
	struct gang_use of_host;
};
static DEFINE_PER_CPU(struct use, uses);
static struct cpumask used;

/* CPU time of vCPUs in turns, up to now. Under RCU, which keeps the slot. */
static u64 vcpus_cycles(u32 cpu, u64 now)
{
	const struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);
	const struct unspin_slot *cur = READ_ONCE(on->cur);
	u64 cycles = READ_ONCE(on->vcpu_cycles);

	if (cur && READ_ONCE(cur->vm->in_turns) && now > READ_ONCE(cur->in_tsc))
		cycles += now - READ_ONCE(cur->in_tsc);
	return cycles;
}

/* 0 where the kernel does not tell (nohz=off). Then all time without a vCPU counts as idle. */
static u64 idle_us(u32 cpu)
{
	u64 us = get_cpu_idle_time_us(cpu, NULL);

	return us == (u64)-1 ? 0 : us;
}

/* Takes the time anew for each CPU, because reading all of them takes a while. */
static void judge(u32 cpu)
{
	struct use *use = per_cpu_ptr(&uses, cpu);
	u64 now = unspin_now(), cycles = now - use->at_tsc;
	u64 vcpus = vcpus_cycles(cpu, now), idle = idle_us(cpu);
	s64 of_host = 0;

	if (idle)
		of_host = cycles - (vcpus - use->vcpus) - (idle - use->idle_us) * tsc_khz / 1000;
	use->at_tsc = now;
	use->vcpus = vcpus;
	use->idle_us = idle;
	/* If a vCPU was switched between these readings, the next turn counts the rest. */
	if (gang_use(&use->of_host, of_host, cycles))
		cpumask_set_cpu(cpu, &used);
	else
		cpumask_clear_cpu(cpu, &used);
}

void unspin_host_tasks_judge(void)
{
	u32 cpu;

	for_each_online_cpu(cpu)
		judge(cpu);
}

void unspin_host_tasks_spare(u64 cycles)
{
	preempt_disable();
	__this_cpu_write(unspin_cpu.vcpu_cycles, __this_cpu_read(unspin_cpu.vcpu_cycles) + cycles);
	preempt_enable();
}

bool unspin_host_tasks_use(u32 cpu)
{
	return cpumask_test_cpu(cpu, &used);
}

void unspin_host_tasks_begin(u64 cycles)
{
	u64 now = unspin_now();
	u32 cpu;

	cpumask_clear(&used);
	for_each_possible_cpu(cpu) {
		struct use *use = per_cpu_ptr(&uses, cpu);

		use->at_tsc = now;
		use->vcpus = vcpus_cycles(cpu, now);
		use->idle_us = idle_us(cpu);
		gang_use_begin(&use->of_host, cycles);
	}
}

ssize_t unspin_host_tasks_describe(char *buf)
{
	return sysfs_emit(buf, "%*pbl\n", cpumask_pr_args(&used));
}
