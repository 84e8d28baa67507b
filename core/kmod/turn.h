/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of turns: who owns a pCPU, and what other VMs' vCPUs do meanwhile. docs/design.md
 * ("Turns") has the picture. Each change of state is one function here, and nothing else writes it.
 *
 * A pCPU has an owner, a target (the vCPU that it is owned for) and a filler (a rival that may run
 * because the owner has nothing to run there). Only the planner (plan.c) sets owners and targets. In
 * addition, two targets are exchanged when a vCPU of the owner arrives on another pCPU of its VM.
 *
 * A vCPU is
 *	free	it may run where it is,
 *	asked	it runs but must stop, or should run elsewhere: work.park is set, and its thread is on its
 *		way to park.c,
 *	parked	its thread sleeps there, on the list of the pCPU where it ran,
 *	called	it has been woken for a pCPU, and has not arrived there.
 *
 * The pCPU itself calls a vCPU, in an interrupt (hole.c), once the rival has left. The scheduler starts
 * its search for a CPU at that pCPU; this is a hint, and affinities do not change.
 *
 * Only the lists of vCPUs parked on one pCPU grow with the host. Probes that hold a run queue's lock
 * store to the pCPU and the two vCPUs they switch, and send interrupts. They take no lock.
 */
#ifndef UNSPIN_TURN_H
#define UNSPIN_TURN_H

#include <linux/sched.h>

#include "state.h"

/* How long a VM whose vCPUs missed their target CPUs has no turns. */
#define UNSPIN_MISSED_PAUSE_MS 1000u

/* Owner during the turn of all VMs whose vCPUs need not run together. */
extern const char unspin_turn_of_others[];

/* Whether a CPU with this owner is in the turn of the vCPU's VM. Any context; the slot stays. */
static inline bool unspin_turn_is_its(const struct unspin_slot *slot, const void *owner)
{
	const struct unspin_vm *vm = slot->vm;

	return owner == (READ_ONCE(vm->gang) ? (const void *)vm : unspin_turn_of_others);
}

/* CPU time since turns began; may miss the time of a switch in progress. */
static inline u64 unspin_turn_ran_cycles(const struct unspin_slot *slot, u64 now)
{
	u64 ran = READ_ONCE(slot->turn.ran_cycles), in = READ_ONCE(slot->in_tsc);

	return READ_ONCE(slot->out_tsc) || !in || now < in ? ran : ran + now - in;
}

/*
 * It woke up, and its VM has had no more than its share: it may run in turns of other VMs for GANG_BACK_US. A
 * vCPU of a VM that has turns of its own waits for them.
 */
static inline bool unspin_turn_came_back(const struct unspin_slot *slot)
{
	return !READ_ONCE(slot->vm->over_share) && !READ_ONCE(slot->vm->gang) &&
	       unspin_turn_ran_cycles(slot, unspin_now()) < READ_ONCE(slot->turn.back_until_cycles);
}

/* Whether a vCPU may run on a CPU now. Any context; the slot stays. */
static inline bool unspin_may_run(const struct unspin_slot *slot, const struct unspin_cpu *on)
{
	const void *owner = READ_ONCE(on->owner);

	if (likely(!owner) || !READ_ONCE(slot->vm->in_turns))
		return true;
	return unspin_turn_is_its(slot, owner) || READ_ONCE(on->filler) == slot ||
	       unspin_turn_came_back(slot);
}

/* The same, and it need not move to another CPU. */
static inline bool unspin_may_stay(const struct unspin_slot *slot, const struct unspin_cpu *on)
{
	return unspin_may_run(slot, on) && (likely(!READ_ONCE(slot->turn.moves)) || !READ_ONCE(on->owner) ||
					    !READ_ONCE(slot->vm->in_turns));
}

/* Whether its thread is bound to one CPU. A hint: the mask may change at any time. */
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
 * Whether it spun when it was parked, and would most likely spin again. Not if a sibling has gone to
 * sleep since: that sibling made progress, and may have released a lock or answered.
 */
static inline bool unspin_turn_waits_for_lock(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->turn.at_lock) && READ_ONCE(slot->turn.lock_sleeps) == READ_ONCE(slot->vm->sleeps);
}

/* --- begin and end; unspin_mutex held --- */

/* "look" is called on a notified CPU, and decides which vCPU leaves and which is called (hole.c). */
void unspin_turn_begin(void (*look)(void));
/* Waits until all CPUs have handled the interrupts sent to them. May sleep. */
void unspin_turn_wait(void);

