// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Time in states, per vCPU, and who had the CPU while it waited for one.
 *
 * A vCPU's stretch of time is counted where the kernel cannot be preempted: at its entries, its
 * exits and its thread's switches. All other programs only leave notes for the next of these,
 * because since 6.19 tracepoints may be preempted. User space reads the structures of kept.h, and
 * enters the threads and processes to watch. The programs store nothing else, and modify no kernel
 * data.
 */
#include "kept.h"
#include "find.h"
#include "cpu.h"
#include "wait.h"
#include "reason.h"
#include "detail.h"

static __always_inline void change(struct vcpu *v)
{
	v->begun++;
	barrier();
}

static __always_inline void changed(struct vcpu *v)
{
	barrier();
	v->ended = v->begun;
}

static __always_inline void add(struct vcpu *v, __u32 state, __u64 time)
{
	v->time[state % TIMES] += time;
}

/* Counts the time of a vCPU on a CPU until `now`. Clocks of two CPUs may disagree. */
static __always_inline void count_up_to(struct vcpu *v, __u64 now)
{
	if (now > v->since)
		add(v, v->counts, now - v->since);
	v->since = now;
}

static __always_inline void count_on(struct vcpu *v, __u64 now)
{
	if (v->vmm_at) {
		if (v->vmm_at > v->since)
			count_up_to(v, least(v->vmm_at, now));
		v->vmm_at = 0;
		v->counts = STATE_VMM;
	}
	count_up_to(v, now);
}

/* The time since HLT has turned out to be polling or not. */
static __always_inline void settle_halt(struct vcpu *v)
{
	__u64 pending = v->time[PENDING], poll = 0;

	if (v->halt_began >= v->exit_at) {
		__u64 served = least(v->halt_began - v->exit_at, pending);

		if (v->pending_asleep != -1ULL)
			poll = between(served, v->pending_asleep);
		else
			poll = least(between(v->halt_began, v->halt_ended), pending - served);
	}
	v->time[STATE_POLL] += poll;
	v->time[STATE_EXIT_HALT] += pending - poll;
	v->time[PENDING] = 0;
	v->pending_asleep = -1ULL;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(entry)
{
	struct vcpu *v = vcpu_running();
	__u64 now;

	if (!v)
		return 0;
	now = bpf_ktime_get_ns();
	change(v);
	if (detailed)
		access_ends(v, now);
	count_on(v, now);
	if (v->time[PENDING])
		settle_halt(v);
	v->counts = STATE_GUEST;
	changed(v);
	wants(v, 1, now);
	return 0;
}

static __always_inline void left_guest(struct vcpu *v, struct kvm_vcpu *vcpu, __u32 reason)
{
	__u32 msr = 0;

	if (detailed)
		access_begins(v);
	if (reason == STATE_EXIT_MSR) {
		msr = msr_of(vcpu);
		if (detailed)
			accesses_at(v, MSR, msr);
		if (is_of_apic(msr))
			reason = STATE_EXIT_APIC;
	}
	change(v);
	count_on(v, bpf_ktime_get_ns());
	v->counts = reason == STATE_EXIT_HALT ? PENDING : reason;
	v->reason = reason;
	v->exit_at = v->since;
	v->exits[reason % TIMES]++;
	changed(v);
	/* From HLT on it has nothing to do. */
	if (reason == STATE_EXIT_HALT)
		wants(v, 0, v->since);
}

/* The argument is the vendor's larger structure, whose first field this is. */
SEC("tp_btf/kvm_exit")
int BPF_PROG(exit, struct kvm_vcpu *vcpu, __u32 isa)
{
	struct vcpu *v = vcpu_running();

	/* 6.12's verifier assumes that the argument may be null. */
	if (v && vcpu)
		left_guest(v, vcpu, isa == ISA_VMX ? vmx_reason(vcpu) : svm_reason(vcpu));
	return 0;
}

/* The same before 5.16. */
SEC("tp_btf/kvm_exit")
int BPF_PROG(exit_for, __u32 reason, struct kvm_vcpu *vcpu, __u32 isa)
{
	struct vcpu *v = vcpu_running();

	if (v && vcpu)
		left_guest(v, vcpu, isa == ISA_VMX ? vmx_state(reason) : svm_state(reason));
	return 0;
}

SEC("tp_btf/kvm_userspace_exit")
int BPF_PROG(userspace_exit)
{
	struct vcpu *v = current_vcpu();

	if (v)
		v->vmm_at = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/kvm_vcpu_wakeup")
int BPF_PROG(halt_end, __u64 halted_ns)
{
	struct vcpu *v = current_vcpu();

	if (v) {
		v->halt_ended = bpf_ktime_get_ns();
		v->halt_began = v->halt_ended - halted_ns;
	}
	return 0;
}

static __always_inline void sends_ipi(void)
{
	struct vcpu *v = current_vcpu();

	if (v && v->counts == v->reason && v->counts != STATE_GUEST && v->reason != STATE_EXIT_IPI)
		turns_out(v, STATE_EXIT_IPI);
}

SEC("tp_btf/kvm_apic_ipi")
int BPF_PROG(ipi)
{
	sends_ipi();
	return 0;
}

SEC("tp_btf/kvm_hypercall")
int BPF_PROG(hypercall, unsigned long number)
{
	if (number == HYPERCALL_SEND_IPI)
		sends_ipi();
	return 0;
}

static __always_inline __u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___before_5_14 *)task)->state;
}

