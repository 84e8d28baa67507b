/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who waits for whom's answer: the interrupts that vCPUs send each other.
 */
#ifndef UNSPIN_IPI_H
#define UNSPIN_IPI_H

#include "../policy/ipi.h"
#include "state.h"

/* KVM delivers an interrupt to the vCPU with this APIC number, in the thread of "from"; preemption off. */
void unspin_ipi_sent(struct unspin_slot *from, u32 vcpu_id, u32 delivery_mode);

/*
 * Who owes the caller an answer: it was interrupted by the caller and has not been on a
 * core since. Fills slots[0..count) from the same snapshot that HVS gets.
 */
void unspin_ipi_slots(const struct unspin_slot *caller, const struct hvs_slot *snapshot, u32 count,
		      struct ipi_slot *slots);

#endif
