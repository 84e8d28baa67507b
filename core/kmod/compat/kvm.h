/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_KVM_H
#define UNSPIN_COMPAT_KVM_H

#include <linux/kvm_host.h>

/*
 * kvm_entry passes (vcpu) in 6.1, and (vcpu, force_immediate_exit) in 6.12 and in
 * 6.1.y since the backport of that argument. Probes are called through untyped
 * pointers, and x86-64 passes arguments in registers, so a probe that names only the
 * first argument fits both. Kernels that check the types of indirect calls would
 * fault there; compat.h refuses them.
 */

/* Whether the guest is between two instructions, and KVM emulates none. Own thread. */
static inline bool compat_at_instruction_boundary(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.at_instruction_boundary;
}

/* Equal for CPUs with one last-level cache. Before 6.7 modules can only read the package. */
static inline u32 compat_cache_id(u32 cpu)
{
#ifdef UNSPIN_HAVE_LLC_ID
	return per_cpu_llc_id(cpu);
#else
	return topology_physical_package_id(cpu);
#endif
}

/* HF_GUEST_MASK is bit 5 in 6.1 and bit 0 in 6.12; the kernel's header defines it. */
static inline bool compat_is_guest_mode(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.hflags & HF_GUEST_MASK;
}

/* The guest has turned VMX on, so it may run nested guests. */
static inline bool compat_may_nest(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.cr4 & X86_CR4_VMXE;
}

/*
 * When the vCPU last left its guest, in host TSC cycles; KVM notes the guest's TSC at that moment.
 * 0 if the guest's TSC is scaled, that is, if its ratio is no power of two.
 */
static inline u64 compat_last_exit_tsc(const struct kvm_vcpu *vcpu)
{
	u64 ratio = vcpu->arch.l1_tsc_scaling_ratio;

	return ratio & (ratio - 1) ? 0 : vcpu->arch.last_guest_tsc - vcpu->arch.l1_tsc_offset;
}

/* Whether PAUSE does not exit. One flag up to 6.16, a set of flags from 6.17 on. */
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

/* TDX guests exist from 6.16 on. */
static inline bool compat_is_tdx(const struct kvm *kvm)
{
#ifdef KVM_X86_TDX_VM
	return kvm->arch.vm_type == KVM_X86_TDX_VM;
#else
	return false;
#endif
}

/* Whether this interrupt took the vCPU out of its guest, and the guest's registers can be read. */
static inline bool compat_interrupted_in_guest(const struct kvm_vcpu *vcpu)
{
	return READ_ONCE(vcpu->arch.handling_intr_from_guest) && !vcpu->arch.guest_state_protected;
}

/* Whether the host cannot read the guest's registers (SEV-ES, TDX). */
static inline bool compat_is_protected(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.guest_state_protected || compat_is_tdx(vcpu->kvm);
}

/* Whether it was preempted in guest user mode. False for a protected guest, whose mode is unknown. */
static inline bool compat_preempted_in_user(const struct kvm_vcpu *vcpu)
{
	return !READ_ONCE(vcpu->arch.preempted_in_kernel) && !vcpu->arch.guest_state_protected;
}

#endif
