// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cpumask.h>
#include <linux/irq_work.h>
#include <linux/smp.h>

#include "../policy/gang.h"
#include "fail_open.h"
#include "turn.h"

#define MISSED_MAX 2		/* arrivals in a row on another CPU than it was called to */
#define HOLES_LOOKS 16u		/* CPUs that are checked for a hole, from the next one on */

const char unspin_turn_of_others[] = "";

#define REASON(id, reason) "no turns: " reason,

/* vCPUs parked on a CPU, in the order in which they came. */
static DEFINE_PER_CPU(struct parked {
	raw_spinlock_t lock;
	struct list_head slots;
}, parked);
static struct cpumask parked_cpus;	/* CPUs whose list is not empty */
static DEFINE_PER_CPU(int, hole);	/* 1: idle although it has an owner. Clear it, and then poke the CPU */
static DEFINE_PER_CPU(u32, offered);	/* the CPU on whose list a vCPU was offered */

/* Set at run time: the module loader does not relocate pointers in per-CPU data. */
static DEFINE_PER_CPU(call_single_data_t, pokes);
static DEFINE_PER_CPU(atomic_t, poked);	/* set to 1 by the sender, to 0 by the CPU before it looks */
static DEFINE_PER_CPU(struct irq_work, own_pokes);
static void (*look)(void);

/* --- notifying CPUs --- */

static void told(void *unused)
{
	smp_mb();	/* to see what was published before the interrupt was sent */
	look();
}

static void told_by_one(void *unused)
{
	atomic_set(this_cpu_ptr(&poked), 0);
	told(NULL);
}

static void told_by_itself(struct irq_work *work)
{
	look();
}

static void poke_this_cpu(void)
{
	irq_work_queue(this_cpu_ptr(&own_pokes));
}

void unspin_turn_tell(const struct cpumask *cpus)
{
	smp_mb();	/* a thread about to sleep sees the owner (park.c), or is seen asleep */
	on_each_cpu_mask(cpus, told, NULL, false);
}

void unspin_turn_poke(u32 cpu)
{
	atomic_t *claim = per_cpu_ptr(&poked, cpu);

	smp_mb();	/* as above */
	preempt_disable();
	if (cpu == smp_processor_id())
		poke_this_cpu();
	/* One message per CPU: while its interrupt is pending, it does not need another. */
	else if (!atomic_xchg(claim, 1) && smp_call_function_single_async(cpu, per_cpu_ptr(&pokes, cpu)))
		atomic_set(claim, 0);	/* offline */
	preempt_enable();
}

void unspin_turn_begin(void (*looks)(void))
{
	u32 cpu;

	look = looks;
	cpumask_clear(&parked_cpus);
	for_each_possible_cpu(cpu) {
		struct parked *list = per_cpu_ptr(&parked, cpu);

		raw_spin_lock_init(&list->lock);
		INIT_LIST_HEAD(&list->slots);
		INIT_CSD(per_cpu_ptr(&pokes, cpu), told_by_one, NULL);
		atomic_set(per_cpu_ptr(&poked, cpu), 0);
		per_cpu(hole, cpu) = 0;
		per_cpu(offered, cpu) = UNSPIN_NO_CPU;
		per_cpu(own_pokes, cpu) = IRQ_WORK_INIT_HARD(told_by_itself);
	}
}

static void nothing(void *unused)
{
}

void unspin_turn_wait(void)
{
	u32 cpu;

	on_each_cpu(nothing, NULL, 1);	/* comes after the interrupts sent before */
	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&own_pokes, cpu));
}

/* --- owners and targets --- */

/* Takes owner and target back if their VM has ended: unspin_turn_forget() may have run before. */
static void take_back_of_the_dead(struct unspin_cpu *on, const void *owner, struct unspin_slot *target)
{
	smp_mb();	/* pairs with the one in unspin_turn_forget() */
	if (target && READ_ONCE(target->vm->dead))
		cmpxchg(&on->target, target, NULL);
	if (owner && owner != unspin_turn_of_others && READ_ONCE(((const struct unspin_vm *)owner)->dead))
		cmpxchg(&on->owner, owner, NULL);
}

bool unspin_turn_give(u32 cpu, const void *owner, struct unspin_slot *target)
{
	struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);

	if (on->owner == owner && READ_ONCE(on->target) == target && !READ_ONCE(on->filler))
		return false;
	WRITE_ONCE(on->filler, NULL);
	WRITE_ONCE(on->target, target);
	WRITE_ONCE(on->owner, owner);
	take_back_of_the_dead(on, owner, target);
	return true;
}

