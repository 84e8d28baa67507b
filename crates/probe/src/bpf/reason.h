/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Why a guest was left: the state that its exit leads to, of what the vendor's structure says. */
#ifndef UNSPIN_PROBE_REASON_H
#define UNSPIN_PROBE_REASON_H

#include "kept.h"

static __always_inline __u32 vmx_reason(struct kvm_vcpu *vcpu)
{
	__u32 reason = 0;

	if (bpf_core_field_exists(((struct vcpu_vmx *)0)->exit_reason))
		bpf_core_read(&reason, sizeof(reason), &((struct vcpu_vmx *)vcpu)->exit_reason);
	else if (bpf_core_field_exists(((struct vcpu_vmx___with_vt *)0)->vt.exit_reason))
		bpf_core_read(&reason, sizeof(reason),
			      &((struct vcpu_vmx___with_vt *)vcpu)->vt.exit_reason);
	reason &= 0xffff;
	return reason < EXITS ? vmx_exits[reason] : 0;
}

static __always_inline __u32 svm_reason(struct kvm_vcpu *vcpu)
{
	struct vmcb *vmcb = 0;
	__u32 code = 0;

	if (!bpf_core_field_exists(((struct vcpu_svm *)0)->vmcb))
		return 0;
	bpf_core_read(&vmcb, sizeof(vmcb), &((struct vcpu_svm *)vcpu)->vmcb);
	bpf_core_read(&code, sizeof(code), &vmcb->control.exit_code);
	if (code < EXITS)
		return svm_exits[code];
	code -= SVM_SECOND_FIRST;
	return code < EXITS ? svm_second_exits[code] : 0;
}

#endif
