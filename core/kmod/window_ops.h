/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Access to a vCPU's window, per vendor.
 */
#ifndef UNSPIN_WINDOW_OPS_H
#define UNSPIN_WINDOW_OPS_H

#include <linux/kvm_host.h>
#include <linux/moduleparam.h>

/* The result of a check of a vCPU's window. */
enum unspin_window_check {
	UNSPIN_CHECK_GOOD,	/* KVM and the processor have the same window */
	UNSPIN_CHECK_LATER,	/* KVM is about to write a window: check again at the next entry */
	UNSPIN_CHECK_NONE,	/* this vCPU has no window: PAUSE does not exit, or KVM does not control it */
	UNSPIN_CHECK_MISMATCH,	/* KVM and the processor have different windows */
	UNSPIN_CHECK_BROKEN,	/* the layout of KVM's structures is not as expected */
};

/* Where the guest of a vCPU executes. */
struct unspin_where {
	u64 address;		/* the instruction pointer */
	u8 cpl;
};

/* Called from the vCPU's own thread at kvm_entry, except restore_remote and where. */
struct unspin_window_ops {
	const char *name;		/* "vmx", "svm" */
	u32 default_cycles;		/* KVM's initial window */
	enum unspin_window_check (*check)(struct kvm_vcpu *vcpu, const char **why);
	u32 (*get)(struct kvm_vcpu *vcpu);
	/* Returns the window that will be in force; it may be rounded. */
	u32 (*set)(struct kvm_vcpu *vcpu, u32 window_cycles);
	/* From any context; the vCPU's thread may run. */
	void (*restore_remote)(struct kvm_vcpu *vcpu);
	void (*force_pause)(struct kvm_vcpu *vcpu, bool on);	/* test builds only */
	/*
	 * In its own thread, preemption off, or in an interrupt that took the vCPU out of its
	 * guest. False: unknown.
	 */
	bool (*where)(struct kvm_vcpu *vcpu, struct unspin_where *where);
};

extern u32 unspin_window_default_cycles;	/* 0: no control */

/* A vendor module's parameter of this name and type; NULL: it has none. */
const void *unspin_window_param(const struct module *vendor, const char *name,
				const struct kernel_param_ops *type);

/* In window_vmx.c and window_svm.c. NULL and a reason if the layout is not certain. May sleep. */
struct unspin_window_ops *unspin_window_vmx_init(struct module *vendor, const char **why);
struct unspin_window_ops *unspin_window_svm_init(struct module *vendor, const char **why);

#endif
