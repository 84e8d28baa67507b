// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs in place of kvm_vcpu_on_spin() for VMs whose yields the module directs: HVS chooses
 * the sibling that should get this core, and the kernel's yield_to() hands the core over.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2 and 3.3. In a VM of more than
 * HVS_SLOTS_MAX vCPUs an exit considers only the most likely ones, which hvs_look() chooses.
 */
#include <linux/sched.h>
#include <linux/sched/deadline.h>
#include <linux/sched/task.h>

#include "pick.h"
#include "redirect.h"
#include "state.h"
#include "trace.h"

/*
 * KVM's "ready" is stale if the vCPU was woken just before it fell asleep: KVM may leave it set while
 * the vCPU runs. A vCPU whose thread sleeps is not ready, whatever KVM says.
 */
static void slot_read(const struct unspin_slot *slot, bool kernel_mode, u32 flags,
		      struct hvs_slot *seen)
{
	const struct task_struct *task = READ_ONCE(slot->held);
	const struct kvm_vcpu *vcpu = slot->vcpu;

	if (unlikely(flags & HVS_TRUE_LISTS)) {
		seen->preempted_at = READ_ONCE(slot->listed_tsc);
		seen->category = READ_ONCE(slot->listed);
		seen->ready = 1;
		return;
	}
	seen->preempted_at = READ_ONCE(slot->out_tsc);
	seen->running = seen->preempted_at == 0;
	seen->cpu = READ_ONCE(slot->cpu);
	if (seen->running || !task)
		return;
	seen->category = READ_ONCE(slot->category);
	seen->ready = READ_ONCE(vcpu->ready);
	seen->cpu = task_cpu(task);	/* the scheduler may have moved it since it was switched out */
	if (seen->category == HVS_NOT_PREEMPTED) {
		seen->ready = seen->ready && task_is_running(task);
		if (seen->ready)
			seen->category = HVS_WOKEN;
		return;
	}
	seen->yielded_mark = READ_ONCE(slot->yielded_mark);
	/* As in KVM: a vCPU that spins in user mode may wait for one preempted in user mode. */
	seen->user_mode = kernel_mode && compat_preempted_in_user(vcpu);
}

/* Fills snapshot[0..return). A slot may be switched in or out meanwhile; a yield then fails. */
static u32 snapshot_read(struct unspin_vm *vm, bool kernel_mode, u32 flags, struct hvs_slot *snapshot)
{
	u32 count = min(READ_ONCE(vm->nslots), HVS_SLOTS_MAX), i;

	rcu_read_lock();	/* keeps the threads */
	for (i = 0; i < count; i++) {
		/* Pairs with smp_store_release() in unspin_slot_bind(). */
		const struct unspin_slot *slot = smp_load_acquire(&vm->slot[i]);

		snapshot[i] = (struct hvs_slot){};
		if (slot)
			slot_read(slot, kernel_mode, flags, &snapshot[i]);
	}
	rcu_read_unlock();
	return count;
}

static struct unspin_slot *slot_numbered(struct unspin_vm *vm, u32 idx)
{
	struct unspin_slot **chunk;
	struct unspin_large *large;

	/* Each pairs with an smp_store_release() in slot_place() or large_grow(). */
	if (idx < HVS_SLOTS_MAX)
		return smp_load_acquire(&vm->slot[idx]);
	large = smp_load_acquire(&vm->large);
	chunk = smp_load_acquire(&large->chunk[idx / HVS_SLOTS_MAX - 1]);
	return chunk ? smp_load_acquire(&chunk[idx % HVS_SLOTS_MAX]) : NULL;
}

/* Whether a vCPU of the VM runs on this CPU. Under RCU. */
static bool runs_on(const struct unspin_vm *vm, u32 cpu)
{
	const struct unspin_slot *cur = READ_ONCE(per_cpu(unspin_cpu.cur, cpu));

	return cur && cur->vm == vm;
}

/* As snapshot_read(), for the vCPUs of "look" that are ready. number[]: their indices. */
static u32 looked_read(struct unspin_vm *vm, bool kernel_mode, const struct hvs_look *look,
		       struct hvs_slot *snapshot, u16 *number)
{
	u32 count = 0, i;