/* The state of a sleeping thread that was last in that phase. */
static __always_inline __u32 sleeps_as(struct vcpu *v, __u32 state, const bool brief)
{
	if (state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN))
		return STATE_STOPPED;
	if (brief)
		return STATE_BLOCKED;
	if (v->counts == STATE_VMM)
		return STATE_BLOCKED;
	if (v->reason == STATE_EXIT_HALT && v->halt_ended < v->exit_at)
		return STATE_HALTED;
	if (settings.may_park && (state & TASK_INTERRUPTIBLE))
		return STATE_PARKED;
	return STATE_BLOCKED;
}

/* A wait begins at a switch on that CPU. */
static __always_inline void waits_here(struct vcpu *v, struct task_struct *task, struct cpu *cpu,
				       __u32 number)
{
	struct share *own = share_of(number, v->vm);

	notes_queue(v, task, number);
	if (own)
		sums_at_switch(&v->before, cpu, own);
}

/* `ran`: how long vCPUs of its VM have been on a CPU. */
static __always_inline void switched_out(struct vcpu *v, bool preempted, struct task_struct *task,
					 struct cpu *cpu, __u32 number, __u64 now, __u64 ran,
					 const bool brief)
{
	/* A pending signal keeps it running; its state shows this. */
	__u32 state = state_of(task);

	change(v);
	if (v->place == ON) {
		access_pauses(v, now);
		count_on(v, now);
	}
	v->since = now;
	v->switches++;
	v->ran_before = ran;
	/*
	 * It has left the guest, even if KVM reports the exit only later. If KVM has reported no
	 * exit so far, it may never do so.
	 */
	if (v->counts == STATE_GUEST || v->counts == UNSEEN)
		v->counts = v->reason = v->exit_at ? STATE_EXIT_INTERRUPT : STATE_VMM;
	if (preempted || !state) {
		v->place = READY;
		if (!brief)
			waits_here(v, task, cpu, number);
	} else {
		v->place = ASLEEP;
		v->asleep = sleeps_as(v, state, brief);
		if (v->asleep == STATE_HALTED && v->pending_asleep == -1ULL)
			v->pending_asleep = v->time[PENDING];
	}
	changed(v);
	if (!brief && v->place == ASLEEP)
		wants(v, 0, now);
}

