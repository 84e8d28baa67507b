// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Time in states, per vCPU, and who had the CPU while it waited for one.
 *
 * A vCPU's stretch of time is counted where the kernel has interrupts off: at its entries, its exits and
 * its thread's switches. All other programs leave notes that the next of these takes into account: since
 * 6.19 tracepoints may be preempted. User space reads the structures of kept.h, and enters the threads and
 * processes that are watched. Nothing else is stored, and nothing of the kernel is written.
 */
#include "kept.h"
#include "reason.h"

static struct share *share_of(__u32 cpu, __u32 vm)
{
	__u32 key = cpu * VMS_MAX + vm;

	return bpf_map_lookup_elem(&shares, &key);
}

static struct cpu *cpu_of(__u32 number)
{
	return bpf_map_lookup_elem(&cpus, &number);
}

static __always_inline __u32 slot_of(__u32 tid)
{
	__u32 *slot = bpf_map_lookup_elem(&slots, &tid);

	return slot ? *slot : NO_SLOT;
}

static __always_inline struct vcpu *vcpu_at(__u32 slot)
{
	return slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&vcpus, &slot);
}

static struct vcpu *vcpu_of(__u32 tid)
{
	return vcpu_at(slot_of(tid));
}

/*
 * The vCPU that a CPU runs, as it was noted when its thread was switched in. Where threads have been
 * entered or left since, it is looked up once.
 */
static __always_inline struct vcpu *vcpu_on(struct cpu *cpu)
{
	__u64 registrations = settings.registrations;

	if (cpu->registrations != registrations) {
		cpu->slot = slot_of((__u32)bpf_get_current_pid_tgid());
		cpu->registrations = registrations;
	}
	return vcpu_at(cpu->slot);
}

static __always_inline struct vcpu *current_vcpu(void)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());

	return cpu ? vcpu_on(cpu) : 0;
}

static __always_inline void change(struct vcpu *v)
{
	v->begun++;
	barrier();
}

static __always_inline void changed(struct vcpu *v)
{
	barrier();
	v->ended++;
}

static __always_inline void add(struct vcpu *v, __u32 state, __u64 time)
{
	if (state < STATES)
		v->time[state] += time;
}

/* From earlier to later; 0 where clocks of two CPUs disagree. */
static __always_inline __u64 between(__u64 earlier, __u64 later)
{
	return later > earlier ? later - earlier : 0;
}

static __always_inline __u64 least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* A stretch on a CPU, in the phase that it is in. */
static __always_inline void add_on(struct vcpu *v, __u64 time)
{
	if (v->phase == IN_GUEST)
		v->time[STATE_GUEST] += time;
	else if (v->phase == WAKING)
		v->time[STATE_WAKING] += time;
	else if (v->phase == IN_VMM)
		v->time[STATE_VMM] += time;
	else if (v->reason == STATE_EXIT_HALT)
		v->pending += time;
	else
		add(v, v->reason, time);
}

/* Counts up to now what a vCPU on a CPU did. */
static __always_inline void count_on(struct vcpu *v, __u64 now)
{
	if (v->vmm_at) {
		__u64 at = v->vmm_at < v->since ? v->since : least(v->vmm_at, now);

		add_on(v, between(v->since, at));
		v->since = at;
		v->vmm_at = 0;
		v->phase = IN_VMM;
	}
	add_on(v, between(v->since, now));
	v->since = now;
}

