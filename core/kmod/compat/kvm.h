/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_KVM_H
#define UNSPIN_COMPAT_KVM_H

#include <linux/kvm_host.h>

/*
 * kvm_entry passes (vcpu) in 6.1 as released and (vcpu, force_immediate_exit)
 * in 6.12 and in 6.1.y since the argument was backported. Tracepoints are
 * probed through untyped pointers and x86-64 passes arguments in registers, so
 * one probe that names only the first argument serves both. A kernel that checks
 * the types of indirect calls would stop there, and is refused in compat.h.
 */

/* The guest stands between two instructions, and nothing of it is being emulated. Own thread. */
static inline bool compat_at_instruction_boundary(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.at_instruction_boundary;
}

/* Equal for CPUs of one last-level cache. Before 6.7 only the package is known to modules. */
static inline u32 compat_cache_id(u32 cpu)
{
#ifdef UNSPIN_HAVE_LLC_ID
	return per_cpu_llc_id(cpu);
#else
	return topology_physical_package_id(cpu);
#endif
}

/* HF_GUEST_MASK moved from bit 5 (6.1) to bit 0 (6.12); the header of the kernel built for knows. */
static inline bool compat_is_guest_mode(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.hflags & HF_GUEST_MASK;
}

/* The guest has turned VMX on: it may run guests of its own. */
static inline bool compat_may_nest(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.cr4 & X86_CR4_VMXE;
}

/*
 * When the vCPU last left its guest, in host TSC cycles: KVM notes the guest's TSC at that
 * moment. 0 where the guest's TSC is scaled; the ratio of one that is not is a power of two.
 */
static inline u64 compat_last_exit_tsc(const struct kvm_vcpu *vcpu)
{
	u64 ratio = vcpu->arch.l1_tsc_scaling_ratio;

	return ratio & (ratio - 1) ? 0 : vcpu->arch.last_guest_tsc - vcpu->arch.l1_tsc_offset;
}

/* PAUSE left to the guest. One flag up to 6.16; a set of flags from 6.17. */
static inline bool compat_pause_in_guest(const struct kvm *kvm)
{
#ifdef UNSPIN_HAVE_DISABLED_EXITS
	return kvm->arch.disabled_exits & KVM_X86_DISABLE_EXITS_PAUSE;
#else
	return kvm->arch.pause_in_guest;
#endif
}

static inline void compat_pause_not_in_guest(struct kvm *kvm)
{
#ifdef UNSPIN_HAVE_DISABLED_EXITS
	kvm->arch.disabled_exits &= ~(u64)KVM_X86_DISABLE_EXITS_PAUSE;
#endif
}

/* TDX guests come with 6.16. */
static inline bool compat_is_tdx(const struct kvm *kvm)
{
#ifdef KVM_X86_TDX_VM
	return kvm->arch.vm_type == KVM_X86_TDX_VM;
#else
	return false;
#endif
}

/* An interrupt is being handled that took the vCPU out of its guest, whose registers can be read. */
static inline bool compat_interrupted_in_guest(const struct kvm_vcpu *vcpu)
{
	return READ_ONCE(vcpu->arch.handling_intr_from_guest) && !vcpu->arch.guest_state_protected;
}

/* The hypervisor cannot read the guest's registers (SEV-ES, TDX). */
static inline bool compat_is_protected(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.guest_state_protected || compat_is_tdx(vcpu->kvm);
}

/* Preempted while in guest user mode. What a protected guest does is not seen: kernel mode. */
static inline bool compat_preempted_in_user(const struct kvm_vcpu *vcpu)
{
	return !READ_ONCE(vcpu->arch.preempted_in_kernel) && !vcpu->arch.guest_state_protected;
}

#endif
