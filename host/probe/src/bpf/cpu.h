/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Who has a CPU, and for how long. Included once, after find.h. */
#ifndef UNSPIN_PROBE_CPU_H
#define UNSPIN_PROBE_CPU_H

/*
 * The time from earlier to later; 0 if the clocks of two CPUs disagree. Without the barrier,
 * compilers emit twice as many instructions.
 */
static __always_inline __u64 between(__u64 earlier, __u64 later)
{
	if (later <= earlier)
		return 0;
	barrier_var(later);
	return later - earlier;
}

static __always_inline __u64 least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* How long vCPUs of a VM have been on a CPU until `now`. From now on `by` more are. */
static __always_inline __u64 vm_ran(__u32 number, int by, __u64 now)
{
	struct together *vm = bpf_map_lookup_elem(&together, &number);

	return vm ? ran_until(vm, by, now) : NO_WAIT;
}

/* Counts the time that the CPU's present task has had it. */
static __always_inline void count_had(struct cpu *cpu, __u32 number, __u64 now)
{
	__u64 had = cpu->since ? between(cpu->since, now) : 0;
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
}

/*
 * A CPU starts to run a vCPU. If the vCPU was entered while it ran, the CPU does not know it yet.
 * The caller cannot be preempted.
 */
static __always_inline void runs_vcpu(struct cpu *cpu, __u32 number, struct vcpu *v, __u64 now)
{
	if (cpu->kind == VCPU && cpu->vm == v->vm)
		return;
	count_had(cpu, number, now);
	if (cpu->kind == VCPU)
		vm_ran(cpu->vm, -1, now);
	vm_ran(v->vm, 1, now);
	cpu->kind = VCPU;
	cpu->vm = v->vm;
}

/*
 * Threads have been entered or left: looks up the slot of the CPU's present thread. The caller
 * cannot be preempted.
 */
__noinline int looks_anew(__u32 number)
{
	__u64 registrations = settings.registrations;
	__u32 slot = slot_of((__u32)bpf_get_current_pid_tgid());
	struct cpu *cpu = cpu_of(number);
	struct vcpu *v = vcpu_at(slot);

	if (!cpu)
		return NO_SLOT;
	if (v)
		runs_vcpu(cpu, number, v, bpf_ktime_get_ns());
	cpu->slot = slot;
	cpu->registrations = registrations;
	return slot;
}

/* The vCPU that this CPU runs. The caller cannot be preempted. */
static __always_inline struct vcpu *vcpu_here(struct cpu *cpu, __u32 number)
{
	if (cpu->registrations != settings.registrations)
		return vcpu_at(looks_anew(number));
	return vcpu_at(cpu->slot);
}

/* The same, of the CPU that the program runs on. */
static __always_inline struct vcpu *vcpu_running(void)
{
	__u32 number = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_of(number);

	return cpu ? vcpu_here(cpu, number) : 0;
}

static __always_inline void notes_run(struct runs *cpu, struct task_struct *task, __u64 now)
{
	struct process whose = {};

	if (task->pid) {
		__u64 *name = (__u64 *)task->group_leader->comm;

		whose.tgid = task->tgid;
		whose.command[0] = name[0];
		whose.command[1] = name[1];
	}
	run_begins(cpu, &whose, now);
}

/* Counts the time of the CPU's last task, and notes whose the next one is. */
static __always_inline void cpu_goes_on(struct cpu *cpu, __u32 number, struct vcpu *next_vcpu,
					struct task_struct *next, __u64 now)
{
	__u32 *vm;

	count_had(cpu, number, now);
	if (naming) {
		struct runs *its = bpf_map_lookup_elem(&runs, &number);

		if (its)
			notes_run(its, next, now);
	}
	if (next_vcpu) {
		cpu->kind = VCPU;
		cpu->vm = next_vcpu->vm;
	} else if (!next->pid) {
		cpu->kind = IDLE;
	} else {
		vm = vm_of_process(next->tgid);
		cpu->kind = vm ? VMM : HOST;
		cpu->vm = vm ? *vm : 0;
	}
}

/*
 * Who has had a CPU, as seen by a vCPU of that VM, until the last switch there. Time of vCPUs and
 * VMMs that is not its own VM's counts as other VMs'.
 */
static __always_inline void sums_at_switch(struct sums *sums, struct cpu *cpu, struct share *own)
{
	sums->host = cpu->had[HOST];
	sums->sibling = own->vcpus;
	sums->own_vmm = own->vmm;
	/* Another CPU may be adding to one of these. */
	sums->vm = between(own->vcpus + own->vmm, cpu->had[VCPU] + cpu->had[VMM]);
}

/* The same until now, including the time of the task that runs. */
static __always_inline void sums_now(struct sums *sums, struct cpu *cpu, struct share *own, __u32 vm,
				     __u64 now)
{
	__u64 runs = between(cpu->since, now);

	sums_at_switch(sums, cpu, own);
	if (cpu->kind == HOST)
		sums->host += runs;
	else if (cpu->kind == VCPU && cpu->vm == vm)
		sums->sibling += runs;
	else if (cpu->kind == VMM && cpu->vm == vm)
		sums->own_vmm += runs;
	else if (cpu->kind != IDLE)
		sums->vm += runs;
}

static __always_inline void not_named(__u32 vm, __u64 time)
{
	struct vm *sums = bpf_map_lookup_elem(&vm_sums, &vm);

	if (sums)
		__sync_fetch_and_add(&sums->lost, time);
}

static __always_inline void took(__u32 vm, struct process *who, __u64 time)
{
	struct taker key = { .vm = vm, .tgid = who->tgid };
	struct taken *sum = bpf_map_lookup_elem(&takers, &key), first;

	if (!sum) {
		first.time = time;
		first.command[0] = who->command[0];
		first.command[1] = who->command[1];
		if (!bpf_map_update_elem(&takers, &key, &first, BPF_NOEXIST))
			return;
		/* Another CPU has added the entry, or there is no room. */
		sum = bpf_map_lookup_elem(&takers, &key);
		if (!sum) {
			not_named(vm, time);
			return;
		}
	}
	__sync_fetch_and_add(&sum->time, time);
	/* After execve() a process has another name. */
	sum->command[0] = who->command[0];
	sum->command[1] = who->command[1];
}

/*
 * Counts the takers of a wait that ends now, or of the part `left` of it. A function of its own:
 * the verifier checks it once.
 */
__noinline int wait_was_taken(__u32 number, __u32 vm, __u64 begin, __u64 end, __u64 left)
{
	struct runs *cpu = bpf_map_lookup_elem(&runs, &number);

	if (cpu)
		count_takers(cpu, vm, begin, end, left);
	return 0;
}

#endif