void unspin_turn_forget(const struct unspin_vm *vm)
{
	u32 cpu;

	smp_mb();	/* after vm->dead was set; pairs with take_back_of_the_dead() */
	for_each_possible_cpu(cpu) {
		struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);
		struct unspin_slot *target = READ_ONCE(on->target), *filler = READ_ONCE(on->filler);

		if (READ_ONCE(on->owner) == vm)
			cmpxchg(&on->owner, vm, NULL);
		if (target && target->vm == vm)
			cmpxchg(&on->target, target, NULL);
		if (filler && filler->vm == vm)
			cmpxchg(&on->filler, filler, NULL);
	}
}

/* --- asking, parking, calling --- */

void unspin_turn_ask(struct unspin_slot *slot)
{
	struct task_struct *task = READ_ONCE(slot->held);

	if (!task || unspin_is_realtime(task))
		return;
	unspin_turn_ask_thread(slot, task);
	kick_process(task);
}

u16 unspin_turn_fills_no_more(struct unspin_slot *slot)
{
	u16 cpu = READ_ONCE(slot->turn.fills);

	if (cpu == UNSPIN_NO_CPU)
		return cpu;
	WRITE_ONCE(slot->turn.fills, UNSPIN_NO_CPU);
	cmpxchg(&per_cpu(unspin_cpu.filler, cpu), slot, NULL);
	return cpu;
}

/*
 * The vCPU was called to one CPU and arrived on another, where it may not run. The scheduler is free to
 * do so. If that happens repeatedly, turns cost this VM more than they gain, and it gets none for a while.
 */
static void missed(struct unspin_slot *slot)
{
	struct unspin_vm *vm = slot->vm;
	u16 called = READ_ONCE(slot->turn.called);

	if (called == UNSPIN_NO_CPU || called == raw_smp_processor_id())
		return;
	if (++slot->turn.missed < MISSED_MAX)
		return;
	slot->turn.missed = 0;
	WRITE_ONCE(vm->missed_until_tsc, unspin_now() + (u64)tsc_khz * UNSPIN_MISSED_PAUSE_MS);
	unspin_count(slot, UNSPIN_C_PARKS_MISSED, 1);
}

/*
 * Offers a vCPU that has just been parked to an idle CPU, unless it waits for a lock: then it would only
 * spin. A hole is offered one vCPU at a time, and stays a hole if it cannot use that vCPU.
 */
static void offer_to_a_hole(const struct unspin_slot *slot, u32 from)
{
	u32 cpu = from, tries;

	smp_mb();	/* it is on its list, so a CPU that becomes a hole from now on finds it */
	if (unspin_turn_waits_for_lock(slot))
		return;
	for (tries = 0; tries < HOLES_LOOKS; tries++) {
		cpu = cpumask_next(cpu, current->cpus_ptr);
		if (cpu >= nr_cpu_ids)
			cpu = cpumask_first(current->cpus_ptr);
		if (cpu >= nr_cpu_ids || cpu == from)
			return;
		if (READ_ONCE(per_cpu(hole, cpu)) && xchg(per_cpu_ptr(&hole, cpu), 0)) {
			WRITE_ONCE(per_cpu(offered, cpu), from);
			unspin_turn_poke(cpu);
			return;
		}
	}
}

void unspin_turn_hole(bool is)
{
	if (!!__this_cpu_read(hole) == is)
		return;
	__this_cpu_write(hole, is);
	if (is)
		smp_mb();	/* before it reads the lists; pairs with the one in offer_to_a_hole() */
}

u32 unspin_turn_offered(void)
{
	u32 cpu = __this_cpu_read(offered);

	if (cpu != UNSPIN_NO_CPU)
		__this_cpu_write(offered, UNSPIN_NO_CPU);
	return cpu;
}

void unspin_turn_park(struct unspin_slot *slot)
{
	struct parked *list;
	unsigned long flags;
	u16 target, filled = unspin_turn_fills_no_more(slot);
	u32 cpu;

	local_irq_save(flags);
	cpu = smp_processor_id();
	list = this_cpu_ptr(&parked);
	raw_spin_lock(&list->lock);
	list_add_tail(&slot->turn.parked_entry, &list->slots);
	slot->turn.parked_on = cpu;
	WRITE_ONCE(slot->turn.woken, 0);
	WRITE_ONCE(slot->turn.parked, 1);
	cpumask_set_cpu(cpu, &parked_cpus);
	raw_spin_unlock(&list->lock);
	local_irq_restore(flags);
	/* Its target CPU may be idle already, or have a filler. This CPU looks when it goes idle. */
	target = READ_ONCE(slot->turn.target);
	if (target != UNSPIN_NO_CPU && target != cpu)
		unspin_turn_poke(target);
	if (filled != UNSPIN_NO_CPU && filled != cpu && filled != target)
		unspin_turn_poke(filled);	/* it is a hole again */
	else if (target == UNSPIN_NO_CPU || target == cpu)
		offer_to_a_hole(slot, cpu);
}