/* The task for which it waited was on this CPU, or its move from another CPU has counted that. */
static __always_inline void switched_in(struct vcpu *v, struct task_struct *task, struct cpu *cpu,
					__u32 number, __u64 now, __u64 ran, const bool brief)
{
	struct share *own = brief ? 0 : share_of(number, v->vm);
	__u64 begin = v->since;
	struct sums after = {};

	change(v);
	if (v->place == ASLEEP) {
		/* Woken before it slept: it was always ready. */
		if (v->woken_at > begin)
			begin = least(v->woken_at, now);
		add(v, v->asleep, begin - v->since);
		if (v->asleep == STATE_HALTED)
			v->counts = STATE_WAKING;
	}
	if (v->place != ON && v->cpu == number && own) {
		sums_at_switch(&after, cpu, own);
		wait_ends(v, task, begin, now, &after);
	} else { /* it was entered while it waited, and nobody noted for whom */
		v->time[STATE_READY_NOBODY] += between(begin, now);
	}
	if (!brief && v->place != ON && v->ran_before != NO_WAIT && ran != NO_WAIT)
		v->costop += between(v->ran_before, ran);
	v->ran_before = NO_WAIT;
	v->place = ON;
	v->cpu = number;
	v->since = now;
	changed(v);
	if (!brief && v->counts != PENDING)
		wants(v, 1, now);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch_task, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 number = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_of(number);
	/* How long vCPUs of the VMs of `v` and of `in` have been on a CPU. */
	__u64 now, ran_out = NO_WAIT, ran_in = NO_WAIT;
	struct vcpu *v, *in;
	bool is_same;

	if (!cpu)
		return 0;
	v = vcpu_here(cpu, number);
	now = bpf_ktime_get_ns();
	cpu->slot = next->pid ? slot_of(next->pid) : NO_SLOT;
	in = vcpu_at(cpu->slot);
	is_same = in && cpu->kind == VCPU && cpu->vm == in->vm;
	if (is_same)
		ran_in = ran_out = vm_ran(in->vm, 0, now);
	else if (cpu->kind == VCPU)
		ran_out = vm_ran(cpu->vm, -1, now);
	if (in && !is_same)
		ran_in = vm_ran(in->vm, 1, now);
	cpu_goes_on(cpu, number, in, next, now);
	if (v)
		switched_out(v, preempt, prev, cpu, number, now, ran_out, 0);
	if (in)
		switched_in(in, next, cpu, number, now, ran_in, 0);
	return 0;
}

/*
 * The same if only running, waiting and sleeping are distinguished, and all waits count as
 * READY_NOBODY. It costs about half, and has no instruction that kernels before 5.12 lack, not even
 * an unreachable one.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(switch_briefly, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 number = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_of(number);
	struct vcpu *v, *in;
	__u32 slot, slot_in;
	__u64 now;

	if (!cpu)
		return 0;
	slot = slot_on(cpu);
	cpu->registrations = settings.registrations;
	slot_in = next->pid ? slot_of(next->pid) : NO_SLOT;
	cpu->slot = slot_in;
	if (slot == NO_SLOT && slot_in == NO_SLOT)
		return 0;
	v = vcpu_at(slot);
	in = vcpu_at(slot_in);
	now = bpf_ktime_get_ns();
	if (v)
		switched_out(v, preempt, prev, cpu, number, now, NO_WAIT, 1);
	if (in)
		switched_in(in, next, cpu, number, now, NO_WAIT, 1);
	return 0;
}

/* Notes the waker, if it is a sibling. */
static __always_inline void notes_waker(struct vcpu *v, __u64 now)
{
	struct vcpu *by = current_vcpu();
	__u64 passed = between(v->wakers_at, now);

	if (passed >= settings.wakers_ns) {
		v->wakers_before = passed < 2 * settings.wakers_ns ? v->wakers : 0;
		v->wakers = 0;
		v->wakers_at = now;
	}
	if (by && by != v && by->vm == v->vm && by->number < 64)
		v->wakers |= 1ULL << by->number;
}

static __always_inline void is_woken(struct vcpu *v, __u64 now)
{
	if (settings.wakers_ns)
		notes_waker(v, now);
	v->woken_at = now;
	v->wakes++;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wake, struct task_struct *task)
{
	struct vcpu *v = vcpu_of(task->pid);
	__u64 now;

	if (!v)
		return 0;
	now = bpf_ktime_get_ns();
	/* A vCPU that is ready waits already. */
	if (v->place != READY) {
		wait_begins(v, task, v->cpu, now);
		v->ran_before = vm_ran(v->vm, 0, now);
	}
	is_woken(v, now);
	if (v->place == ASLEEP)
		wants(v, 1, now);
	return 0;
}

/* The counterpart of switch_briefly. */
SEC("tp_btf/sched_waking")
int BPF_PROG(wake_briefly, struct task_struct *task)
{
	struct vcpu *v = vcpu_of(task->pid);

	if (v)
		is_woken(v, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrate, struct task_struct *task, int to)
{
	struct vcpu *v = vcpu_of(task->pid);
	__u64 now, begin;

	if (!v || v->place == ON)
		return 0;
	now = bpf_ktime_get_ns();
	if (v->place == READY || v->woken_at > v->since) {
		change(v);
		begin = v->since;
		if (v->place == ASLEEP) {
			begin = least(v->woken_at, now);
			add(v, v->asleep, begin - v->since);
			if (v->asleep == STATE_HALTED)
				v->counts = STATE_WAKING;
			v->place = READY;
		}
		wait_ends_elsewhere(v, task, begin, now);
		v->since = now;
		changed(v);
	}
	wait_begins(v, task, to, now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
