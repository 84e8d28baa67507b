// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attaches the module to the running kernel, and detaches it in the right order.
 */
#include <linux/rcupdate.h>

#include "attach.h"
#include "hooks.h"
#include "hot.h"
#include "redirect.h"
#include "settings.h"
#include "turns.h"
#include "unhook.h"
#include "watch.h"
#include "window.h"

static bool attached;
static bool shut = true;	/* loading or unloading: nothing may attach */
static bool aside;		/* a livepatch is being loaded: nothing may attach */

static void slot_quiesce(struct unspin_slot *slot, u64 now)
{
	unspin_run_stop(slot, now);
	slot->work.ple = 0;
	slot->work.park = 0;
	slot->work.refresh = 1;
	slot->category = HVS_NOT_PREEMPTED;
	slot->listed = HVS_NOT_PREEMPTED;
	slot->yielded_mark = 0;
	slot->pick_pending = 0;
	slot->out_tsc = UNSPIN_OUT_UNKNOWN;
	unspin_waiting_add(slot, HVS_NOT_PREEMPTED);
}

/* Closes what probes left open. Nothing is attached any more, so there are no other writers. */
static void slots_quiesce(void)
{
	struct unspin_slot *slot;
	u64 now = unspin_now();
	struct unspin_vm *vm;
	int cpu;

	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(unspin_cpu.cur, cpu), NULL);
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (vm->large)
			memset(vm->large->waiting.off, 0, sizeof(vm->large->waiting.off));
		list_for_each_entry_rcu(slot, &vm->slots, of_vm)
			slot_quiesce(slot, now);
	}
	rcu_read_unlock();
}

static int attach(void)
{
	int err;

	err = unspin_probes_attach();
	if (err)
		goto no_probes;
	err = unspin_redirect(&unspin_on_spin_ops, "kvm_vcpu_on_spin");
	if (err)
		goto no_probes;
	attached = true;
	unspin_watch_start();
	return 0;

no_probes:
	unspin_probes_detach();
	slots_quiesce();
	return err;
}

static int detach(void)
{
	int err = unspin_turns_stop();

	if (err)
		return err;	/* keep the probes: what they note is needed to find parked threads */
	unspin_windows_restore();
	err = unspin_unhook(&unspin_on_spin_ops);
	if (err)
		return err;	/* keep the probes: the hook uses what they note */
	unspin_redirect_wait(UNSPIN_REDIRECT_SPIN);
	unspin_probes_detach();
	slots_quiesce();
	unspin_watch_stop();
	attached = false;
	return 0;
}

int unspin_attach_update(void)
{
	bool wanted = !shut && !aside && unspin_settings_any_active();
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

int unspin_attach_aside(bool on)
{
	aside = on;
	return unspin_attach_update();
}

bool unspin_attach_close(void)
{
	shut = true;
	return !unspin_attach_update();
}
