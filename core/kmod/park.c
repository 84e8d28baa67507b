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
 * A sleeping thread is not charged CPU time, so the scheduler sees a thread that waits for a
 * turn as one that sleeps. The guest must see it as preempted: its siblings then do not wait
 * for it, and send it no interrupts to flush its TLB. KVM tells the guest so where the vCPU
 * stands between two instructions, which it knows behind an exit for an interrupt of the host.
 * So a vCPU is parked there only; any other goes on to its entry, where such an interrupt
 * awaits it.
 */
#include <linux/ftrace.h>
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/module.h>
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

/* --- the thread's way back into the guest --- */

static bool must_wait(const struct unspin_slot *slot)
{
	bool may_stay;

	preempt_disable();
	may_stay = unspin_may_stay(slot, this_cpu_ptr(&unspin_cpu));
	preempt_enable();
	return !may_stay && !unspin_is_realtime(current);
}

/* It has run since it was asked to go, or since it was switched in later. One that filled a hole might. */
static void overstay_count(struct unspin_slot *slot, u64 now)
{
	u64 since = max(READ_ONCE(slot->turn.asked_tsc), slot->in_tsc);

	if (now > since)
		unspin_count(slot, UNSPIN_C_OVERSTAY_CYCLES, now - since);
}

/* It left its guest because it spun; it may have been on its way back since. */
static bool spun(const struct unspin_slot *slot)
{
	return slot->work.ple || slot->turn.spun;
}

/* It did not just spin since it got its CPU: it may have let go of what its siblings wait for. */
static bool got_on(const struct unspin_slot *slot, u64 now)
{
	return !spun(slot) || now - slot->in_tsc > GANG_SPUN_WINDOWS * (u64)slot->window_cycles;
}

/*
 * Sleeps once. The scheduler adds to run_delay what passes between the wake-up and running again. The
 * rest is added here, so that KVM tells the guest all of it as stolen, and once.
 */
static long sleep_preempted(struct unspin_slot *slot, long left)
{
	u64 delay = current->sched_info.run_delay, start_ns = ktime_get_ns(), slept_ns;

	WRITE_ONCE(slot->vcpu->preempted, true);	/* KVM's notifier goes by it; "ready" stays false */
	left = schedule_timeout(left);
	WRITE_ONCE(slot->vcpu->preempted, false);	/* where it did not have to sleep */
	preempt_disable();
	slept_ns = ktime_get_ns() - start_ns;
	delay = current->sched_info.run_delay - delay;
	if (slept_ns > delay)
		current->sched_info.run_delay += slept_ns - delay;
	preempt_enable();
	return left;
}

