/* SPDX-License-Identifier: GPL-2.0-only */
/* A CPU for a thread that wakes up. */
#ifndef UNSPIN_SCHEDULE_WAKE_H
#define UNSPIN_SCHEDULE_WAKE_H

#include "choose.h"

/*
 * What a VM must be owed more than another before a thread of its that wakes up takes the other's CPU: CPU time of the
 * VM that wakes up. Of units of one VM: of the unit that wakes up.
 */
#define PREEMPT_NS MS

static __always_inline int is_before(u32 id, u32 other)
{
	return is_owed(id) || vm_of(id)->vt < vm_of(other)->vt;
}

/* Whether a unit that is owed more than this one runs on a CPU, or waits for it: the CPU is kept free for that. */
static __always_inline int is_of_earlier(const struct cpu *c, u32 id)
{
	u32 runs = c->id, held = c->held;

	if (runs != NOBODY && !c->fills && !is_gang(vm_of(runs)) && is_before(runs, id))
		return 1;
	return held != NOBODY && vm_of(held)->waits & bit(unit_part(held)) && is_before(held, id);
}

/* A CPU in a gang's turn that none of its siblings uses, for a vCPU of the gang that woke up. */
__noinline u32 claim(u32 id)
{
	u32 i;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i), of;
		struct cpu *c = &cpus[bound(cpu)];
		struct vm *v;

		/* A task of the host would run there first. */
		if (c->is_off || c->is_taken || (c->host_since && unit_of(id)->choices > 1) || !is_ours(cpu) ||
		    !may_use(unit_of(id), cpu))
			continue;
		of = c->planned;
		if (of != NOBODY) {
			v = vm_of(of);
			if (vm_part(of) != vm_part(id) || (v->waits | v->runs) & bit(unit_part(of)))
				continue;
		} else if (is_of_earlier(c, id)) {
			continue;
		}
		charge(cpu, by_count(cpu, bpf_ktime_get_ns()));	/* until now it was no hole of this turn */
		c->planned = id;
		unit_of(id)->planned = cpu;
		return cpu;
	}
	return NOBODY;
}

/* Whether a thread could have a CPU now. */
static __always_inline int can_have(struct task_struct *p, u32 cpu)
{
	return !cpus[bound(cpu)].is_off && is_ours(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* A CPU for a thread that is idle, which is no longer known as that; NOBODY if there is none. */
static __noinline u32 idle_cpu(struct task_struct *p)
{
	u32 i;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i);

		if (cpus[bound(cpu)].id == NOBODY && can_have(p, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return NOBODY;
}

/*
 * The CPU of the thread that is owed least, if it is owed less than this one. Other threads of a VM also come
 * before a vCPU of it that has had more.
 */
static __noinline u32 victim(struct task_struct *p, u32 id, u64 now)
{
	u32 is_service = unit_part(id) == OTHERS && vm_part(id) != STRANGERS;
	u64 most = had(vm_of(id)) + (is_service ? 0 : by_weight(id, PREEMPT_NS));
	u64 unit_most = unit_of(id)->vt + among_siblings(unit_of(id), PREEMPT_NS);
	u32 i, best = NOBODY, own = NOBODY;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i), of;
		struct cpu *c = &cpus[bound(cpu)];
		u64 key, since = c->since, turn;

		of = c->id;
		/* Another that woke up is to have it. */
		if (of == NOBODY || c->prefer != NOBODY || !can_have(p, cpu))
			continue;
		if (vm_part(of) == vm_part(id)) {
			if (unit_part(id) == OTHERS && unit_part(of) != OTHERS && unit_of(of)->vt > unit_most) {
				unit_most = unit_of(of)->vt;
				own = cpu;
			}
			continue;
		}
		if (is_owed(of))
			continue;
		key = had(vm_of(of)) + by_weight(of, time_since(since, by_count(cpu, now)));
		turn = by_weight(of, config.turn_ns);
		if (c->fills)
			key |= LAST;
		else if (c->planned == of)
			key = key > turn ? key - turn : 0;
		if (key > most) {
			most = key;
			best = cpu;
		}
	}
	return best != NOBODY ? best : own;
}

/* Takes the CPU of a thread that is owed less. Two wake-ups may choose the same CPU: one of them looks again. */
static __always_inline void preempt(struct task_struct *p, u32 id)
{
	u64 now = bpf_ktime_get_ns();
	u32 i, cpu;

	bpf_for(i, 0, 2) {
		cpu = victim(p, id, now);
		if (cpu == NOBODY)
			break;
		if (__sync_val_compare_and_swap(&cpus[bound(cpu)].prefer, NOBODY, id) == NOBODY) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			break;
		}
	}
}

#endif