void unspin_turn_unpark(struct unspin_slot *slot, bool may_run)
{
	struct parked *list = per_cpu_ptr(&parked, slot->turn.parked_on);
	unsigned long flags;

	raw_spin_lock_irqsave(&list->lock, flags);
	WRITE_ONCE(slot->turn.parked, 0);
	list_del(&slot->turn.parked_entry);
	if (list_empty(&list->slots))
		cpumask_clear_cpu(slot->turn.parked_on, &parked_cpus);
	raw_spin_unlock_irqrestore(&list->lock, flags);
	if (!may_run)
		missed(slot);
	else
		slot->turn.missed = 0;
	WRITE_ONCE(slot->turn.called, UNSPIN_NO_CPU);
}

void unspin_turn_each_parked(u32 cpu, bool (*look)(struct unspin_slot *slot, void *data), void *data)
{
	struct parked *list = per_cpu_ptr(&parked, cpu);
	struct unspin_slot *slot;
	unsigned long flags;

	if (!cpumask_test_cpu(cpu, &parked_cpus))
		return;
	raw_spin_lock_irqsave(&list->lock, flags);
	list_for_each_entry(slot, &list->slots, turn.parked_entry)
		if (!look(slot, data))
			break;
	raw_spin_unlock_irqrestore(&list->lock, flags);
}

u32 unspin_turn_parked_after(u32 cpu)
{
	u32 next = cpumask_next(cpu, &parked_cpus);

	if (next >= nr_cpu_ids)
		next = cpumask_first(&parked_cpus);
	return next == cpu ? nr_cpu_ids : next;
}

/* True for one caller only, which wakes the parked vCPU up. It checks again before it parks again. */
static bool is_claimed(struct unspin_slot *slot)
{
	return !xchg(&slot->turn.woken, 1);
}

static void wake(struct unspin_slot *slot, u32 cpu)
{
	struct task_struct *task = READ_ONCE(slot->held);

	if (!task)
		return;
	WRITE_ONCE(slot->turn.moves, 0);
	if (cpu != UNSPIN_NO_CPU && !unspin_is_pinned(task) && cpumask_test_cpu(cpu, task->cpus_ptr)) {
		WRITE_ONCE(slot->turn.called, cpu);
		WRITE_ONCE(task->wake_cpu, cpu);	/* where the scheduler starts its search for an idle CPU */
	}
	wake_up_process(task);
}

void unspin_turn_call(struct unspin_slot *slot, u32 cpu)
{
	if (is_claimed(slot))
		wake(slot, cpu);
}

bool unspin_turn_fill(struct unspin_slot *slot, u32 cpu)
{
	struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);

	if (!is_claimed(slot))
		return false;
	unspin_count(slot, UNSPIN_C_FILLS, 1);
	WRITE_ONCE(slot->turn.fills, cpu);
	WRITE_ONCE(on->filler, slot);
	smp_mb();	/* it is asleep, or sees that it may run; also pairs with unspin_turn_forget() */
	if (READ_ONCE(slot->vm->dead))
		cmpxchg(&on->filler, slot, NULL);
	else
		wake(slot, cpu);
	return true;
}

void unspin_turn_held_back(struct unspin_slot *slot, struct unspin_cpu *on, const void *owner)
{
	WRITE_ONCE(slot->turn.held_back_tsc, READ_ONCE(slot->out_tsc));
	WRITE_ONCE(on->filler, NULL);
	cmpxchg(&on->owner, owner, NULL);	/* the planner may be giving it to another */
	smp_mb();	/* a parked thread is asleep, or sees that it may run */
}

void unspin_turn_call_vm(struct unspin_vm *vm)
{
	struct unspin_slot *slot;

	smp_mb();	/* a thread about to sleep sees what changed, or is seen asleep */
	list_for_each_entry_rcu(slot, &vm->slots, of_vm)
		if (READ_ONCE(slot->turn.parked))
			unspin_turn_call(slot, UNSPIN_NO_CPU);
}

void unspin_turn_refuse(struct unspin_vm *vm, enum unspin_refusal why)
{
	static const char *const reasons[] = { UNSPIN_REFUSALS(REASON) };

	if (xchg(&vm->refused_until_set, why) == why)
		return;
	WRITE_ONCE(vm->in_turns, 0);
	unspin_fail_open_part(vm, reasons[why]);
	rcu_read_lock();
	unspin_turn_call_vm(vm);
	rcu_read_unlock();
}

/* --- switches --- */

