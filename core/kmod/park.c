// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parks vCPUs: keeps them from running during another VM's turn.
 *
 * A thread that is about to enter its guest and has pending work calls
 * xfer_to_guest_mode_handle_work(). KVM holds no locks there, so the thread may sleep. If the vCPU must wait, that
 * call is redirected to unspin_park(). TIF_NOTIFY_RESUME gives a thread such work; the kernel clears the
 * flag by itself. If the thread was in user space meanwhile, the flag is lost, and work.park asks
 * again at the entry into the guest.
 *
 * A sleeping thread is charged no CPU time, so for the scheduler a vCPU that waits for a turn
 * sleeps. The guest must see it as preempted, so that siblings neither wait for it nor send it
 * interrupts to flush its TLB. KVM reports a vCPU as preempted only between two instructions, that
 * is, after an exit for an interrupt of the host. So a vCPU is parked only there. After any other
 * exit it continues to its entry, where such an interrupt makes it exit again.
 */
#include <linux/ftrace.h>
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "../policy/gang.h"
#include "compat/compat.h"
#include "park.h"
#include "redirect.h"
#include "symbols.h"
#include "turn.h"
#include "unhook.h"
#include "user_spin.h"

static void (*tell_got_on)(struct unspin_slot *slot);

/* --- on the way back into the guest --- */

static bool must_wait(const struct unspin_slot *slot)
{
	bool may_stay;

	preempt_disable();
	may_stay = unspin_may_stay(slot, this_cpu_ptr(&unspin_cpu));
	preempt_enable();
	return !may_stay && !unspin_is_realtime(current);
}

/* Counts how long it ran after it was asked to leave. A vCPU that filled a hole was allowed to. */
static void overstay_count(struct unspin_slot *slot, u64 now)
{
	u64 since = max(READ_ONCE(slot->turn.asked_tsc), slot->in_tsc);

	if (now > since)
		unspin_count(slot, UNSPIN_C_OVERSTAY_CYCLES, now - since);
}

/* Whether it left its guest because it spun, now or in the entry before. */
static bool spun(const struct unspin_slot *slot)
{
	return slot->work.ple || slot->turn.spun;
}

/*
 * Whether it did more than spin since it got its CPU: then it may have released the lock for which
 * siblings wait.
 */
static bool got_on(const struct unspin_slot *slot, u64 now)
{
	return !spun(slot) || now - slot->in_tsc > GANG_SPUN_WINDOWS * (u64)slot->window_cycles;
}

/*
 * Sleeps once. The scheduler adds the time from the wake-up to running again to run_delay. The rest is
 * added here, so that KVM reports all of the time to the guest as stolen, and counts none twice.
 */
static long sleep_preempted(struct unspin_slot *slot, long left)
{
	u64 delay = current->sched_info.run_delay, start_ns = ktime_get_ns(), slept_ns;

	WRITE_ONCE(slot->vcpu->preempted, true);	/* read by KVM's notifier; "ready" stays false */
	left = schedule_timeout(left);
	WRITE_ONCE(slot->vcpu->preempted, false);	/* in case it did not sleep */
	preempt_disable();
	slept_ns = ktime_get_ns() - start_ns;
	delay = current->sched_info.run_delay - delay;
	if (slept_ns > delay)
		current->sched_info.run_delay += slept_ns - delay;
	preempt_enable();
	return left;
}