	rcu_read_lock();
	for (i = 0; i < look->count && count < HVS_SLOTS_MAX; i++) {
		const struct unspin_slot *slot = slot_numbered(vm, look->number[i]);
		struct hvs_slot seen = {};

		if (slot)
			slot_read(slot, kernel_mode, 0, &seen);
		if (!seen.ready || seen.category == HVS_NOT_PREEMPTED)
			continue;
		seen.shared = runs_on(vm, seen.cpu);
		snapshot[count] = seen;
		number[count++] = look->number[i];
	}
	rcu_read_unlock();
	return count;
}

static enum unspin_counter counter_of(enum hvs_category category)
{
	switch (category) {
	case HVS_RESOURCE_WAITER:
		return UNSPIN_C_YIELD_RESOURCE;
	case HVS_LOCK_WAITER:
		return UNSPIN_C_YIELD_LOCK;
	case HVS_YIELDED:
		return UNSPIN_C_YIELD_YIELDED;
	case HVS_WOKEN:
		return UNSPIN_C_YIELD_WOKEN;
	case HVS_NOT_PREEMPTED:	/* never picked */
		break;
	}
	return UNSPIN_C_YIELD_NONE;
}

/*
 * Yields to the target; may sleep. Returns what yield_to() does: above 0 if it yielded, 0 if it could
 * not, below 0 if nothing could be gained. keep_mark: a failed yield leaves the target marked, too.
 */
static int yield_to_slot(struct unspin_slot *target, bool keep_mark)
{
	u8 marked = READ_ONCE(target->yielded_mark);
	struct task_struct *task;
	int outcome;
	u32 cpu;

	rcu_read_lock();
	task = READ_ONCE(target->held);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return 0;
	/* Set before the yield, because the target may run and be preempted again before it returns. */
	cpu = task_cpu(task);
	target->pick_seq = per_cpu(unspin_cpu.switches, cpu);
	target->pick_cpu = cpu;
	smp_store_release(&target->pick_pending, 1);	/* read under the target's run queue lock */
	WRITE_ONCE(target->yielded_mark, 1);
	outcome = yield_to(task, true);
	put_task_struct(task);
	if (outcome <= 0) {
		WRITE_ONCE(target->pick_pending, 0);
		if (!keep_mark)
			WRITE_ONCE(target->yielded_mark, marked);
	}
	return outcome;
}

/* What a PLE exit can choose from, and what it has tried. */
struct choice {
	struct unspin_slot *caller;
	struct hvs_slot *snapshot;
	/* For a VM of more than HVS_SLOTS_MAX vCPUs, else NULL: indices of the slots; all vCPUs. */
	const u16 *number;
	const struct hvs_look *look;
	u32 count;
	u32 flags;
	u64 excluded;
	int tries;
};

/* Yields to the pick. False: the yield failed, and the target is not tried again. */
static bool target_took(struct choice *choice, s32 pick, enum unspin_counter counter, int *outcome)
{
	struct unspin_slot *caller = choice->caller;
	u32 idx = choice->look ? choice->number[pick] : pick;
	struct unspin_slot *target = slot_numbered(caller->vm, idx);

	if (unlikely(choice->flags & HVS_TRUE_LISTS))
		WRITE_ONCE(target->listed, HVS_NOT_PREEMPTED);
	*outcome = yield_to_slot(target, !(choice->flags & HVS_RETRY));
	if (*outcome > 0) {
		unspin_count(caller, counter, 1);
		WRITE_ONCE(caller->vcpu->kvm->last_boosted_vcpu, idx);
		return true;
	}
	unspin_count(caller, UNSPIN_C_YIELD_FAILED, 1);
	choice->excluded |= BIT_ULL(pick);
	choice->tries -= *outcome < 0;
	return false;
}

static void give_way(struct unspin_slot *caller)
{
	unspin_count(caller, UNSPIN_C_GAVE_WAY, 1);
	/* A deadline task would lose the rest of its period. */
	if (!dl_prio(current->prio))
		yield();
}