/* --- the planner --- */

/* Sets owner and target of a CPU. True: something changed, so notify the CPU. "target" may be NULL. Under RCU. */
bool unspin_turn_give(u32 cpu, const void *owner, struct unspin_slot *target);
/* Notifies CPUs, which look at once. Interrupts on, preemption off. */
void unspin_turn_tell(const struct cpumask *cpus);
/* Notifies one CPU, which looks soon. Any context; the run queue may be locked. */
void unspin_turn_poke(u32 cpu);

/* --- asking a vCPU to leave --- */

/* It parks before its next entry into the guest. Own thread, or its run queue locked. */
static inline void unspin_turn_ask_thread(struct unspin_slot *slot, struct task_struct *task)
{
	if (!READ_ONCE(slot->work.park))
		WRITE_ONCE(slot->turn.asked_tsc, unspin_now());
	WRITE_ONCE(slot->work.park, 1);
	set_tsk_thread_flag(task, TIF_NOTIFY_RESUME);
}
/* The same from anywhere; also makes it leave its guest. Under RCU. */
void unspin_turn_ask(struct unspin_slot *slot);

/* --- its own thread, in park.c --- */

/*
 * Park, before it sleeps: puts it on the list of its CPU, from which it can be called. Preemption on.
 * Unpark, once it is awake, on any CPU. If it may not run on this one, it missed the CPU it was called to.
 */
void unspin_turn_park(struct unspin_slot *slot);
void unspin_turn_unpark(struct unspin_slot *slot, bool may_run);

/* --- calling a vCPU --- */

/* Calls "look" for each slot parked on a CPU, until it returns false. */
void unspin_turn_each_parked(u32 cpu, bool (*look)(struct unspin_slot *slot, void *data), void *data);
/* The next CPU after "cpu" with parked vCPUs, or nr_cpu_ids. */
u32 unspin_turn_parked_after(u32 cpu);
/* Wakes it up for "cpu"; UNSPIN_NO_CPU: wherever the scheduler puts it. Under RCU. */
void unspin_turn_call(struct unspin_slot *slot, u32 cpu);
/* Lets it fill the calling CPU in another VM's turn. False: another CPU was faster. Under RCU. */
bool unspin_turn_fill(struct unspin_slot *slot, u32 cpu);
/* Ends its filling of a CPU. Returns that CPU, or UNSPIN_NO_CPU if it filled none. Under RCU. */
u16 unspin_turn_fills_no_more(struct unspin_slot *slot);
/* Notes whether the calling CPU has an owner and is idle: then newly parked vCPUs are offered to it. Interrupts off. */
void unspin_turn_hole(bool is);
/* The CPU from whose list a vCPU was offered to the calling CPU since the last call, or UNSPIN_NO_CPU. Interrupts off. */
u32 unspin_turn_offered(void);
/* Takes the owner away for the rest of the turn, because its vCPU cannot run. It counts as held back until it runs. */
void unspin_turn_held_back(struct unspin_slot *slot, struct unspin_cpu *on, const void *owner);
/* Wakes a VM's parked vCPUs, which check again whether they may run. Under RCU. */
void unspin_turn_call_vm(struct unspin_vm *vm);

/* --- switches, while turns are on; run queue lock held --- */

void unspin_turn_switched_out(struct unspin_slot *slot, bool sleeps, u64 now);
/* A switch to the idle task on a CPU that has an owner: the CPU is a hole, whatever the cause. */
void unspin_turn_went_idle(void);
void unspin_turn_switched_in(struct unspin_slot *slot, struct task_struct *task, bool from_idle);
/* The vCPU had a PLE exit: if it is a filler, it must leave. Own thread, preemption off. */
void unspin_turn_filler_spins(struct unspin_slot *slot);
/* A thread woke up. Its run queue may be locked. */
void unspin_turn_woke_up(struct task_struct *task);

/* How many turns have ended: the planner's. */
extern u32 unspin_turns_ended;

/*
 * The VM neither has turns nor waits for other VMs' turns until its settings are written. Logged and
 * counted. Any context.
 */
void unspin_turn_refuse(struct unspin_vm *vm, enum unspin_refusal why);

/* A VM ends: removes it and its vCPUs from all CPUs. Interrupts off. */
void unspin_turn_forget(const struct unspin_vm *vm);

#endif