/* Sleeps until it is called, may run, has a signal, or the time is over. Returns the time left. */
static long sleep_until_called(struct unspin_slot *slot, long left)
{
	for (;;) {
		/* A full barrier: either the planner sees it asleep, or it sees the turn. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (!left || READ_ONCE(slot->turn.woken) || !must_wait(slot) || signal_pending(current))
			break;
		left = sleep_preempted(slot, left);
	}
	__set_current_state(TASK_RUNNING);
	return left;
}

#define LATE_MAX 3

/*
 * The wait ended by its deadline. The LATE_MAXth time in a row, the VM loses its turns. A wait in which no turn ended
 * does not count: then the planner is held up, which is no fault of this VM's turns (turns.c watches it). Of the waits
 * that a planner holds up once, two can count: a turn ends during the first, before the planner stops, and during the
 * last, when it goes on. So LATE_MAX is 3.
 */
static void waited_in_vain(struct unspin_slot *slot, bool is_planner_held_up)
{
	unspin_count(slot, UNSPIN_C_PARKS_LATE, 1);
	slot->turn.pass = 1;
	if (is_planner_held_up)
		return;
	if (++slot->turn.late < LATE_MAX)
		return;
	slot->turn.late = 0;
	unspin_turn_refuse(slot->vm, UNSPIN_REFUSED_LATE);
}

/*
 * Waits until its turn comes, it may fill a hole, or it has a signal. Own thread. If the deadline passes, it runs
 * up to its next exit, in any VM's turn.
 */
static void wait_for_turn(struct unspin_slot *slot)
{
	long left = msecs_to_jiffies(GANG_PARK_MAX_MS);
	u32 ended = READ_ONCE(unspin_turns_ended);
	u64 start = unspin_now();
	bool may_run;

	unspin_count(slot, UNSPIN_C_PARKS, 1);
	if (got_on(slot, start))
		tell_got_on(slot);
	slot->turn.pass = 0;
	WRITE_ONCE(slot->turn.lock_sleeps, READ_ONCE(slot->vm->sleeps));
	WRITE_ONCE(slot->turn.at_lock, spun(slot));
	slot->turn.spun = 0;
	do {	/* again if it was called to one CPU and arrived on another */
		unspin_turn_park(slot);
		left = sleep_until_called(slot, left);
		may_run = !must_wait(slot);
		unspin_turn_unpark(slot, may_run);
	} while (left && !signal_pending(current) && !may_run);
	unspin_count(slot, UNSPIN_C_PARKED_CYCLES, unspin_now() - start);
	if (!left)
		waited_in_vain(slot, READ_ONCE(unspin_turns_ended) == ended);
	else if (may_run)
		slot->turn.late = 0;
}

/* The vCPU that this thread is about to enter, or NULL. The slot stays while the thread is here. */
static struct unspin_slot *own_slot(void)
{
	struct unspin_slot *slot;

	preempt_disable();
	slot = __this_cpu_read(unspin_cpu.cur);
	/* The slot stays only if this is the KVM_RUN of this vCPU, not of another one by the same thread. */
	if (slot && (slot->held != current ||
		     current->preempt_notifiers.first != &slot->vcpu->preempt_notifier.link)) {
		/* It cannot be parked. With the flag set it would leave its guest again and again. */
		WRITE_ONCE(slot->work.park, 0);
		slot = NULL;
	}
	preempt_enable();
	return slot;
}

/* Parks the vCPU, which is between two instructions, if it must wait. */
static void wait_if_it_must(struct unspin_slot *slot)
{
	bool asked = READ_ONCE(slot->work.park);

	/* A full barrier: a later request sees the flag clear, or this thread sees the new owner. */
	if (asked)
		xchg(&slot->work.park, 0);
	if (!must_wait(slot)) {
		slot->turn.spun = 0;
		return;
	}
	if (asked)
		overstay_count(slot, unspin_now());
	wait_for_turn(slot);
}

/*
 * Runs instead of xfer_to_guest_mode_handle_work(), and leaves the thread's work to it: on its way into the guest
 * KVM finds the work still pending and calls again, no longer between two instructions of the guest. That work may
 * sleep for as long as a program likes (for its memory, for example), and must not keep the module's text.
 */
static int unspin_park(void)
{
	struct unspin_slot *slot = own_slot();

	if (slot) {
		unspin_user_code_read(slot);
		if (compat_at_instruction_boundary(slot->vcpu))
			wait_if_it_must(slot);
	}
	unspin_redirect_end(UNSPIN_REDIRECT_PARK);
	return 0;
}

/*
 * Whether unspin_park() has something to do. If not, the kernel's own function runs. A vCPU that must wait and is not
 * between two instructions is asked to leave its guest again.
 */
static bool has_work(struct unspin_slot *slot)
{
	bool waits = must_wait(slot), boundary = compat_at_instruction_boundary(slot->vcpu);

	if (waits && !boundary)
		WRITE_ONCE(slot->work.park, 1);
	return READ_ONCE(slot->user.code_wanted) || (boundary && (waits || READ_ONCE(slot->work.park)));
}

static void notrace hook_handle_work(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	struct unspin_slot *slot = own_slot();

	if (!slot || !has_work(slot))
		return;
	unspin_redirect_begin(UNSPIN_REDIRECT_PARK);
	compat_ftrace_set_ip(fregs, (unsigned long)unspin_park);
}

static struct ftrace_ops park_ops = {
	.func = hook_handle_work,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

/* --- at the entry --- */

/* Set at run time: the module loader does not relocate pointers in per-CPU data. */
static DEFINE_PER_CPU(struct irq_work, leave);

static void nothing(struct irq_work *work)
{
}

/*
 * Too late to give the thread work: KVM has already checked for it. So this sends an interrupt to this
 * CPU, which stays pending until the guest is entered, and then ends the guest's run at once.
 */
void unspin_park_at_entry(struct unspin_slot *slot)
{
	if (unspin_may_stay(slot, this_cpu_ptr(&unspin_cpu)) || unspin_is_realtime(current) || slot->turn.pass) {
		slot->turn.pass = 0;
		WRITE_ONCE(slot->work.park, 0);
		return;
	}
	slot->turn.spun = slot->work.ple;	/* this entry clears it */
	set_tsk_thread_flag(current, TIF_NOTIFY_RESUME);
	irq_work_queue(this_cpu_ptr(&leave));
}

/* --- attached or not --- */

int unspin_park_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		per_cpu(leave, cpu) = IRQ_WORK_INIT_HARD(nothing);
	return ftrace_set_filter_ip(&park_ops, unspin_symbols.handle_work, 0, 0);
}

void unspin_park_deinit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&leave, cpu));
	ftrace_free_filter(&park_ops);
}

int unspin_park_attach(void (*got_on)(struct unspin_slot *slot))
{
	tell_got_on = got_on;
	return unspin_redirect(&park_ops, "xfer_to_guest_mode_handle_work");
}

/* All vCPUs may run by now, so threads in unspin_park() leave, at the latest by their deadline. */
int unspin_park_detach(void)
{
	int err = unspin_unhook(&park_ops);

	if (err)
		return err;	/* the hook stays, and lets all vCPUs run */
	unspin_redirect_wait(UNSPIN_REDIRECT_PARK);
	return 0;
}
