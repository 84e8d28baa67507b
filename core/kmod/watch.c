// SPDX-License-Identifier: GPL-2.0-only
/*
 * The watchdog. It looks for a vCPU that stays ready for long while its siblings are preferred,
 * and for a VM with more vCPUs than CPUs. Such VMs are left to KVM.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/wait.h>

#include "fail_open.h"
#include "settings.h"
#include "testing.h"
#include "turns.h"
#include "watch.h"

#define WATCH_PERIOD_MS 250
#define STALL_MS 750	/* fail-open must come within a second */
#define STALL_LOOKS (1 + STALL_MS / WATCH_PERIOD_MS)

static bool running;	/* written under unspin_mutex */
static struct task_struct *watcher;
static DECLARE_WAIT_QUEUE_HEAD(started);

UNSPIN_TEST_PARAM(bool, crowded_ok, 0600, "VMs with more vCPUs than CPUs are treated as any other");

/*
 * Whether a vCPU has been ready for too long. For a preempted one out_tsc tells. For a woken one
 * out_tsc is when it fell asleep, so count the looks in a row that found it waiting since that sleep.
 */
static bool slot_stalled(struct unspin_slot *slot, u64 now)
{
	u64 limit = (u64)tsc_khz * STALL_MS, out = READ_ONCE(slot->out_tsc);
	const struct task_struct *task = READ_ONCE(slot->held);

	if (!out || out == UNSPIN_OUT_UNKNOWN || !task || !READ_ONCE(slot->vcpu->ready))
		return false;
	if (READ_ONCE(slot->category) != HVS_NOT_PREEMPTED)
		return now > out && now - out > limit;
	if (!task_is_running(task))	/* it sleeps, so KVM's "ready" is stale */
		return false;
	if (slot->watch_out_tsc != out)
		slot->watch_looks = 0;
	slot->watch_out_tsc = out;
	return ++slot->watch_looks >= STALL_LOOKS;
}

static bool vm_stalled(struct unspin_vm *vm, u64 now)
{
	static const enum unspin_counter preferring[] = {
		UNSPIN_C_YIELD_RESOURCE, UNSPIN_C_YIELD_LOCK, UNSPIN_C_YIELD_YIELDED,
		UNSPIN_C_YIELD_WOKEN, UNSPIN_C_GAVE_WAY,
	};
	struct unspin_slot *slot;
	bool stalled = false;
	unsigned long flags;
	u64 picks = 0;
	u32 i;

	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		for (i = 0; i < ARRAY_SIZE(preferring); i++)
			picks += READ_ONCE(slot->count[preferring[i]]);
		/* The lock keeps a linked vCPU. Take it for one vCPU at a time, because interrupts are off. */
		raw_spin_lock_irqsave(&unspin_lock, flags);
		stalled |= unspin_slot_alive(slot) && slot_stalled(slot, now);
		raw_spin_unlock_irqrestore(&unspin_lock, flags);
	}
	/* Without recent picks the module did not starve it; a throttled group looks the same. */
	if (picks == vm->watch_picks)
		stalled = false;
	vm->watch_picks = picks;
	return stalled;
}

/*
 * Yielding to a sibling helps a VM whose vCPUs have cores of their own. If they share a few
 * cores, each yield only changes which vCPU of the VM runs, and has a cost: a VM of 64 vCPUs
 * on 4 CPUs was measured to lose a third to three quarters. Under unspin_mutex.
 */
static bool vm_is_crowded(const struct unspin_vm *vm)
{
	static struct cpumask cpus;
	struct unspin_slot *slot;
	unsigned int vcpus = 0;

	if (crowded_ok)
		return false;
	cpumask_clear(&cpus);
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		const struct task_struct *task = READ_ONCE(slot->held);

		if (!task)
			continue;
		vcpus++;
		cpumask_or(&cpus, &cpus, &task->cpus_mask);
	}
	cpumask_and(&cpus, &cpus, cpu_active_mask);	/* with SMT off, second threads are not active */
	return vcpus > cpumask_weight(&cpus);
}

static void watch_crowd(struct unspin_vm *vm)
{
	bool crowded = vm_is_crowded(vm);

	if (crowded == vm->crowded)
		return;
	if (crowded)
		unspin_fail_open_part(vm, "it keeps KVM's window and selection: it has more vCPUs than CPUs they may run on");
	vm->crowded = crowded;
	unspin_settings_apply(vm, UNSPIN_APPLY_GO_ON);
}

static void watch_all(void)
{
	struct unspin_vm *vm;

	/* VMs are freed after a grace period; neither of the two below sleeps. */
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		watch_crowd(vm);
		if (!READ_ONCE(vm->select_on) || !vm_stalled(vm, unspin_now()))
			continue;
		unspin_fail_open(vm, "a ready vCPU has not run for 750 ms");
		unspin_settings_apply(vm, UNSPIN_APPLY_GO_ON);
	}
	rcu_read_unlock();
	unspin_turns_watch();
}

/*
 * A real-time thread that sleeps on an hrtimer. Where a real-time task holds a CPU, timers of work
 * queues on that CPU would be late; this thread moves to another CPU.
 */
static int watch(void *unused)
{
	ktime_t period;

	while (!kthread_should_stop()) {
		wait_event_idle(started, READ_ONCE(running) || kthread_should_stop());
		period = ms_to_ktime(WATCH_PERIOD_MS);
		set_current_state(TASK_IDLE);
		if (!kthread_should_stop())
			schedule_hrtimeout(&period, HRTIMER_MODE_REL);
		__set_current_state(TASK_RUNNING);
		mutex_lock(&unspin_mutex);
		if (running)
			watch_all();
		mutex_unlock(&unspin_mutex);
	}
	return 0;
}

int unspin_watch_init(void)
{
	watcher = kthread_create(watch, NULL, "unspin_watch");
	if (IS_ERR(watcher))
		return PTR_ERR(watcher);
	sched_set_fifo_low(watcher);
	wake_up_process(watcher);
	return 0;
}

void unspin_watch_start(void)
{
	WRITE_ONCE(running, true);
	wake_up(&started);
}

void unspin_watch_stop(void)
{
	WRITE_ONCE(running, false);
}

void unspin_watch_deinit(void)
{
	kthread_stop(watcher);
}
