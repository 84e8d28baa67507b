/* SPDX-License-Identifier: GPL-2.0-only */
/* Which VMs run in turns, of those whose waste says. All: the planner of turns. */
#ifndef UNSPIN_WANTED_H
#define UNSPIN_WANTED_H

#include "state.h"

#define UNSPIN_WANTED_VMS_MAX 512u

/* The VM has this number in the table of the turn that begins, and these vCPUs. */
void unspin_wanted_vm(const struct unspin_vm *vm, u32 at);
void unspin_wanted_vcpu(const struct unspin_slot *slot, u32 at);

/* Once the table is full: sets "gang_wanted" and "sampled" of its VMs. */
void unspin_wanted_judge(struct unspin_vm **vms, u32 count);

#endif
