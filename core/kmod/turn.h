/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of turns: whose a pCPU is, and what a vCPU does while it is another's. docs/design.md
 * ("Turns") has the picture. Each change of state is one function here; nothing else writes it.
 *
 * A pCPU has an owner, a target (the vCPU that it is owned for) and a filler (a rival that may run
 * because the owner has nothing to run there). Only the planner (plan.c) sets owners and targets; a
 * target also changes places where a vCPU of the owner arrives on another pCPU of its VM.
 *
 * A vCPU is
 *	free	it may run where it is,
 *	asked	it runs and may not, or should run elsewhere: work.park is set, and its thread is on its
 *		way to park.c,
 *	parked	its thread sleeps there, on the list of the pCPU where that was,
 *	called	it has been woken for a pCPU, and has not arrived there.
 *
 * Who calls: the pCPU itself, in an interrupt (hole.c), once its rival has left. A thread woken
 * on an idle pCPU that it used last stays there; that is a hint, and affinities do not change.
 *
 * No list here grows with the host but those of the vCPUs parked on one pCPU. Probes that hold a run
 * queue store to the pCPU and the two vCPUs they switch, and send interrupts. They take no lock.
 */
#ifndef UNSPIN_TURN_H
#define UNSPIN_TURN_H

#include <linux/sched.h>

#include "state.h"

/* The turn of all VMs whose vCPUs need not run together. */
extern const char unspin_turn_of_others[];

/* Whether a vCPU's VM has its turn on a CPU. Any context; the slot stays. */
static inline bool unspin_turn_is_its(const struct unspin_slot *slot, const void *owner)
{
	const struct unspin_vm *vm = slot->vm;

	return owner == (READ_ONCE(vm->gang) ? (const void *)vm : unspin_turn_of_others);
}

/* Whether a vCPU may run on a CPU now. Any context; the slot stays. */
static inline bool unspin_may_run(const struct unspin_slot *slot, const struct unspin_cpu *on)
{
	const void *owner = READ_ONCE(on->owner);

	if (likely(!owner) || !READ_ONCE(slot->vm->in_turns))
		return true;
	return unspin_turn_is_its(slot, owner) || READ_ONCE(on->filler) == slot;
}

/* The same, unless it should be elsewhere, too. */
static inline bool unspin_may_stay(const struct unspin_slot *slot, const struct unspin_cpu *on)
{
	return unspin_may_run(slot, on) && (likely(!READ_ONCE(slot->turn.moves)) || !READ_ONCE(on->owner));
}

/* Its thread may run nowhere else. Compared only: the mask may change at any time. */
static inline bool unspin_is_pinned(const struct task_struct *task)
{
	return READ_ONCE(task->nr_cpus_allowed) == 1;
}

/* Threads of these classes are never kept from running. */
static inline bool unspin_is_realtime(const struct task_struct *task)
{
	unsigned int policy = READ_ONCE(task->policy);

	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

/* Parked and not called. A called vCPU is runnable, although it may not have run yet. */
static inline bool unspin_turn_is_asleep(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->turn.parked) && !READ_ONCE(slot->turn.woken);
}

/*
 * It spun when it was parked, and would most likely spin again. Not so where a sibling has gone to sleep
 * since: that one had what it needed, and may have let go of a lock or answered.
 */
static inline bool unspin_turn_waits_for_lock(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->turn.at_lock) && READ_ONCE(slot->turn.lock_sleeps) == READ_ONCE(slot->vm->sleeps);
}

/* --- begun and ended; unspin_mutex held --- */

/* "look": a notified CPU decides which vCPU leaves and which is called (hole.c). */
void unspin_turn_begin(void (*look)(void));
/* All CPUs have taken the interrupts they were sent. May sleep. */
void unspin_turn_wait(void);

/* --- the planner --- */

