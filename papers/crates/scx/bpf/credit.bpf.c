// SPDX-License-Identifier: GPL-2.0-only
/*
 * Credit with ASMan's coscheduling as a Linux scheduler (sched_ext), for vCPUs' threads: the vCPU
 * with most credit first, as in ASMan's Algorithm 4. Machine sim models it as scheduler = "credit"
 * (lab/sim/src/host/credit/rules.rs).
 *
 * Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
 * sections 3.3, 4.4 and 4.5. policy/credit.c decides. This file has its clocks, its interrupts and
 * its state of threads. A vCPU that does not run waits in the arrays here, in no queue of the
 * kernel, until a pCPU asks for the next one (dispatch). A pCPU asks when its vCPU sleeps, when its
 * slot ends, and when it is interrupted for a sibling.
 *
 * The slots of each pCPU begin independently, because equal phases would run vCPUs together by
 * chance.
 */
#include "choose.h"
#include "unspin_guest.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* A slot with no more than this left is over. */
#define SLOT_SLACK(slot) ((slot) / 64)
/* Should the timer fail, a vCPU leaves its pCPU all the same. */
#define SLICE(slot) (2 * (slot))

struct slot_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PCPUS_MAX);
	__type(key, u32);
	__type(value, struct slot_timer);
} timers SEC(".maps");

static __always_inline void interrupt(u32 pcpus)
{
	u32 pcpu;

	POL_FOR(pcpu, PCPUS_MAX)
		if (pcpus >> pcpu & 1)
			scx_bpf_kick_cpu(pcpu, SCX_KICK_PREEMPT);
}

SEC("struct_ops/dispatch")
int BPF_PROG(dispatch, s32 cpu, struct task_struct *prev)
{
	u32 before = NOBODY, vcpu, kicks;
	struct task_struct *next;

	if (prev && prev->scx.flags & SCX_TASK_QUEUED)
		before = index_of(prev);
	if (!lock())
		return 0;
	kicks = choose(cpu, before, bpf_ktime_get_ns());
	vcpu = picked.vcpu;
	unlock();
	if (vcpu < VCPUS_MAX && vcpu != before) {
		next = bpf_task_from_pid(config.vcpus[vcpu].tid);
		if (next) {
			dsq_insert(next, SCX_DSQ_LOCAL, SLICE(config.slot_ns), 0);
			bpf_task_release(next);
		}
	} else if (vcpu < VCPUS_MAX && prev) {
		scx_bpf_task_set_slice(prev, SLICE(config.slot_ns));
	}
	interrupt(kicks);
	return 0;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(select_cpu, struct task_struct *p, s32 prev_cpu, u64 flags)
{
	u32 i = index_of(p);

	return i < VCPUS_MAX && vcpus[i].pcpu < config.pcpu_count ? vcpus[i].pcpu : prev_cpu;
}

/*
 * The vCPU waits here. Returns whether its pCPU should choose again: vCPUs with credit come before
 * those without.
 */
__noinline int wait(u32 i)
{
	u32 pcpu, current;

	if (i >= VCPUS_MAX)
		return 0;
	vcpus[i].runnable = 1;
	vcpus[i].running = 0;
	pcpu = vcpus[i].pcpu;
	if (pcpu >= PCPUS_MAX)
		return 0;
	current = places[pcpu].current;
	return current < VCPUS_MAX && !places[pcpu].came_first && vcpus[i].credit >= 0 &&
	       vcpus[current].credit < 0;
}

SEC("struct_ops/enqueue")
int BPF_PROG(enqueue, struct task_struct *p, u64 flags)
{
	u32 i = index_of(p), pcpu;
	int comes_first;

	if (i >= VCPUS_MAX) {
		dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, flags);
		return 0;
	}
	if (!lock()) {	/* a thread that is in no array here runs next, on this pCPU */
		dsq_insert(p, SCX_DSQ_LOCAL, SLICE(config.slot_ns), flags);
		return 0;
	}
	comes_first = wait(i);
	unlock();
	if (comes_first)
		scx_bpf_kick_cpu(vcpus[i].pcpu, SCX_KICK_PREEMPT);
	else if (config.vcpus[i].pinned)
		scx_bpf_kick_cpu(vcpus[i].pcpu, SCX_KICK_IDLE);
	else
		POL_FOR(pcpu, PCPUS_MAX)
			if (pcpu < config.pcpu_count)
				scx_bpf_kick_cpu(pcpu, SCX_KICK_IDLE);
	return 0;
}

SEC("struct_ops/running")
int BPF_PROG(running, struct task_struct *p)
{
	u32 i = index_of(p), cpu = scx_bpf_task_cpu(p);

	if (i < VCPUS_MAX && cpu < PCPUS_MAX) {
		paid_ns[i] = bpf_ktime_get_ns();
		places[cpu].current = i;
	}
	return 0;
}

