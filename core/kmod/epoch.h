/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Totals of a VM, and the epochs of APLE.
 */
#ifndef UNSPIN_EPOCH_H
#define UNSPIN_EPOCH_H

#include "state.h"

/* Sums over the VM's vCPUs since their creation. Any context, under RCU or with the VM held. */
void unspin_totals_read(struct unspin_vm *vm, struct unspin_totals *totals);
/* Mean of the windows in force at its vCPUs, in cycles; 0: none known. Under RCU. */
u32 unspin_window_mean(struct unspin_vm *vm);
/* Begins an epoch now. epoch_lock held. */
void unspin_epoch_restart(struct unspin_vm *vm);
/* Sets how many exits a vCPU collects before it adds them to the VM. epoch_lock held, or not yet linked. */
void unspin_epoch_batch(struct unspin_vm *vm);
/* Counts a PLE exit that was handled: own thread, interrupts off. Ends the epoch if it is full. */
void unspin_epoch_report(struct unspin_slot *slot, u64 now);
void unspin_epoch_work(struct work_struct *work);

#endif