static s32 decide(const struct choice *choice)
{
	/* The quorum is of all slots, tried or not. Once one was picked, it is known. */
	u32 flags = choice->excluded ? choice->flags & ~(u32)HVS_QUORUM : choice->flags;

	if (choice->look)
		return hvs_pick_looked(choice->snapshot, choice->count, choice->look, choice->excluded,
				       flags);
	return hvs_pick(choice->snapshot, choice->count, choice->caller->idx, choice->excluded, flags);
}

/* In a large VM no slot holds the caller, and the trace lacks what the quorum rule needs. */
static void pick_trace(const struct choice *choice, u64 excluded, s32 pick, int outcome)
{
	const struct unspin_slot *caller = choice->caller;

	if (!choice->look)
		trace_unspin_pick(caller->vm, caller->idx, choice->flags, excluded, choice->snapshot,
				  choice->count, pick, outcome);
	else if (pick >= HVS_PICK_NONE)
		trace_unspin_pick(caller->vm, choice->count, choice->flags & ~HVS_QUORUM, excluded,
				  choice->snapshot, choice->count, pick, outcome);
}

static void choose(struct choice *choice)
{
	struct unspin_slot *slot = choice->caller;

	while (choice->tries) {	/* each round excludes one of at most 64 */
		u64 excluded = choice->excluded;
		s32 pick = decide(choice);
		int outcome = 0;
		bool took = false;

		slot->complete = pick == HVS_PICK_COMPLETE;
		if (pick >= 0)
			took = target_took(choice, pick, counter_of(choice->snapshot[pick].category),
					   &outcome);
		pick_trace(choice, excluded, pick, outcome);
		if (pick == HVS_PICK_GIVE_WAY)
			return give_way(slot);
		if (took)
			return;
		if (pick < 0 || !(choice->flags & HVS_RETRY))
			break;
	}
	unspin_count(slot, UNSPIN_C_YIELD_NONE, 1);
}

static void spin_yield(struct unspin_slot *slot, bool kernel_mode)
{
	struct hvs_slot snapshot[HVS_SLOTS_MAX];
	struct unspin_vm *vm = slot->vm;
	u32 flags = READ_ONCE(vm->hvs_flags);
	struct choice choice = {
		.caller = slot,
		.snapshot = snapshot,
		.count = snapshot_read(vm, kernel_mode, flags, snapshot),
		.flags = flags,
		.tries = HVS_TRIES,
	};

	choose(&choice);
}

/* spin_yield() in a VM of more than HVS_SLOTS_MAX vCPUs. */
static noinline void spin_yield_large(struct unspin_slot *slot, bool kernel_mode)
{
	struct hvs_slot snapshot[HVS_SLOTS_MAX];
	struct unspin_vm *vm = slot->vm;
	u16 number[HVS_SLOTS_MAX];
	struct hvs_look look;
	struct choice choice = {
		.caller = slot,
		.snapshot = snapshot,
		.number = number,
		.look = &look,
		.flags = READ_ONCE(vm->hvs_flags),
		.tries = HVS_TRIES,
	};

	hvs_look(&vm->large->waiting, READ_ONCE(vm->nslots), slot->idx, choice.flags, &look);
	choice.count = looked_read(vm, kernel_mode, &look, snapshot, number);
	choose(&choice);
}

static void directed_yield(struct unspin_slot *slot, struct kvm_vcpu *me, bool kernel_mode)
{
	/* Set as KVM does, for vCPUs that still run KVM's own selection. */
	kvm_vcpu_set_in_spin_loop(me, true);
	if (unlikely(READ_ONCE(slot->waiting)))
		spin_yield_large(slot, kernel_mode);
	else
		spin_yield(slot, kernel_mode);
	kvm_vcpu_set_in_spin_loop(me, false);
	kvm_vcpu_set_dy_eligible(me, false);
}

void unspin_on_spin(struct kvm_vcpu *me, bool yield_to_kernel_mode)
{
	struct unspin_slot *slot;

	preempt_disable();
	slot = unspin_slot_find(me);	/* the slot stays: the VM cannot end while its vCPU runs */
	preempt_enable();
	if (slot)
		directed_yield(slot, me, yield_to_kernel_mode);
	unspin_redirect_end(UNSPIN_REDIRECT_SPIN);
}
