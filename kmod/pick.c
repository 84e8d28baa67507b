// SPDX-License-Identifier: GPL-2.0-only
/*
 * What runs in place of kvm_vcpu_on_spin() for VMs whose yields we direct: HVS
 * names the sibling that should get this core, KVM's own yield hands it over.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2 and 3.3.
 */
#include <linux/sched.h>
#include <linux/sched/deadline.h>

#include "hot.h"
#include "trace.h"

#define YIELD_TRIES 3	/* as kvm_vcpu_on_spin(): yields that found nothing to gain */

/* Fills snapshot[0..return). A slot may be switched in or out meanwhile; a yield then fails. */
static u32 snapshot_read(struct unspin_vm *vm, struct hvs_slot *snapshot)
{
	u32 count = min(READ_ONCE(vm->nslots), HVS_SLOTS_MAX), i;

	for (i = 0; i < count; i++) {
		/* Pairs with smp_store_release() in unspin_slot_bind(). */
		const struct unspin_slot *slot = smp_load_acquire(&vm->slot[i]);

		snapshot[i] = (struct hvs_slot){};
		if (!slot)
			continue;
		snapshot[i].category = READ_ONCE(slot->category);
		snapshot[i].cpu = READ_ONCE(slot->cpu);
		if (snapshot[i].category == HVS_NOT_PREEMPTED) {
			snapshot[i].running = READ_ONCE(slot->out_tsc) == 0;
			continue;
		}
		snapshot[i].preempted_at = READ_ONCE(slot->out_tsc);
		snapshot[i].yielded_mark = READ_ONCE(slot->yielded_mark);
		snapshot[i].ready = READ_ONCE(slot->vcpu->ready);
	}
	return count;
}

static enum unspin_counter counter_of(u8 category)
{
	switch (category) {
	case HVS_RESOURCE_WAITER:
		return UNSPIN_C_YIELD_RESOURCE;
	case HVS_LOCK_WAITER:
		return UNSPIN_C_YIELD_LOCK;
	default:
		return UNSPIN_C_YIELD_YIELDED;
	}
}

/* Yields to the target; may sleep. As yield_to(): above 0 it took, 0 it could not, below 0 nothing to gain. */
static int yield_to_slot(struct unspin_slot *target)
{
	u8 marked = READ_ONCE(target->yielded_mark);
	u32 cpu = READ_ONCE(target->cpu);
	int outcome;

	/* Before the yield: the target may run, and be preempted again, before it returns. */
	target->pick_seq = per_cpu(unspin_cpu.switches, cpu);
	target->pick_cpu = cpu;
	smp_store_release(&target->pick_pending, 1);	/* read under the target's run queue lock */
	WRITE_ONCE(target->yielded_mark, 1);
	outcome = kvm_vcpu_yield_to(target->vcpu);
	if (outcome <= 0) {
		WRITE_ONCE(target->pick_pending, 0);
		WRITE_ONCE(target->yielded_mark, marked);
	}
	return outcome;
}

static void spin_yield(struct unspin_slot *slot)
{
	struct hvs_slot snapshot[HVS_SLOTS_MAX];
	struct unspin_vm *vm = slot->vm;
	u32 flags = READ_ONCE(vm->hvs_flags);
	u32 count = snapshot_read(vm, snapshot);
	u64 excluded = 0;
	int tries = YIELD_TRIES;
	int outcome = 0;

	while (tries) {	/* each turn excludes one of at most 64 */
		s32 pick = hvs_pick(snapshot, count, slot->idx, excluded, flags);

		if (pick == HVS_PICK_GIVE_WAY) {
			trace_unspin_pick(vm, slot->idx, flags, excluded, snapshot, count, pick, 0);
			unspin_count(slot, UNSPIN_C_GAVE_WAY, 1);
			/* Runs again when the scheduler finds it its turn; a deadline task would lose its period. */
			if (!dl_prio(current->prio))
				yield();
			return;
		}
		slot->complete = pick == HVS_PICK_COMPLETE;
		if (pick < 0 || pick >= (s32)count || !vm->slot[pick]) {
			trace_unspin_pick(vm, slot->idx, flags, excluded, snapshot, count, pick, 0);
			break;
		}
		outcome = yield_to_slot(vm->slot[pick]);
		trace_unspin_pick(vm, slot->idx, flags, excluded, snapshot, count, pick, outcome);
		if (outcome > 0) {
			unspin_count(slot, counter_of(snapshot[pick].category), 1);
			WRITE_ONCE(slot->vcpu->kvm->last_boosted_vcpu, pick);
			return;
		}
		unspin_count(slot, UNSPIN_C_YIELD_FAILED, 1);
		excluded |= BIT_ULL(pick);
		if (outcome < 0)
			tries--;
	}
	unspin_count(slot, UNSPIN_C_YIELD_NONE, 1);
}

/* Redirected from kvm_vcpu_on_spin(), in the vCPU's thread; may sleep. in_flight is set. */
void unspin_on_spin(struct kvm_vcpu *me, bool yield_to_kernel_mode)
{
	struct unspin_slot *slot;

	preempt_disable();
	slot = unspin_slot_find(me);	/* stays: the VM cannot end while its vCPU runs */
	preempt_enable();
	if (!slot)
		return;
	/* Other vCPUs may still select KVM's way and look at these. */
	kvm_vcpu_set_in_spin_loop(me, true);
	spin_yield(slot);
	kvm_vcpu_set_in_spin_loop(me, false);
	kvm_vcpu_set_dy_eligible(me, false);
	/* Last: after this the module may go once this thread has slept or left the kernel. */
	smp_store_release(&slot->in_flight, 0);
}
