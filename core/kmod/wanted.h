/* SPDX-License-Identifier: GPL-2.0-only */
/* Which VMs run in turns, by what they waste. Only the planner of turns calls these. */
#ifndef UNSPIN_WANTED_H
#define UNSPIN_WANTED_H

#include "state.h"

#define UNSPIN_WANTED_VMS_MAX 512u

/* Enters a VM, and then each of its vCPUs, in the table of the turn that begins, at this index. */
void unspin_wanted_vm(const struct unspin_vm *vm, u32 at);
void unspin_wanted_vcpu(const struct unspin_slot *slot, u32 at);

/* Sets "gang_wanted" and "sampled" of all VMs, once all are in the table. */
void unspin_wanted_judge(struct unspin_vm **vms, u32 count);

#endif
