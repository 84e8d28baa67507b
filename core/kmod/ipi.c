// SPDX-License-Identifier: GPL-2.0-only
/*
 * A vCPU that waits for answers to its interrupts (a TLB shoot-down, a call on all CPUs)
 * waits for their receivers and for nobody else. What a receiver that has no core has not
 * entered the guest since, it cannot have answered. policy/ipi.c decides.
 */
#include "ipi.h"

/* The delivery modes guests wait for answers to; the others start vCPUs. */
#define DELIVERY_FIXED 0x000u
#define DELIVERY_LOWEST 0x100u
#define DELIVERY_NMI 0x400u

static struct unspin_slot *slot_numbered(struct unspin_vm *vm, u32 vcpu_id)
{
	u32 count = min(READ_ONCE(vm->nslots), HVS_SLOTS_MAX), i;
	struct unspin_slot *slot;

	if (vcpu_id < count) {	/* the usual case: numbered in the order they were made */
		slot = smp_load_acquire(&vm->slot[vcpu_id]);
		if (slot && slot->vcpu->vcpu_id == vcpu_id)
			return slot;
	}
	for (i = 0; i < count; i++) {
		slot = smp_load_acquire(&vm->slot[i]);
		if (slot && slot->vcpu->vcpu_id == vcpu_id)
			return slot;
	}
	return NULL;
}

void unspin_ipi_sent(struct unspin_slot *from, u32 vcpu_id, u32 delivery_mode)
{
	struct unspin_slot *to;

	if (delivery_mode != DELIVERY_FIXED && delivery_mode != DELIVERY_LOWEST &&
	    delivery_mode != DELIVERY_NMI)
		return;
	to = slot_numbered(from->vm, vcpu_id);
	if (to && to != from && to->idx < (s32)HVS_SLOTS_MAX)
		WRITE_ONCE(from->ipi_sent_tsc[to->idx], unspin_now());
}

void unspin_ipi_slots(const struct unspin_slot *caller, const struct hvs_slot *snapshot, u32 count,
		      struct ipi_slot *slots)
{
	u32 i;

	for (i = 0; i < count; i++) {
		u64 out = snapshot[i].preempted_at;

		slots[i] = (struct ipi_slot){
			.preempted_at = out,
			.ready = snapshot[i].ready,
			.owes_answer = out && READ_ONCE(caller->ipi_sent_tsc[i]) > out,
		};
	}
}
