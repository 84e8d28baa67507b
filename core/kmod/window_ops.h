/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A vendor's way to a vCPU's window.
 */
#ifndef UNSPIN_WINDOW_OPS_H
#define UNSPIN_WINDOW_OPS_H

#include <linux/kvm_host.h>
#include <linux/moduleparam.h>

/* What a check of a vCPU's window found. */
enum unspin_window_check {
	UNSPIN_CHECK_GOOD,	/* what KVM keeps is what the processor has */
	UNSPIN_CHECK_LATER,	/* KVM has a window to write first: look again at the next entry */
	UNSPIN_CHECK_NONE,	/* this vCPU has no window: PAUSE is left to the guest, or not KVM's */
	UNSPIN_CHECK_MISMATCH,	/* KVM keeps one, the processor has another */
	UNSPIN_CHECK_BROKEN,	/* the layout is not what was thought */
};

/* Where a vCPU's guest is. */
struct unspin_where {
	u64 address;		/* the instruction pointer */
	u8 cpl;
};

/* All but restore_remote and where: from the vCPU's own thread at kvm_entry. */
struct unspin_window_ops {
	const char *name;		/* "vmx", "svm" */
	u32 default_cycles;		/* what KVM starts from */
	bool scales;			/* defaults of settings scale with default_cycles */
	enum unspin_window_check (*check)(struct kvm_vcpu *vcpu, const char **why);
	u32 (*get)(struct kvm_vcpu *vcpu);
	/* Returns the window that will be in force, which granularity may round. */
	u32 (*set)(struct kvm_vcpu *vcpu, u32 window_cycles);
	/* From any context; the vCPU's thread may run. */
	void (*restore_remote)(struct kvm_vcpu *vcpu);
	void (*force_pause)(struct kvm_vcpu *vcpu, bool on);	/* test builds only */
	/*
	 * In the own thread, preemption off, or in an interrupt that took the vCPU out of its
	 * guest. False: it cannot be told.
	 */
	bool (*where)(struct kvm_vcpu *vcpu, struct unspin_where *where);
};

extern u32 unspin_window_default_cycles;	/* 0: no control */

/* The value of a vendor module's parameter of that type; NULL: it has none. */
const void *unspin_window_param(const struct module *vendor, const char *name,
				const struct kernel_param_ops *type);

/* window_vmx.c, window_svm.c: NULL and a reason where the layout is not known for sure. May sleep. */
struct unspin_window_ops *unspin_window_vmx_init(struct module *vendor, const char **why);
struct unspin_window_ops *unspin_window_svm_init(struct module *vendor, const char **why);

#endif