void unspin_turn_switched_out(struct unspin_slot *slot, bool sleeps, u64 now)
{
	struct unspin_cpu *on = this_cpu_ptr(&unspin_cpu);
	u64 ran = now - slot->in_tsc;

	WRITE_ONCE(slot->turn.ran_cycles, slot->turn.ran_cycles + ran);
	if (READ_ONCE(slot->vm->in_turns))
		WRITE_ONCE(on->vcpu_cycles, on->vcpu_cycles + ran);
	if (sleeps && !READ_ONCE(slot->turn.parked)) {
		WRITE_ONCE(slot->turn.back_until_cycles,
			   slot->turn.ran_cycles + (u64)tsc_khz * GANG_BACK_US / USEC_PER_MSEC);
		WRITE_ONCE(slot->vm->sleeps, READ_ONCE(slot->vm->sleeps) + 1);
	}
	if (sleeps && READ_ONCE(on->filler) == slot) {
		unspin_turn_fills_no_more(slot);
		cmpxchg(&on->filler, slot, NULL);	/* in case it was let in twice */
	}
}

void unspin_turn_went_idle(void)
{
	bool stays = cpu_active(smp_processor_id());	/* a CPU that goes offline accepts no work */

	unspin_turn_hole(stays);
	if (stays && !cpumask_empty(&parked_cpus))
		poke_this_cpu();
}

/* Whether the owner's vCPU will run here: it is here and runnable, or parked and about to be called. */
static bool owner_wants(const struct unspin_cpu *on, bool from_idle)
{
	const struct unspin_slot *target = READ_ONCE(on->target);
	const struct task_struct *task = target ? READ_ONCE(target->held) : NULL;

	if (!task)
		return !from_idle;
	if (unspin_turn_is_asleep(target))
		return true;
	return task_cpu(task) == smp_processor_id() && task_is_running(task);
}

/*
 * A vCPU of the owner arrived where another one should run: they swap their targets. If two CPUs do this
 * at the same time, a target may be wrong until the turn ends.
 */
static void takes_the_place(struct unspin_slot *slot, struct unspin_cpu *on, u32 cpu)
{
	struct unspin_slot *other = READ_ONCE(on->target);
	u16 there = READ_ONCE(slot->turn.target);

	if (there == UNSPIN_NO_CPU || (other && other->vm != slot->vm) ||
	    READ_ONCE(per_cpu(unspin_cpu.owner, there)) != READ_ONCE(on->owner))
		return;
	WRITE_ONCE(per_cpu(unspin_cpu.target, there), other);
	if (other)
		WRITE_ONCE(other->turn.target, there);
	WRITE_ONCE(on->target, slot);
	WRITE_ONCE(slot->turn.target, cpu);
	WRITE_ONCE(slot->turn.moves, 0);
	if (other && unspin_turn_is_asleep(other))
		unspin_turn_poke(there);
}

void unspin_turn_switched_in(struct unspin_slot *slot, struct task_struct *task, bool from_idle)
{
	struct unspin_cpu *on = this_cpu_ptr(&unspin_cpu);
	u32 cpu = smp_processor_id();
	const void *owner = on->owner;

	unspin_turn_hole(false);
	if (unspin_may_run(slot, on)) {
		if (!READ_ONCE(slot->vm->in_turns) || !unspin_turn_is_its(slot, owner))
			return;
		if (READ_ONCE(on->filler))	/* it runs elsewhere, and parks when it comes here */
			WRITE_ONCE(on->filler, NULL);
		if (READ_ONCE(on->target) != slot && READ_ONCE(slot->turn.target) != cpu &&
		    !READ_ONCE(slot->turn.moves))
			takes_the_place(slot, on, cpu);
		if (unlikely(READ_ONCE(slot->turn.moves)))
			unspin_turn_ask_thread(slot, task);
		return;
	}
	if (unspin_is_realtime(task))
		return;
	if (owner_wants(on, from_idle)) {
		unspin_turn_ask_thread(slot, task);
		return;
	}
	WRITE_ONCE(slot->turn.fills, cpu);
	WRITE_ONCE(on->filler, slot);
}

void unspin_turn_filler_spins(struct unspin_slot *slot)
{
	struct unspin_cpu *on = this_cpu_ptr(&unspin_cpu);

	if (READ_ONCE(on->filler) != slot)
		return;
	unspin_turn_fills_no_more(slot);
	if (!unspin_may_run(slot, on))
		unspin_turn_ask_thread(slot, current);
}

void unspin_turn_woke_up(struct task_struct *task)
{
	struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, task_cpu(task));
	struct unspin_slot *filler = READ_ONCE(on->filler), *target = READ_ONCE(on->target);

	/* The scheduler also places other tasks here; they are not the target. */
	if (likely(!filler || !target) || filler == target || target->held != task)
		return;
	if (cmpxchg(&on->filler, filler, NULL) == filler && !unspin_may_run(filler, on))
		unspin_turn_ask(filler);
}
