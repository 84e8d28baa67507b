/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Finds the records of a CPU, a thread or a VM. Included once, after kept.h. */
#ifndef UNSPIN_PROBE_FIND_H
#define UNSPIN_PROBE_FIND_H

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
	__u32 place = tid % PLACES, *slot;
	struct thread *first = bpf_map_lookup_elem(&places, &place);

	if (!first)
		return NO_SLOT;
	if (first->tid == tid)
		return first->slot;
	if (!first->others)
		return NO_SLOT;
	slot = bpf_map_lookup_elem(&slots, &tid);
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

/* The number of the VM of a process; null if the process is not watched. */
static __always_inline __u32 *vm_of_process(__u32 tgid)
{
	__u32 place = tgid % PLACES;
	struct thread *first = bpf_map_lookup_elem(&places, &place);

	return first && first->vms ? bpf_map_lookup_elem(&vms, &tgid) : 0;
}

/*
 * The slot of the thread that a CPU runs, as noted when it was switched in. If threads were entered
 * or left since then, looks it up again.
 */
static __always_inline __u32 slot_on(struct cpu *cpu)
{
	if (cpu->registrations != settings.registrations)
		return slot_of((__u32)bpf_get_current_pid_tgid());
	return cpu->slot;
}

static __always_inline struct vcpu *current_vcpu(void)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());

	return cpu ? vcpu_at(slot_on(cpu)) : 0;
}

#endif
