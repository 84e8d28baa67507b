/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Attributes a wait for a CPU to a quota or to the tasks that had the CPU. Included once, after
 * cpu.h.
 */
#ifndef UNSPIN_PROBE_WAIT_H
#define UNSPIN_PROBE_WAIT_H

static __always_inline __u64 throttled(struct cfs_rq *queue)
{
	__u64 time = 0;

	if (bpf_core_field_exists(queue->throttled_clock_self_time))
		time = queue->throttled_clock_self_time;
	else if (bpf_core_field_exists(queue->throttled_clock_pelt_time))
		time = queue->throttled_clock_pelt_time;
	else if (bpf_core_field_exists(queue->throttled_clock_task_time))
		time = queue->throttled_clock_task_time;
	return time;
}

/* Null if the kernel has no task groups, and therefore no quotas. */
static __always_inline struct cfs_rq *queue_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->se.cfs_rq) ? task->se.cfs_rq : 0;
}

/* A wait begins. The notes about the queue count only if the task is still in it at the end. */
static __always_inline void notes_queue(struct vcpu *v, struct task_struct *task, __u32 cpu)
{
	struct cfs_rq *queue = queue_of(task);

	v->cpu = cpu;
	v->cfs_rq = (__u64)queue;
	v->throttled = queue ? throttled(queue) : 0;
}

static __always_inline void wait_begins(struct vcpu *v, struct task_struct *task, __u32 number,
					__u64 now)
{
	struct cpu *cpu = cpu_of(number);
	struct share *own = share_of(number, v->vm);

	notes_queue(v, task, number);
	if (cpu && own)
		sums_now(&v->before, cpu, own, v->vm, now);
}

/* Takes up to `wanted` from the rest of a wait. */
static __always_inline void take(struct vcpu *v, __u32 state, __u64 wanted, __u64 *left)
{
	__u64 time = least(wanted, *left);

	v->time[state] += time;
	*left -= time;
}

/* A wait for v->cpu since `begin` ends: its time goes to the tasks that had the CPU. */
static __always_inline void wait_ends(struct vcpu *v, struct task_struct *task, __u64 begin, __u64 now,
				      struct sums *after)
{
	struct cfs_rq *queue = queue_of(task);
	__u64 waited = between(begin, now);

	if (queue && v->cfs_rq == (__u64)queue)
		take(v, STATE_THROTTLED, between(v->throttled, throttled(queue)), &waited);
	if (naming)
		wait_was_taken(v->cpu, v->vm, begin, now, waited);
	take(v, STATE_READY_SIBLING, between(v->before.sibling, after->sibling), &waited);
	take(v, STATE_READY_OWN_VMM, between(v->before.own_vmm, after->own_vmm), &waited);
	take(v, STATE_READY_VM, between(v->before.vm, after->vm), &waited);
	take(v, STATE_READY_HOST, between(v->before.host, after->host), &waited);
	v->time[STATE_READY_NOBODY] += waited;
}

/* The same while the other CPU may be running any task. */
static __always_inline void wait_ends_elsewhere(struct vcpu *v, struct task_struct *task, __u64 begin,
						__u64 now)
{
	struct cpu *cpu = cpu_of(v->cpu);
	struct share *own = share_of(v->cpu, v->vm);
	struct sums after = {};

	if (cpu && own)
		sums_now(&after, cpu, own, v->vm, now);
	wait_ends(v, task, begin, now, &after);
}

#endif
