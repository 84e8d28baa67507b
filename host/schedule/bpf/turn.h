/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the timer does between plans: CPUs that tasks of the host took, and those that nobody uses.
 */
#ifndef UNSPIN_SCHEDULE_TURN_H
#define UNSPIN_SCHEDULE_TURN_H

#include "plan.h"

/*
 * In a turn: a unit that came while a CPU was about to be idle, but was not known as that yet, found no idle CPU, and
 * that one had found no unit.
 */
__noinline int wake_idle(void)
{
	u32 i;

	look_who_waits();
	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i);

		if (cpus[bound(cpu)].id == NOBODY && !cpus[bound(cpu)].host_since && kick_of(cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	return 0;
}

/*
 * A CPU is planned for a vCPU, and tasks of the host have had it for more than half of the time since the plan: the vCPU
 * may run elsewhere then. One that can use no other CPU keeps its plan. Others go back to their CPU, where no other VM's
 * unit comes first: most tasks of the host run for some 10 us.
 */
static __always_inline void let_go(u32 cpu, u64 now)
{
	struct cpu *c = &cpus[bound(cpu)];
	u32 id = c->planned;

	if (id == NOBODY || unit_of(id)->choices <= 1)
		return;
	charge_host(cpu, now);
	if (2 * (report.host_ns[bound(cpu)] - c->host_before) <= now - planned_at)
		return;
	/* Another CPU may have claimed it meanwhile. */
	if (__sync_val_compare_and_swap(&c->planned, id, NOBODY) != id)
		return;
	if (unit_of(id)->planned == cpu)
		unit_of(id)->planned = NOBODY;
}

/*
 * A thread that select_cpu() gave to an idle CPU comes after a task of the host that took the CPU meanwhile, when
 * switched() has already looked. It goes where there is a CPU. Linux 7.0 cannot do this for another CPU.
 */
static __always_inline void take_back_stuck(u32 cpu)
{
	u64 queue = SCX_DSQ_LOCAL_ON | cpu;

	if (scx_bpf_dsq_reenq && !cpus[bound(cpu)].is_off && is_ours(cpu) && scx_bpf_dsq_nr_queued(queue) > 0)
		scx_bpf_dsq_reenq(queue, 0);
}

/* CPUs that tasks of the host have. */
__noinline int look_at_host(u64 now)
{
	u32 i;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i);

		if (!cpus[bound(cpu)].host_since)
			continue;
		let_go(cpu, now);
		take_back_stuck(cpu);
	}
	return 0;
}

/* Whether a gang that has this turn still wants it. */
__noinline int goes_on(void)
{
	u32 vm, wants = zero;

	bpf_for(vm, 0, settings.count) {
		struct vm *v = vm_of(vm << 6);

		wants |= v->in_turn && vcpus_in(v->waits | v->runs);
	}
	return wants;
}

#endif