/* True: something changes, and the CPU is to be told. "target" may be NULL. Under RCU. */
bool unspin_turn_give(u32 cpu, const void *owner, struct unspin_slot *target);
/* CPUs look at once. Interrupts on, preemption off. */
void unspin_turn_tell(const struct cpumask *cpus);
/* One CPU does, soon. Any context; the run queue may be held. */
void unspin_turn_poke(u32 cpu);

/* --- a vCPU is asked to go --- */

/* Its own thread or a lock of its run queue: it parks when it is next on its way into the guest. */
static inline void unspin_turn_ask_thread(struct unspin_slot *slot, struct task_struct *task)
{
	if (!READ_ONCE(slot->work.park))
		WRITE_ONCE(slot->turn.asked_tsc, unspin_now());
	WRITE_ONCE(slot->work.park, 1);
	set_tsk_thread_flag(task, TIF_NOTIFY_RESUME);
}
/* The same from anywhere; it leaves its guest for that. Under RCU. */
void unspin_turn_ask(struct unspin_slot *slot);

/* --- its own thread, in park.c --- */

/*
 * Before it sleeps: on the list of the CPU where it is, to be called. Preemption on. The other once it is
 * awake again, on whichever CPU; it has missed where it was called to if it may not run on this one.
 */
void unspin_turn_park(struct unspin_slot *slot);
void unspin_turn_unpark(struct unspin_slot *slot, bool may_run);

/* --- it is called --- */

/* Looks at the slots parked on a CPU, until "look" says no. */
void unspin_turn_each_parked(u32 cpu, bool (*look)(struct unspin_slot *slot, void *data), void *data);
/* Another CPU after "cpu" that vCPUs are parked on; nr_cpu_ids: none. */
u32 unspin_turn_parked_after(u32 cpu);
/* "cpu" is the CPU that calls, or UNSPIN_NO_CPU: wherever the scheduler has it. Under RCU. */
void unspin_turn_call(struct unspin_slot *slot, u32 cpu);
/* It is let in where others have their turn, on the CPU that calls. False: another was faster. Under RCU. */
bool unspin_turn_fill(struct unspin_slot *slot, u32 cpu);
/* It was let in to fill, and does so no longer. Returns the CPU where it did, or UNSPIN_NO_CPU. Under RCU. */
u16 unspin_turn_fills_no_more(struct unspin_slot *slot);
/* Whether the calling CPU is owned and idle: vCPUs parked from now on are offered to it. Interrupts off. */
void unspin_turn_hole(bool is);
/* The CPU on whose list one was offered to the CPU that calls since it asked last, or UNSPIN_NO_CPU. Interrupts off. */
u32 unspin_turn_offered(void);
/* Its owner cannot use this CPU: no owner for the rest of the turn. The vCPU counts as held back until it runs. */
void unspin_turn_held_back(struct unspin_slot *slot, struct unspin_cpu *on, const void *owner);
/* A VM's vCPUs look again whether they may run. Under RCU. */
void unspin_turn_call_vm(struct unspin_vm *vm);

/* --- switches, while turns are on; run queue lock held --- */

void unspin_turn_switched_out(struct unspin_slot *slot, bool sleeps, u64 now);
/* To the idle task, on a CPU that somebody owns: whatever the cause is, it has a hole. */
void unspin_turn_went_idle(void);
void unspin_turn_switched_in(struct unspin_slot *slot, struct task_struct *task, bool from_idle);
/* A filler spins: it goes. Own thread, preemption off. */
void unspin_turn_filler_spins(struct unspin_slot *slot);
/* A vCPU woke up there. Its run queue may be locked. */
void unspin_turn_woke_up(struct task_struct *task);

/*
 * It neither has turns nor waits for turns until its settings are written; logged and counted.
 * Any context.
 */
void unspin_turn_refuse(struct unspin_vm *vm, enum unspin_refusal why);

/* A VM ends: no CPU is its any more, and none knows its vCPUs. Interrupts off. */
void unspin_turn_forget(const struct unspin_vm *vm);

#endif
