/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_KVM_H
#define UNSPIN_COMPAT_KVM_H

#include <linux/kvm_host.h>

/*
 * kvm_entry passes (vcpu) in 6.1 as released and (vcpu, force_immediate_exit)
 * in 6.12 and in 6.1.y since the argument was backported. Tracepoints are
 * probed through untyped pointers and x86-64 passes arguments in registers, so
 * one probe that names only the first argument serves both.
 */

/* HF_GUEST_MASK moved from bit 5 (6.1) to bit 0 (6.12); the header of the kernel built for knows. */
static inline bool compat_is_guest_mode(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.hflags & HF_GUEST_MASK;
}

#endif
