/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What only a diagnosis needs: how many vCPUs of a VM want a CPU at a time, and which ports, registers and
 * addresses its guest accesses. Included once, after reason.h.
 */
#ifndef UNSPIN_PROBE_DETAIL_H
#define UNSPIN_PROBE_DETAIL_H

#include "find.h"
#include "reason.h"

static struct vm *vm_of(struct vcpu *v)
{
	return bpf_map_lookup_elem(&vm_sums, &v->vm);
}

/*
 * A vCPU begins or ceases to want a CPU. Its waker may say so while it goes to sleep: the last one counts.
 * One that is watched no more has been taken out of the number.
 */
static __always_inline void wants(struct vcpu *v, __u64 wanted, __u64 now)
{
	struct vm *vm;

	if (!detailed || v->wants != !wanted)
		return;
	if (__sync_val_compare_and_swap(&v->wants, !wanted, wanted) != !wanted)
		return;
	vm = vm_of(v);
	if (vm)
		want(&vm->wanting, vm->time, wanted ? 1 : -1, now);
}

static __always_inline void add_access(struct access *access, __u64 ns, bool visited)
{
	__sync_fetch_and_add(&access->count, 1);
	__sync_fetch_and_add(&access->ns, ns);
	if (visited)
		__sync_fetch_and_add(&access->visits, 1);
}

static __always_inline struct access *access_of(struct access_key *key)
{
	return bpf_map_lookup_elem(&accesses, key);
}

static __always_inline void count_access(struct vcpu *v, __u64 ns, bool visited)
{
	struct access_key key = { .vm = v->vm, .kind = v->access, .address = v->address };
	struct access *access = access_of(&key), none = {};
	struct vm *vm;

	if (!access) {
		vm = vm_of(v);
		if (!vm)
			return;
		if (vm->accesses >= ACCESSES_OF_VM)
			key.address = OTHERS;
		if (!bpf_map_update_elem(&accesses, &key, &none, BPF_NOEXIST))
			__sync_fetch_and_add(&vm->accesses, 1);
		access = access_of(&key);
		if (!access) {
			__sync_fetch_and_add(&vm->accesses_lost, 1);
			return;
		}
	}
	add_access(access, ns, visited);
}

/* The exit is for this. If it was for something else before, it is for both, and its time is of the last. */
static __always_inline void accesses_at(struct vcpu *v, __u32 kind, __u64 address)
{
	if (v->access && (v->access != kind || v->address != address))
		count_access(v, 0, 0);
	v->access = kind;
	v->address = address;
}

/* An exit begins. */
static __always_inline void access_begins(struct vcpu *v)
{
	v->served = 0;
	v->access = NO_ACCESS;
}

/* On its way the vCPU leaves a CPU. */
static __always_inline void access_pauses(struct vcpu *v, __u64 now)
{
	if (detailed && now > v->since)
		v->served += now - v->since;
}

/* The guest goes on. What is read in the VMM is known only when it is back from there. */
static __always_inline void access_ends(struct vcpu *v, __u64 now)
{
	__u64 ns = v->served + (now > v->since ? now - v->since : 0);

	if (v->access)
		count_access(v, ns, v->vmm_at || v->counts == STATE_VMM);
	v->access = NO_ACCESS;
}

SEC("tp_btf/kvm_pio")
int BPF_PROG(port, unsigned int is_write, unsigned int number)
{
	struct vcpu *v = current_vcpu();

	if (v)
		accesses_at(v, PORT, number);
	return 0;
}

/* Of a page: a device has many registers in one. */
static __always_inline void at_address(__u64 address)
{
	struct vcpu *v = current_vcpu();
	__u64 page = address & ~0xfffULL;

	if (!v)
		return;
	accesses_at(v, MMIO, page);
	/* An exit for memory that is not mapped, to the processor. */
	if (v->counts == v->reason && (v->reason == STATE_EXIT_MEMORY || v->reason == STATE_EXIT_MMIO))
		turns_out(v, page == APIC_PAGE ? STATE_EXIT_APIC : STATE_EXIT_MMIO);
}

SEC("tp_btf/kvm_mmio")
int BPF_PROG(mmio, int type, int length, __u64 address)
{
	at_address(address);
	return 0;
}

/* One that only tells a device that there is something to do. */
SEC("tp_btf/kvm_fast_mmio")
int BPF_PROG(fast_mmio, __u64 address)
{
	at_address(address);
	return 0;
}

#endif
