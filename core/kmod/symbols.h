/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Addresses in the kernel and in kvm.ko, looked up by name. KVM exports some of them only to its
 * vendor modules, and some not at all.
 */
#ifndef UNSPIN_SYMBOLS_H
#define UNSPIN_SYMBOLS_H

#include <linux/tracepoint.h>

/* The functions that are hooked or called, filled in by unspin_symbols_init(). */
struct unspin_symbols {
	struct module *kvm;		/* pinned, because this module links to it */
	unsigned long on_spin;		/* kvm_vcpu_on_spin() */
	unsigned long vcpu_create;	/* kvm_arch_vcpu_create() */
	unsigned long destroy_vm;	/* kvm_arch_destroy_vm() */
	unsigned long vm_release;	/* kvm_vm_release(), what a VM's file descriptor calls */
	unsigned long read_guest;	/* kvm_read_guest_virt(); may be called through a pointer */
	unsigned long handle_work;	/* the kernel's xfer_to_guest_mode_handle_work(); called by its name */
	struct tracepoint *sched_switch, *sched_wakeup, *kvm_entry, *kvm_hypercall;
};
extern struct unspin_symbols unspin_symbols;

/* Returns 0, or an error and logs what is missing. May sleep. */
int unspin_symbols_init(void);
/* Whether this is the release function of a VM's file. */
bool unspin_is_vm_release(const void *release);

#endif
