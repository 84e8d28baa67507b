/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Why a guest was left: the state that its exit leads to, of what the vendor's structure says. */
#ifndef UNSPIN_PROBE_REASON_H
#define UNSPIN_PROBE_REASON_H

#include "kept.h"

/*
 * Four bytes at a place of the vendor's structure. The verifier knows only the common part of it. Since
 * 6.2 it lets a pointer be taken for another structure of the kernel, here one that is a number: reading
 * needs no call then.
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

/* The register that an exit for RDMSR or WRMSR names: what the guest has in RCX. */
static __always_inline __u32 msr_of(struct kvm_vcpu *vcpu)
{
	return number_at(vcpu, bpf_core_field_offset(struct kvm_vcpu, arch.regs) +
			 VCPU_REGS_RCX * sizeof(unsigned long));
}

/* A register of the interrupt controller is none like the others. */
static __always_inline bool is_of_apic(__u32 msr)
{
	return msr >= X2APIC_FIRST && msr <= X2APIC_LAST;
}

/* The states of reasons, as the processor has them. */
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

/* Of a vendor whose module is loaded one of the fields exists: plan.rs has looked. */
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

/* What its exit was for turns out later. */
static __always_inline void turns_out(struct vcpu *v, __u32 reason)
{
	__u32 before = v->reason;

	/* The verifier knows less of it than the compiler, which would leave out the mask. */
	barrier_var(before);
	v->exits[before % TIMES]--;
	v->exits[reason % TIMES]++;
	v->reason = v->counts = reason;
}

#endif
