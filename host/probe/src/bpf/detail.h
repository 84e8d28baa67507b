/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What only a diagnosis needs: how many vCPUs of a VM want a CPU at the same time, and which ports,
 * registers and addresses its guest accesses. Included once, after reason.h.
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
 * A vCPU starts or stops wanting a CPU. Its waker may report this while the vCPU goes to sleep: the
 * last report counts. A vCPU that is no longer watched has already been subtracted.
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

/*
 * The purpose of the exit. If it already had another, both count an access, and the last gets the
 * time.
 */
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

/* The vCPU loses its CPU during the exit. */
static __always_inline void access_pauses(struct vcpu *v, __u64 now)
{
	if (detailed && now > v->since)
		v->served += now - v->since;
}

/* The vCPU enters its guest again. The result of a read in the VMM is known only now. */
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

/* Counts by page, because a device has many registers in one. */
static __always_inline void at_address(__u64 address)
{
	struct vcpu *v = current_vcpu();
	__u64 page = address & ~0xfffULL;

	if (!v)
		return;
	accesses_at(v, MMIO, page);
	/* For the processor such an exit is for memory that is not mapped. */
	if (v->counts == v->reason && (v->reason == STATE_EXIT_MEMORY || v->reason == STATE_EXIT_MMIO))
		turns_out(v, page == APIC_PAGE ? STATE_EXIT_APIC : STATE_EXIT_MMIO);
}

SEC("tp_btf/kvm_mmio")
int BPF_PROG(mmio, int type, int length, __u64 address)
{
	at_address(address);
	return 0;
}

/* A write that only notifies a device. */
SEC("tp_btf/kvm_fast_mmio")
int BPF_PROG(fast_mmio, __u64 address)
{
	at_address(address);
	return 0;
}

#endif