/* What was pending since HLT is now known to be polling or not. */
static __always_inline void settle_halt(struct vcpu *v)
{
	__u64 poll = 0;

	if (v->halt_began >= v->exit_at) {
		__u64 served = least(v->halt_began - v->exit_at, v->pending);

		if (v->pending_asleep != -1ULL)
			poll = between(served, v->pending_asleep);
		else
			poll = least(between(v->halt_began, v->halt_ended), v->pending - served);
	}
	v->time[STATE_POLL] += poll;
	v->time[STATE_EXIT_HALT] += v->pending - poll;
	v->pending = 0;
	v->pending_asleep = -1ULL;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(entry)
{
	struct vcpu *v = current_vcpu();

	if (!v)
		return 0;
	change(v);
	count_on(v, bpf_ktime_get_ns());
	if (v->pending)
		settle_halt(v);
	v->phase = IN_GUEST;
	changed(v);
	return 0;
}

/* The argument is the vendor's larger structure, of which this one is the first field. */
SEC("tp_btf/kvm_exit")
int BPF_PROG(exit, struct kvm_vcpu *vcpu, __u32 isa)
{
	struct vcpu *v = current_vcpu();
	__u32 reason;

	/* 6.12's verifier holds the argument for one that may be missing. */
	if (!v || !vcpu)
		return 0;
	reason = isa == ISA_VMX ? vmx_reason(vcpu) : isa == ISA_SVM ? svm_reason(vcpu) : 0;
	if (!reason || reason >= STATES)
		reason = STATE_EXIT_OTHER;
	change(v);
	count_on(v, bpf_ktime_get_ns());
	v->phase = IN_EXIT;
	v->reason = reason;
	v->exit_at = v->since;
	v->exits[reason]++;
	changed(v);
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

/* What its exit was for turns out later. */
static __always_inline void turns_out(struct vcpu *v, __u32 reason)
{
	__u32 before = v->reason;

	if (before < STATES)
		v->exits[before]--;
	v->exits[reason]++;
	v->reason = reason;
}

static __always_inline void sends_ipi(void)
{
	struct vcpu *v = current_vcpu();

	if (v && v->phase == IN_EXIT && v->reason != STATE_EXIT_HALT && v->reason != STATE_EXIT_IPI)
		turns_out(v, STATE_EXIT_IPI);
}

SEC("tp_btf/kvm_apic_ipi")
int BPF_PROG(ipi)
{
	sends_ipi();
	return 0;
}

/* A register of the interrupt controller is none like the others. */
SEC("tp_btf/kvm_msr")
int BPF_PROG(msr, unsigned int write, __u32 number)
{
	struct vcpu *v = current_vcpu();

	if (v && v->phase == IN_EXIT && v->reason == STATE_EXIT_MSR &&
	    number >= X2APIC_FIRST && number <= X2APIC_LAST)
		turns_out(v, STATE_EXIT_APIC);
	return 0;
}

SEC("tp_btf/kvm_hypercall")
int BPF_PROG(hypercall, unsigned long number)
{
	if (number == HYPERCALL_SEND_IPI)
		sends_ipi();
	return 0;
}

static __always_inline __u64 throttled(struct cfs_rq *queue)
{
	__u64 time = 0;

	if (bpf_core_field_exists(queue->throttled_clock_self_time))
		time = queue->throttled_clock_self_time;
	else if (bpf_core_field_exists(queue->throttled_clock_pelt_time))
		time = queue->throttled_clock_pelt_time;
	return time;
}

/* The sums of a CPU, up to now, as a vCPU of that VM sees them. */
static __always_inline void sums(struct before *sums, __u32 number, __u32 vm, __u64 now)
{
	struct cpu *cpu = cpu_of(number);
	struct share *own = share_of(number, vm);
	__u64 runs;

	if (!cpu || !own)
		return;
	runs = between(cpu->since, now);
	sums->host = cpu->had[HOST] + (cpu->kind == HOST ? runs : 0);
	sums->vcpus = cpu->had[VCPU] + (cpu->kind == VCPU ? runs : 0);
	sums->vmm = cpu->had[VMM] + (cpu->kind == VMM ? runs : 0);
	sums->own_vcpus = own->vcpus + (cpu->kind == VCPU && cpu->vm == vm ? runs : 0);
	sums->own_vmm = own->vmm + (cpu->kind == VMM && cpu->vm == vm ? runs : 0);
}

/* A wait begins. What is noted of the queue counts only where it is in the same at its end. */
static __always_inline void wait_begins(struct vcpu *v, struct task_struct *task, __u32 cpu, __u64 now)
{
	struct cfs_rq *queue = task->se.cfs_rq;

	v->cpu = cpu;
	sums(&v->before, cpu, v->vm, now);
	v->cfs_rq = (__u64)queue;
	v->throttled = throttled(queue);
}

/* As much of `wanted` as is left of a wait. */
static __always_inline void take(struct vcpu *v, __u32 state, __u64 wanted, __u64 *left)
{
	__u64 time = least(wanted, *left);

	v->time[state] += time;
	*left -= time;
}

/* A wait of that length ends: it goes to those who had the CPU meanwhile. */
static __always_inline void wait_ends(struct vcpu *v, struct task_struct *task, __u64 waited, __u64 now)
{
	struct cfs_rq *queue = task->se.cfs_rq;
	struct before after = {};
	__u64 own_vcpus, own_vmm;

	if (v->cfs_rq == (__u64)queue)
		take(v, STATE_THROTTLED, between(v->throttled, throttled(queue)), &waited);
	sums(&after, v->cpu, v->vm, now);
	own_vcpus = between(v->before.own_vcpus, after.own_vcpus);
	own_vmm = between(v->before.own_vmm, after.own_vmm);
	take(v, STATE_READY_SIBLING, own_vcpus, &waited);
	take(v, STATE_READY_OWN_VMM, own_vmm, &waited);
	take(v, STATE_READY_VM, between(own_vcpus, between(v->before.vcpus, after.vcpus)) +
	     between(own_vmm, between(v->before.vmm, after.vmm)), &waited);
	take(v, STATE_READY_HOST, between(v->before.host, after.host), &waited);
	v->time[STATE_READY_NOBODY] += waited;
}

/* Why a thread sleeps that was last in that phase. */
static __always_inline __u32 sleeps_as(struct vcpu *v, __u32 state)
{
	if (state & (TASK_STOPPED_OR_TRACED | TASK_FROZEN))
		return STATE_STOPPED;
	if (v->phase == IN_VMM)
		return STATE_BLOCKED;
	if (v->reason == STATE_EXIT_HALT && v->halt_ended < v->exit_at)
		return STATE_HALTED;
	if (settings.may_park && (state & TASK_INTERRUPTIBLE))
		return STATE_PARKED;
	return STATE_BLOCKED;
}

static __always_inline void switched_out(struct vcpu *v, bool preempted, struct task_struct *task,
					 __u32 cpu, __u64 now)
{
	/* A signal that is pending keeps it running; then its state says so. */
	__u32 state = task->__state;

	change(v);
	if (v->place == ON)
		count_on(v, now);
	v->since = now;
	v->switches++;
	/* It has left the guest, even where KVM reports the exit only later. */
	if (v->phase == IN_GUEST) {
		v->phase = IN_EXIT;
		v->reason = STATE_EXIT_INTERRUPT;
	}
	if (preempted || !state) {
		v->place = READY;
		wait_begins(v, task, cpu, now);
	} else {
		v->place = ASLEEP;
		v->asleep = sleeps_as(v, state);
		if (v->asleep == STATE_HALTED && v->pending_asleep == -1ULL)
			v->pending_asleep = v->pending;
	}
	changed(v);
}

static __always_inline void switched_in(struct vcpu *v, struct task_struct *task, __u64 now)
{
	__u64 begin = v->since;

	change(v);
	if (v->place == ASLEEP) {
		/* Woken before it slept: it was ready all the time. */
		if (v->woken_at > begin)
			begin = least(v->woken_at, now);
		add(v, v->asleep, begin - v->since);
		if (v->asleep == STATE_HALTED)
			v->phase = WAKING;
	}
	if (v->place == ON) /* it was entered while it waited, and nobody noted for whom */
		v->time[STATE_READY_NOBODY] += between(begin, now);
	else
		wait_ends(v, task, between(begin, now), now);
	v->place = ON;
	v->since = now;
	changed(v);
}

/* What the CPU's last task had of it, and whose the next is. */
static __always_inline void cpu_goes_on(struct cpu *cpu, __u32 number, struct vcpu *next_vcpu,
					struct task_struct *next, __u64 now)
{
	__u64 had = cpu->since ? between(cpu->since, now) : 0;
	__u32 tgid = next->tgid, *vm;
	struct share *share;

	if (cpu->kind < KINDS)
		cpu->had[cpu->kind] += had;
	if (cpu->kind == VCPU || cpu->kind == VMM) {
		share = share_of(number, cpu->vm);
		if (share && cpu->kind == VCPU)
			share->vcpus += had;
		else if (share)
			share->vmm += had;
	}
	cpu->since = now;
	if (next_vcpu) {
		cpu->kind = VCPU;
		cpu->vm = next_vcpu->vm;
	} else if (!next->pid) {
		cpu->kind = IDLE;
	} else {
		vm = bpf_map_lookup_elem(&vms, &tgid);
		cpu->kind = vm ? VMM : HOST;
		cpu->vm = vm ? *vm : 0;
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch_task, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 number = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_of(number);
	struct vcpu *v, *in;
	__u64 now;

	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	v = vcpu_on(cpu);
	cpu->slot = next->pid ? slot_of(next->pid) : NO_SLOT;
	in = vcpu_at(cpu->slot);
	cpu_goes_on(cpu, number, in, next, now);
	if (v)
		switched_out(v, preempt, prev, number, now);
	if (in)
		switched_in(in, next, now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wake, struct task_struct *task)
{
	struct vcpu *v = vcpu_of(task->pid);
	__u64 now;

	if (!v)
		return 0;
	now = bpf_ktime_get_ns();
	wait_begins(v, task, v->cpu, now);
	v->woken_at = now;
	v->wakes++;
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
				v->phase = WAKING;
			v->place = READY;
		}
		wait_ends(v, task, between(begin, now), now);
		v->since = now;
		changed(v);
	}
	wait_begins(v, task, to, now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
