/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_PICK_H
#define UNSPIN_PICK_H

#include <linux/kvm_host.h>

/* Runs instead of kvm_vcpu_on_spin(), in the vCPU's thread; may sleep. Counted by redirect.h. */
void unspin_on_spin(struct kvm_vcpu *me, bool yield_to_kernel_mode);

#endif
