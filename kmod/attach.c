// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attaching to the running kernel, and in which order the module lets go.
 */
#include <linux/delay.h>
#include <linux/rcupdate.h>

#include "attach.h"
#include "hooks.h"
#include "hot.h"
#include "settings.h"
#include "turns.h"
#include "unhook.h"
#include "watch.h"
#include "window.h"

#define DRAIN_WARN_MS 10000

static bool attached;
static bool shut = true;	/* not yet loaded, or about to go: nothing attaches */

/* Nothing is attached any more: close what probes left open. */
static void slots_quiesce(void)
{
	struct unspin_slot *slot;
	u64 now = unspin_now();
	struct unspin_vm *vm;
	unsigned long flags;
	int cpu;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(unspin_cpu.cur, cpu), NULL);
	list_for_each_entry(vm, &unspin_vms, all) {
		if (vm->large)
			memset(vm->large->waiting.off, 0, sizeof(vm->large->waiting.off));
		list_for_each_entry(slot, &vm->slots, of_vm) {
			unspin_run_stop(slot, now);
			slot->work.ple = 0;
			slot->work.park = 0;
			slot->work.refresh = 1;
			slot->category = HVS_NOT_PREEMPTED;
			slot->yielded_mark = 0;
			slot->pick_pending = 0;
			slot->out_tsc = UNSPIN_OUT_UNKNOWN;
			unspin_waiting_add(slot, HVS_NOT_PREEMPTED);
		}
	}
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
}

static bool is_in_flight(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->in_flight);
}

static int attach(void)
{
	int err;

	err = unspin_probes_attach();
	if (err)
		goto no_probes;
	err = register_ftrace_function(&unspin_on_spin_ops);
	if (err) {
		pr_err("cannot hook kvm_vcpu_on_spin (%d)%s\n", err,
		       err == -EBUSY ? ": a livepatch has it, or kernel.ftrace_enabled is 0" : "");
		goto no_probes;
	}
	attached = true;
	unspin_watch_start();
	return 0;

no_probes:
	unspin_probes_detach();
	slots_quiesce();
	return err;
}

/* Redirected calls may sleep for long, but each ends when its vCPU's thread runs again. */
static void drain(void)
{
	u32 waited;

	for (waited = 0; unspin_any_slot(is_in_flight); waited++) {
		if (waited == DRAIN_WARN_MS)
			pr_warn("still waiting for vCPUs inside a directed yield\n");
		usleep_range(900, 1100);
	}
	/* The last instructions after in_flight was cleared. */
	synchronize_rcu_tasks();
}

static int detach(void)
{
	int err = unspin_turns_stop();

	if (err)
		return err;	/* the probes stay too: who parks is found by what they note */
	unspin_windows_restore();
	err = unspin_unhook(&unspin_on_spin_ops);
	if (err)
		return err;	/* probes stay too: the hook goes by what they note */
	drain();
	unspin_probes_detach();
	slots_quiesce();
	unspin_watch_stop();
	attached = false;
	return 0;
}

int unspin_attach_update(void)
{
	bool wanted = !shut && unspin_settings_any_active();
	int err = 0;

	if (!wanted)
		return attached ? detach() : 0;
	if (!attached)
		err = attach();
	return err ?: unspin_turns_update();
}

int unspin_attach_open(void)
{
	shut = false;
	return unspin_attach_update();
}

bool unspin_attach_close(void)
{
	shut = true;
	return !unspin_attach_update();
}
