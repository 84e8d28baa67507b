// SPDX-License-Identifier: GPL-2.0-only
/*
 * unspin: adapts each VM's pause-loop-exit window and directs the yields of its
 * spinning vCPUs, on a stock KVM, per VM, and off until told otherwise.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "unspin.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

DEFINE_MUTEX(unspin_mutex);
atomic64_t unspin_fail_open_total = ATOMIC64_INIT(0);

struct unspin_settings unspin_default = {
	.mode = UNSPIN_OFF,
	.aple = {
		.window_init_cycles = APLE_WINDOW_INIT_CYCLES,
		.window_min_cycles = APLE_WINDOW_MIN_CYCLES,
		.window_max_cycles = APLE_WINDOW_MAX_CYCLES,
		.delta_cycles = APLE_DELTA_CYCLES,
		.epoch_ple_exits = APLE_EPOCH_PLE_EXITS,
		.delta_max_cycles = APLE_DELTA_MAX_CYCLES,
		.epoch_min_us = APLE_EPOCH_MIN_US,
	},
};

static unsigned int fail_at;
module_param(fail_at, uint, 0400);
MODULE_PARM_DESC(fail_at, "for tests: fail the Nth step of loading (0: none)");

bool unspin_force_pause_intercept;
module_param_named(force_pause_intercept, unspin_force_pause_intercept, bool, 0400);
MODULE_PARM_DESC(force_pause_intercept, "for tests on emulators without a pause filter: make every PAUSE exit (AMD)");

static unsigned int steps_done;

/* One step of loading begins: an injected failure, or 0. */
int unspin_init_step(const char *what)
{
	if (++steps_done != fail_at)
		return 0;
	pr_notice("failing step %u as told: %s\n", steps_done, what);
	return -ENOMEM;
}

/* Something is not as it must be and KVM's own behaviour takes over; NULL: for no VM in particular. Any context. */
void unspin_fail_open(struct unspin_vm *vm, const char *why)
{
	atomic64_inc(&unspin_fail_open_total);
	if (!vm) {
		pr_warn_ratelimited("falling back to KVM's own behaviour: %s\n", why);
		return;
	}
	vm->fail_open = 1;
	atomic64_inc(&vm->fail_open_events);
	pr_warn_ratelimited("VM %d-%u falls back to KVM's own behaviour: %s\n", vm->pid, vm->number, why);
}

static int __init unspin_init(void)
{
	int err;

	err = unspin_init_step("self-check of the hook") ?: unspin_selfcheck();
	if (err) {
		pr_err("the hook does not work on this kernel (%d), not loading\n", err);
		return err;
	}
	err = unspin_init_step("work queue") ?: unspin_vms_init();
	if (err)
		return err;
	err = unspin_init_step("files") ?: unspin_sysfs_init();
	if (err)
		goto no_sysfs;
	err = unspin_init_step("window control") ?: unspin_window_init();
	if (err)
		goto no_window;
	err = unspin_init_step("hooks") ?: unspin_hooks_init();
	if (err)
		goto no_hooks;
	err = unspin_init_step("discovery");
	if (err)
		goto no_discovery;
	unspin_vms_discover();
	/* Last: files could be written before the rest was there. */
	mutex_lock(&unspin_mutex);
	err = unspin_attach_open();
	if (err)
		unspin_detach();
	mutex_unlock(&unspin_mutex);
	if (err)
		goto no_discovery;
	pr_info("%s loaded, every VM is in mode off\n", UNSPIN_VERSION);
	return 0;

no_discovery:
	unspin_hooks_deinit();
no_hooks:
	unspin_window_deinit();
no_window:
	unspin_vms_deinit();
	unspin_sysfs_deinit();
	return err;
no_sysfs:
	unspin_vms_deinit();
	return err;
}

/* Every VM to off, so that vCPUs give our windows back while the probes are still there. */
static void all_off(void)
{
	struct unspin_vm *vm;

	unspin_default.mode = UNSPIN_OFF;
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		vm->set.mode = UNSPIN_OFF;
		unspin_vm_apply(vm, true);
	}
	rcu_read_unlock();
}

static void __exit unspin_exit(void)
{
	int live;

	mutex_lock(&unspin_mutex);
	all_off();
	unspin_detach();
	mutex_unlock(&unspin_mutex);
	unspin_hooks_deinit();
	unspin_window_deinit();
	unspin_vms_deinit();
	unspin_sysfs_deinit();
	rcu_barrier();
	live = atomic_read(&unspin_live_objects);
	if (live)
		pr_err("unloaded with %d objects left\n", live);
	else
		pr_info("unloaded\n");
}

module_init(unspin_init);
module_exit(unspin_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Adaptive pause-loop exiting and directed yields for KVM");
MODULE_VERSION(UNSPIN_VERSION);