SEC("struct_ops/stopping")
int BPF_PROG(stopping, struct task_struct *p, _Bool runnable)
{
	u32 i = index_of(p), cpu = scx_bpf_task_cpu(p);

	if (i >= VCPUS_MAX || cpu >= PCPUS_MAX || !lock())
		return 0;
	charge(i, bpf_ktime_get_ns());
	places[cpu].current = NOBODY;
	unlock();
	return 0;
}

SEC("struct_ops/quiescent")
int BPF_PROG(quiescent, struct task_struct *p, u64 flags)
{
	u32 i = index_of(p);
	int has_lock;

	if (i >= VCPUS_MAX)
		return 0;
	has_lock = lock();
	vcpus[i].runnable = 0;	/* it must not be chosen, with or without the lock */
	vcpus[i].running = 0;
	vcpus[i].raised = 0;
	if (has_lock)
		unlock();
	return 0;
}

/* A pCPU's slot may have ended: a gang that gathered meanwhile began another. */
static int slot_over(void *map, u32 *pcpu, struct slot_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), wait_ns = config.slot_ns, end;
	u32 p = *pcpu;

	if (p >= PCPUS_MAX)
		return 0;
	end = places[p].slot_end_ns;
	if (end > now + SLOT_SLACK(config.slot_ns)) {
		wait_ns = end - now;
	} else {
		places[p].came_first = 0;
		scx_bpf_kick_cpu(p, SCX_KICK_PREEMPT);
	}
	bpf_timer_start(&timer->timer, wait_ns, 0);
	return 0;
}

static __always_inline int start_clocks(void)
{
	u32 pcpu;
	int error;

	POL_FOR(pcpu, PCPUS_MAX) {
		u32 key = pcpu;
		struct slot_timer *timer;

		if (key >= config.pcpu_count)
			break;
		timer = bpf_map_lookup_elem(&timers, &key);
		if (!timer)
			return -1;
		error = bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC);
		if (error)
			return error;
		bpf_timer_set_callback(&timer->timer, slot_over);
		error = bpf_timer_start(&timer->timer, config.phase_ns[key & (PCPUS_MAX - 1)], 0);
		if (error)
			return error;
	}
	return 0;
}

SEC("struct_ops.s/init")
int BPF_PROG(init)
{
	u32 i;

	params.slot_us = config.slot_ns / 1000;
	params.slots_per_assignment = config.slots_per_assignment;
	params.credit_per_slot = params.slot_us;	/* one per microsecond */
	params.capped = config.capped;
	params.credit_max = params.slot_us * params.slots_per_assignment;
	POL_FOR(i, VCPUS_MAX) {
		vcpus[i].vm = config.vcpus[i].vm;
		vcpus[i].pcpu = config.vcpus[i].pcpu;
	}
	POL_FOR(i, VMS_MAX)
		vms[i].weight = config.vms[i].weight;
	POL_FOR(i, PCPUS_MAX) {
		places[i].current = NOBODY;
		places[i].last = NOBODY;
	}
	raised_in_slot = ~0ull;
	return start_clocks();
}

SEC("struct_ops/exit")
int BPF_PROG(exited, struct scx_exit_info *info)
{
	note_ending(&report.ending, info);
	return 0;
}

/* A guest says for how long its vCPUs should run together (uapi/unspin_guest.h). */
struct hypercall {
	u64 header;
	unsigned long number, first, second, third, fourth;
};

SEC("tracepoint/kvm/kvm_hypercall")
int reported(struct hypercall *call)
{
	u32 tid = bpf_get_current_pid_tgid();
	u32 *i = bpf_map_lookup_elem(&threads, &tid);
	u64 us = call->second;
	u32 vm;

	if (!i || *i >= VCPUS_MAX || call->number != UNSPIN_GUEST_HYPERCALL ||
	    call->first > UNSPIN_GUEST_HIGH)
		return 0;
	vm = vcpus[*i].vm;
	if (vm >= VMS_MAX)
		return 0;
	if (us > UNSPIN_GUEST_HIGH_MAX_US)
		us = UNSPIN_GUEST_HIGH_MAX_US;
	high_until_ns[vm] = call->first == UNSPIN_GUEST_HIGH ? bpf_ktime_get_ns() + us * 1000 : 0;
	__sync_fetch_and_add(&report.reports, 1);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops credit = {
	.select_cpu = (void *)select_cpu,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.quiescent = (void *)quiescent,
	.init = (void *)init,
	.exit = (void *)exited,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	.name = "unspin_credit",
};
