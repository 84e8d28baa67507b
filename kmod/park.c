// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeping a vCPU from running while it is another's turn.
 *
 * A thread on its way into a guest that has work to do calls
 * xfer_to_guest_mode_handle_work(), from which it may sleep: KVM holds nothing there. That
 * call goes through unspin_park(). A thread gets such work by TIF_NOTIFY_RESUME, which the
 * kernel clears by itself. One that was in user space meanwhile has lost the flag when
 * it comes back; work.park reminds it at its entry into the guest.
 *
 * A sleeping thread is charged for nothing, so the scheduler sees who waits for a turn as one
 * that sleeps. The guest is told the time as stolen.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "compat/compat.h"
#include "park.h"
#include "symbols.h"
#include "unhook.h"
#include "user_spin.h"

/* Nobody waits for a turn for longer, whatever happened to the timer of turns. */
#define PARK_MAX_MS 200

/* Some kernels pass the vCPU and some nothing; one argument too many harms none. */
static int (*handle_work)(struct kvm_vcpu *vcpu);
static void (*tell_got_on)(struct unspin_slot *slot);

/* --- the thread's way back into the guest --- */

static bool must_wait(const struct unspin_slot *slot)
{
	bool may_run;

	preempt_disable();
	may_run = unspin_may_run(slot, this_cpu_ptr(&unspin_cpu));
	preempt_enable();
	return !may_run;
}

/* It has run since it was asked to go, or since it was switched in later. One that filled a hole might. */
static void overstay_count(struct unspin_slot *slot, u64 now)
{
	u64 since = max(READ_ONCE(slot->park_asked_tsc), slot->in_tsc);

	if (now > since)
		unspin_count(slot, UNSPIN_C_OVERSTAY_CYCLES, now - since);
}

/* It did not just spin since it got its CPU: it may have let go of what its siblings wait for. */
static bool got_on(const struct unspin_slot *slot, u64 now)
{
	return !slot->work.ple || now - slot->in_tsc > 2 * (u64)slot->window_cycles;
}

/*
 * Own thread. Woken where its turn or a hole has come, or by a signal. False: at last by the
 * deadline. It then runs up to its next exit, whoever's turn it is.
 */
static bool wait_for_turn(struct unspin_slot *slot)
{
	u64 start = unspin_now(), started_ns = ktime_get_ns();
	long left = msecs_to_jiffies(PARK_MAX_MS);

	unspin_count(slot, UNSPIN_C_PARKS, 1);
	WRITE_ONCE(slot->park_at_lock, slot->work.ple);
	if (got_on(slot, start))
		tell_got_on(slot);
	WRITE_ONCE(slot->parked, 1);
	for (;;) {
		/* A full barrier, so that who publishes a turn sees it asleep, or it sees the turn. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (!must_wait(slot) || signal_pending(current))
			break;
		left = schedule_timeout(left);
		if (!left) {
			unspin_count(slot, UNSPIN_C_PARKS_LATE, 1);
			break;
		}
	}
	__set_current_state(TASK_RUNNING);
	WRITE_ONCE(slot->parked, 0);
	unspin_count(slot, UNSPIN_C_PARKED_CYCLES, unspin_now() - start);
	/* KVM tells the guest this as stolen time; else a guest would think it had slept. */
	current->sched_info.run_delay += ktime_get_ns() - started_ns;
	return left;
}

/* The vCPU whose way into the guest this thread is on, marked as parking; or NULL. */
static struct unspin_slot *own_slot(void)
{
	struct unspin_slot *slot;

	preempt_disable();
	slot = __this_cpu_read(unspin_cpu.cur);
	/* Its KVM_RUN, not that of another vCPU by the same thread: only then does the slot stay. */
	if (slot && slot->held == current &&
	    current->preempt_notifiers.first == &slot->vcpu->preempt_notifier.link) {
		WRITE_ONCE(slot->parking, 1);
	} else {
		/* It cannot be kept from running. Else it would leave its guest again and again. */
		if (slot)
			WRITE_ONCE(slot->work.park, 0);
		slot = NULL;
	}
	preempt_enable();
	return slot;
}

/* In the place of xfer_to_guest_mode_handle_work(). */
static int unspin_park(struct kvm_vcpu *vcpu)
{
	struct unspin_slot *slot = own_slot();
	bool in_time = true, asked;
	int err;

	do {
		if (slot) {
			asked = READ_ONCE(slot->work.park);
			WRITE_ONCE(slot->work.park, 0);
			unspin_user_code_read(slot);
			if (must_wait(slot)) {
				if (asked)
					overstay_count(slot, unspin_now());
				in_time = wait_for_turn(slot);
			}
		}
		err = handle_work(vcpu);
		/* It returns here: called as the last thing, it would seem to be KVM's call, and come here again. */
		barrier();
		/* It may have lost its CPU in there, and got one back in another's turn. */
	} while (!err && in_time && slot && slot->work.park && must_wait(slot));
	/* Last: after this the module may go once this thread has slept or left the kernel. */
	if (slot)
		smp_store_release(&slot->parking, 0);
	return err;
}

static void notrace hook_handle_work(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	if (!within_module_core(parent_ip, THIS_MODULE))
		compat_ftrace_set_ip(fregs, (unsigned long)unspin_park);
}

static struct ftrace_ops park_ops = {
	.func = hook_handle_work,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

/* --- who must go --- */

/* Set at run time: the loader leaves pointers in per-CPU data as they are. */
static DEFINE_PER_CPU(struct irq_work, leave);

static void nothing(struct irq_work *work)
{
}

void unspin_park_request(struct unspin_slot *slot)
{
	struct task_struct *task = READ_ONCE(slot->held);

	if (!task)
		return;
	unspin_park_mark(slot, task);
	kick_process(task);
}

/*
 * KVM has already looked whether there is work to do. An interrupt to this CPU, which stays pending until
 * the guest is entered, has the guest left at once.
 */
void unspin_park_at_entry(struct unspin_slot *slot)
{
	if (unspin_may_run(slot, this_cpu_ptr(&unspin_cpu))) {
		WRITE_ONCE(slot->work.park, 0);
		return;
	}
	set_tsk_thread_flag(current, TIF_NOTIFY_RESUME);
	irq_work_queue(this_cpu_ptr(&leave));
}

/* --- attached or not --- */

static bool is_parking(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->parking);
}

int unspin_park_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		per_cpu(leave, cpu) = IRQ_WORK_INIT_HARD(nothing);
	handle_work = (void *)unspin_symbols.handle_work;
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

/* Everybody may run by now. Threads in there end their sleep, or their deadline does. */
int unspin_park_detach(void)
{
	int err = unspin_unhook(&park_ops);

	if (err)
		return err;	/* it stays, and lets everybody run */
	while (unspin_any_slot(is_parking))
		usleep_range(900, 1100);
	synchronize_rcu_tasks();
	return 0;
}
