/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs at every switch of a vCPU's thread. It is inlined into the sched_switch probe, because
 * every host pays for these instructions.
 */
#ifndef UNSPIN_HOT_H
#define UNSPIN_HOT_H

#include <linux/sched.h>

#include "state.h"
#include "window_ops.h"

/*
 * CPU time of a vCPU in one word, so that other CPUs read it whole. Bit 0: it runs. The rest is the
 * time used so far; while it runs, minus the time of its start.
 */
static inline u64 unspin_run_cycles(u64 run, u64 now)
{
	s64 cycles = (s64)run >> 1;

	if (run & 1)
		cycles += now;
	return cycles < 0 ? 0 : cycles;	/* another CPU's clock may be a little ahead */
}

/* Clears bit 0 and adds the time since the start. Own thread, or nothing attached. */
static inline void unspin_run_stop(struct unspin_slot *slot, u64 now)
{
	u64 run = slot->run;

	if (run & 1)
		WRITE_ONCE(slot->run, run - 1 + (now << 1));
}

static inline void unspin_run_start(struct unspin_slot *slot, u64 now)
{
	u64 run = slot->run;

	if (!(run & 1))
		WRITE_ONCE(slot->run, run - (now << 1) + 1);
}

/* Lets the picks of a large VM find the vCPU. Call right after out_tsc was set. Run queue lock held. */
static inline void unspin_waiting_add(struct unspin_slot *slot, u8 category)
{
	struct hvs_waiting *waiting = READ_ONCE(slot->waiting);

	if (unlikely(waiting))
		set_bit(slot->idx, (unsigned long *)waiting->off[category]);
}

/* Call right before out_tsc and category say that the vCPU runs. */
static inline void unspin_waiting_remove(struct unspin_slot *slot)
{
	struct hvs_waiting *waiting = READ_ONCE(slot->waiting);

	if (unlikely(waiting) && slot->out_tsc)
		clear_bit(slot->idx, (unsigned long *)waiting->off[slot->category]);
}

/*
 * sched_switch away from a vCPU's thread. The run queue lock is held, so this only stores to its own
 * slot. "preempted": it stays runnable. "displaced": a directed yield of the module took its core.
 */
static inline void unspin_switched_out(struct unspin_slot *slot, struct task_struct *prev,
				       bool preempted, bool displaced, u64 now)
{
	u8 category = HVS_NOT_PREEMPTED;

	if (unlikely(slot->held != prev))	/* another thread runs this vCPU now, or none has yet */
		return;
	unspin_run_stop(slot, now);
	/*
	 * As in KVM, a vCPU is ready only while its thread is inside KVM_RUN. A pick may set the
	 * mark at the same time; either order is valid.
	 */
	if (preempted && !hlist_empty(&prev->preempt_notifiers)) {
		u32 flags = READ_ONCE(slot->vm->hvs_flags);

		category = hvs_category_on_preempt(slot->work.ple, displaced, &slot->yielded_mark,
						   flags);
		if (unlikely(flags & HVS_TRUE_LISTS)) {
			WRITE_ONCE(slot->listed_tsc, now);
			WRITE_ONCE(slot->listed, category);
		}
	}
	WRITE_ONCE(slot->out_tsc, now);
	WRITE_ONCE(slot->category, category);
	unspin_waiting_add(slot, category);
}

/* sched_switch to a thread inside KVM_RUN, run queue lock held; or the first entry of a vCPU. */
static inline void unspin_switched_in(struct unspin_slot *slot, struct task_struct *next, u64 now)
{
	if (unlikely(slot->work.ple) && slot->out_tsc > UNSPIN_OUT_UNKNOWN && now > slot->out_tsc)
		slot->exit_out_cycles += now - slot->out_tsc;
	slot->cpu = smp_processor_id();
	slot->in_tsc = now;
	/* KVM moves the window of a vCPU that is switched in back towards its initial value. */
	if (slot->complete || slot->held != next ||
	    slot->window_cycles != READ_ONCE(unspin_window_default_cycles))
		slot->work.refresh = 1;
	slot->complete = 0;
	unspin_waiting_remove(slot);
	WRITE_ONCE(slot->category, HVS_NOT_PREEMPTED);
	WRITE_ONCE(slot->out_tsc, 0);
	if (READ_ONCE(slot->vm->active))
		unspin_run_start(slot, now);
	if (unlikely(READ_ONCE(slot->pick_pending))) {
		WRITE_ONCE(slot->pick_pending, 0);
		/* pick_cpu has switched once since the pick, and that was to this thread */
		if (slot->pick_cpu == smp_processor_id() &&
		    slot->pick_seq + 1 == __this_cpu_read(unspin_cpu.switches))
			unspin_count(slot, UNSPIN_C_RAN_NEXT, 1);
	}
}

#endif
