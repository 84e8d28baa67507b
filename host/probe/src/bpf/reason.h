/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Why a guest exited: the state for the reason in the vendor's structure. */
#ifndef UNSPIN_PROBE_REASON_H
#define UNSPIN_PROBE_REASON_H

#include "kept.h"

/*
 * Four bytes at an offset of the vendor's structure, of which the verifier knows only the common
 * part. Since 6.2 the verifier allows a cast to another structure of the kernel, here one that is a
 * number. Then the read needs no call.
 */
static __always_inline __u32 number_at(struct kvm_vcpu *vcpu, __u64 offset)
{
	void *place = (void *)vcpu + offset;
	__u32 number = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast))
		return *(__u32 *)bpf_core_cast(place, struct refcount_struct);
	bpf_core_read(&number, sizeof(number), (__u32 *)place);
	return number;
}

/* The register that an exit for RDMSR or WRMSR accesses: the guest's RCX. */
static __always_inline __u32 msr_of(struct kvm_vcpu *vcpu)
{
	return number_at(vcpu, bpf_core_field_offset(struct kvm_vcpu, arch.regs) +
			 VCPU_REGS_RCX * sizeof(unsigned long));
}

/* Registers of the interrupt controller are counted apart. */
static __always_inline bool is_of_apic(__u32 msr)
{
	return msr >= X2APIC_FIRST && msr <= X2APIC_LAST;
}

/* The states of the processor's exit reasons. */
static __always_inline __u32 vmx_state(__u32 reason)
{
	reason &= 0xffff;
	return reason < EXITS ? vmx_exits[reason] : STATE_EXIT_OTHER;
}

static __always_inline __u32 svm_state(__u32 code)
{
	if (code < EXITS)
		return svm_exits[code];
	code -= SVM_SECOND_FIRST;
	return code < EXITS ? svm_second_exits[code] : STATE_EXIT_OTHER;
}

/* If the vendor's module is loaded, one of the fields exists: plan.rs has checked it. */
static __always_inline __u32 vmx_reason(struct kvm_vcpu *vcpu)
{
	if (bpf_core_field_exists(((struct vcpu_vmx *)0)->exit_reason))
		return vmx_state(number_at(vcpu, bpf_core_field_offset(struct vcpu_vmx, exit_reason)));
	if (bpf_core_field_exists(((struct vcpu_vmx___with_vt *)0)->vt.exit_reason))
		return vmx_state(number_at(vcpu, bpf_core_field_offset(struct vcpu_vmx___with_vt,
								       vt.exit_reason)));
	return STATE_EXIT_OTHER;
}

static __always_inline __u32 svm_reason(struct kvm_vcpu *vcpu)
{
	struct vmcb *vmcb = 0;
	__u32 code = 0;

	if (!bpf_core_field_exists(((struct vcpu_svm *)0)->vmcb))
		return STATE_EXIT_OTHER;
	bpf_core_read(&vmcb, sizeof(vmcb), &((struct vcpu_svm *)vcpu)->vmcb);
	bpf_core_read(&code, sizeof(code), &vmcb->control.exit_code);
	return svm_state(code);
}

/* The reason of its exit is known only now. */
static __always_inline void turns_out(struct vcpu *v, __u32 reason)
{
	__u32 before = v->reason;

	/* The verifier knows less about it than the compiler, which would drop the mask. */
	barrier_var(before);
	v->exits[before % TIMES]--;
	v->exits[reason % TIMES]++;
	v->reason = v->counts = reason;
}

#endif
