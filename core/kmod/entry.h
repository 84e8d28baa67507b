/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_ENTRY_H
#define UNSPIN_ENTRY_H

#include "state.h"

/* The hook saw a PLE exit; own thread, preemption off. */
void unspin_ple_exit(struct unspin_slot *slot);
/* Handles kvm_entry where there is work: own thread, interrupts off. "cur": the vCPU whose thread runs here. */
void unspin_entry(struct kvm_vcpu *vcpu, struct unspin_slot *cur);

#endif
