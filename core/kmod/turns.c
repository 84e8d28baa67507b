// SPDX-License-Identifier: GPL-2.0-only
/*
 * Starts and stops turns, and runs the thread that plans them (plan.c), one for the host.
 */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/tracepoint.h>
#include <trace/events/sched.h>

#include "../policy/gang.h"
#include "fail_open.h"
#include "hole.h"
#include "park.h"
#include "plan.h"
#include "symbols.h"
#include "testing.h"
#include "turn.h"
#include "turns.h"
#include "user_spin.h"

#define STUCK_LOOKS 2u		/* looks of the watchdog without the end of a turn */

static struct task_struct *planner;	/* NULL: turns are off. Under unspin_mutex */
static int hook_stays;			/* the error with which the kernel kept a hook: no more turns */
u32 unspin_turns_ended;
static u32 watch_ended, watch_stuck;	/* the watchdog's own */

UNSPIN_TEST_PARAM(uint, force_stuck, 0600, "the next turn lasts so many tenths of a second longer");

/* --- the planner --- */

static int plan(void *unused)
{
	ktime_t end = ktime_add_us(ktime_get(), GANG_FIRST_TURN_US);
	u64 us;

	while (!kthread_should_stop()) {
		set_current_state(TASK_IDLE);
		if (!kthread_should_stop())
			schedule_hrtimeout(&end, HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
		us = unspin_plan_turn();
		while (unlikely(unspin_test_take(force_stuck)))
			msleep(100);
		WRITE_ONCE(unspin_turns_ended, unspin_turns_ended + 1);
		/* Counts from the time it should have begun, but leaves the planning CPU at least half a turn. */
		end = max(ktime_add_us(end, us), ktime_add_us(ktime_get(), us / 2));
	}
	return 0;
}

/* --- vCPUs that make progress --- */

/* The vCPU may have released a lock: siblings that waited for one are tried again. */
static void got_on(struct unspin_slot *slot)
{
	struct unspin_slot *sibling;

	rcu_read_lock();
	list_for_each_entry_rcu(sibling, &slot->vm->slots, of_vm) {
		if (sibling == slot || !READ_ONCE(sibling->turn.at_lock))
			continue;
		WRITE_ONCE(sibling->turn.at_lock, 0);
		if (READ_ONCE(sibling->turn.parked))
			unspin_turn_poke(READ_ONCE(sibling->turn.parked_on));
	}
	rcu_read_unlock();
}

static void notrace probe_sched_wakeup(void *data, struct task_struct *task)
{
	unspin_turn_woke_up(task);
}

/* --- begin and end --- */

/* Switches the handling of vCPU switches on or off. */
static void switches_note(bool on)
{
	int cpu;

	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(unspin_cpu.in_turns, cpu), on);
}

static int planner_start(void)
{
	struct task_struct *task = kthread_create(plan, NULL, "unspin_turns");

	if (IS_ERR(task))
		return PTR_ERR(task);
	get_task_struct(task);	/* in case it ends by itself */
	sched_set_fifo_low(task);
	planner = task;
	wake_up_process(task);
	return 0;
}

/* Takes all owners away: all vCPUs may run. */
static void let_all_run(void)
{
	struct unspin_vm *vm;
	u32 cpu;

	rcu_read_lock();
	for_each_possible_cpu(cpu)
		unspin_turn_give(cpu, NULL, NULL);
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		unspin_turn_call_vm(vm);
	rcu_read_unlock();
}

/* Sets before the first turn which VMs take part, so that their CPU time does not count as the host's. */
static void vms_take_part(bool part)
{
	struct unspin_vm *vm;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		WRITE_ONCE(vm->in_turns, part && READ_ONCE(vm->waits_for_turns) &&
					 !READ_ONCE(vm->refused_until_set));
		WRITE_ONCE(vm->judged, vm->in_turns);
		WRITE_ONCE(vm->gang, 0);
		WRITE_ONCE(vm->refused, UNSPIN_REFUSED_NONE);
	}
	rcu_read_unlock();
}

static int begin(void)
{
	int err = unspin_plan_begin();

	if (err)
		return err;
	unspin_turn_begin(unspin_hole_look);
	switches_note(true);
	err = unspin_park_attach(got_on);
	if (err)
		goto no_park;
	err = tracepoint_probe_register(unspin_symbols.sched_wakeup, probe_sched_wakeup, NULL);
	if (err)
		goto no_probe;
	unspin_user_begin();
	vms_take_part(true);
	watch_ended = unspin_turns_ended;
	watch_stuck = 0;
	err = planner_start();
	if (!err)
		return 0;

	tracepoint_probe_unregister(unspin_symbols.sched_wakeup, probe_sched_wakeup, NULL);
	tracepoint_synchronize_unregister();
	vms_take_part(false);
no_probe:
	hook_stays = unspin_park_detach();
no_park:
	switches_note(false);
	unspin_plan_end();
	return err;
}

int unspin_turns_stop(void)
{
	struct task_struct *task = planner;

	if (!task) {
		if (hook_stays)		/* no turn ends here, but the hook must not outlive the module */
			hook_stays = unspin_park_detach();
		return hook_stays;
	}
	planner = NULL;
	kthread_stop(task);
	put_task_struct(task);
	unspin_user_end();
	let_all_run();
	switches_note(false);
	tracepoint_probe_unregister(unspin_symbols.sched_wakeup, probe_sched_wakeup, NULL);
	tracepoint_synchronize_unregister();
	unspin_turn_wait();
	let_all_run();	/* a hole may have been filled meanwhile */
	hook_stays = unspin_park_detach();
	unspin_turn_wait();	/* threads on their way out of park.c may have poked CPUs */
	vms_take_part(false);
	unspin_plan_end();
	return hook_stays;
}

static bool any_wanted(void)
{
	struct unspin_vm *vm;
	bool any = false;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		any |= vm->gang_asked;
	rcu_read_unlock();
	return any;
}

int unspin_turns_update(void)
{
	bool wanted = any_wanted();

	if (wanted && !planner)
		return hook_stays ? -EBUSY : begin();
	if (!wanted && planner)
		return unspin_turns_stop();
	return 0;
}

void unspin_turns_watch(void)
{
	u32 ended = READ_ONCE(unspin_turns_ended);

	lockdep_assert_held(&unspin_mutex);
	if (!planner)
		return;
	watch_stuck = ended == watch_ended ? watch_stuck + 1 : 0;
	watch_ended = ended;
	if (watch_stuck < STUCK_LOOKS)
		return;
	if (watch_stuck == STUCK_LOOKS)
		unspin_fail_open(NULL, "a turn does not end: all vCPUs may run until one ends");
	let_all_run();
}
