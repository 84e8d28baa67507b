/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * VMs and vCPUs: their state is created, bound to KVM's objects, and ended.
 */
#ifndef UNSPIN_VMS_H
#define UNSPIN_VMS_H

#include "state.h"

int unspin_vms_init(void);
/* Call with all hooks released, so that nothing adds VMs or looks them up. */
void unspin_vms_deinit(void);

/*
 * Finds or creates the slot of a vCPU. Called when KVM creates a vCPU (an ftrace callback: no
 * sleep), by discovery, and at the first entry of a vCPU that neither of them saw. The vCPU's VM
 * cannot end meanwhile. NULL: no memory.
 */
struct unspin_slot *unspin_slot_add(struct kvm_vcpu *vcpu, gfp_t gfp);
/* The vCPU runs, so its index is final. From now on it can be picked and restored. */
void unspin_slot_bind(struct unspin_slot *slot);
/* Notes that the current thread runs the vCPU: yields to the vCPU go to it. Own thread, preemption off. */
void unspin_slot_hold_current(struct unspin_slot *slot);
/* Entry of kvm_arch_destroy_vm(): none of its vCPUs runs any more, none has been freed yet. */
void unspin_vm_end(const struct kvm *kvm);

#endif