/* Until it is called, may run, has a signal, or nothing of "left" is left, which is returned. */
static long sleep_until_called(struct unspin_slot *slot, long left)
{
	for (;;) {
		/* A full barrier: either the writer of a turn sees it asleep, or it sees the turn. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (!left || READ_ONCE(slot->turn.woken) || !must_wait(slot) || signal_pending(current))
			break;
		left = sleep_preempted(slot, left);
	}
	__set_current_state(TASK_RUNNING);
	return left;
}

/* Nobody waits so long twice in a row. */
static void waited_in_vain(struct unspin_slot *slot)
{
	unspin_count(slot, UNSPIN_C_PARKS_LATE, 1);
	if (slot->turn.late)
		unspin_turn_refuse(slot->vm, UNSPIN_REFUSED_LATE);
	slot->turn.late = !slot->turn.late;
	slot->turn.pass = 1;
}

/*
 * Own thread. Woken where its turn or a hole has come, or by a signal. False: at last by the
 * deadline. It then runs up to its next exit, in any turn.
 */
static bool wait_for_turn(struct unspin_slot *slot)
{
	long left = msecs_to_jiffies(GANG_PARK_MAX_MS);
	u64 start = unspin_now();
	bool may_run;

	unspin_count(slot, UNSPIN_C_PARKS, 1);
	if (got_on(slot, start))
		tell_got_on(slot);
	slot->turn.pass = 0;
	WRITE_ONCE(slot->turn.lock_sleeps, READ_ONCE(slot->vm->sleeps));
	WRITE_ONCE(slot->turn.at_lock, spun(slot));
	slot->turn.spun = 0;
	do {	/* again where it was called to one CPU, and has come to another */
		unspin_turn_park(slot);
		left = sleep_until_called(slot, left);
		may_run = !must_wait(slot);
		unspin_turn_unpark(slot, may_run);
	} while (left && !signal_pending(current) && !may_run);
	unspin_count(slot, UNSPIN_C_PARKED_CYCLES, unspin_now() - start);
	if (!left)
		waited_in_vain(slot);
	else if (may_run)
		slot->turn.late = 0;
	return left;
}

/* The vCPU whose way into the guest this thread is on, or NULL. It stays as long as the thread is here. */
static struct unspin_slot *own_slot(void)
{
	struct unspin_slot *slot;

	preempt_disable();
	slot = __this_cpu_read(unspin_cpu.cur);
	/* Its KVM_RUN, not that of another vCPU by the same thread: only then does the slot stay. */
	if (slot && (slot->held != current ||
		     current->preempt_notifiers.first != &slot->vcpu->preempt_notifier.link)) {
		/* It cannot be kept from running. Else it would leave its guest again and again. */
		WRITE_ONCE(slot->work.park, 0);
		slot = NULL;
	}
	preempt_enable();
	return slot;
}

/* False: it has waited as long as anybody may. */
static bool wait_if_it_must(struct unspin_slot *slot)
{
	bool asked = READ_ONCE(slot->work.park);

	if (!compat_at_instruction_boundary(slot->vcpu)) {
		if (must_wait(slot))
			WRITE_ONCE(slot->work.park, 1);
		return true;
	}
	/* A full barrier: a later request finds the flag clear, or its owner is seen here. */
	if (asked)
		xchg(&slot->work.park, 0);
	if (!must_wait(slot)) {
		slot->turn.spun = 0;
		return true;
	}
	if (asked)
		overstay_count(slot, unspin_now());
	return wait_for_turn(slot);
}

/* In the place of xfer_to_guest_mode_handle_work(). Kernels that pass no vCPU leave anything in "vcpu". */
static int unspin_park(struct kvm_vcpu *vcpu)
{
	struct unspin_slot *slot = own_slot();
	bool in_time = true;
	int err;

	do {
		if (slot) {
			unspin_user_code_read(slot);
			in_time = wait_if_it_must(slot);
		}
		err = compat_handle_work(vcpu);
		/* It returns here: called as the last thing, it would seem to be KVM's call, and come here again. */
		barrier();
		/* It may have lost its CPU in there, and got one back in another's turn. */
	} while (!err && in_time && slot && slot->work.park &&
		 compat_at_instruction_boundary(slot->vcpu) && must_wait(slot));
	unspin_redirect_end(UNSPIN_REDIRECT_PARK);
	return err;
}

static void notrace hook_handle_work(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	if (within_module_core(parent_ip, THIS_MODULE))
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
 * KVM has already looked whether there is work to do. An interrupt to this CPU, which stays pending until
 * the guest is entered, has the guest left at once.
 */
void unspin_park_at_entry(struct unspin_slot *slot)
{
	if (unspin_may_stay(slot, this_cpu_ptr(&unspin_cpu)) || unspin_is_realtime(current) || slot->turn.pass) {
		slot->turn.pass = 0;
		WRITE_ONCE(slot->work.park, 0);
		return;
	}
	slot->turn.spun = slot->work.ple;	/* which this entry ends */
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

/* Everybody may run by now. Threads in there end their sleep, or their deadline does. */
int unspin_park_detach(void)
{
	int err = unspin_unhook(&park_ops);

	if (err)
		return err;	/* it stays, and lets everybody run */
	unspin_redirect_wait(UNSPIN_REDIRECT_PARK);
	return 0;
}
