// SPDX-License-Identifier: GPL-2.0-only
/*
 * unspin: adapts the pause-loop-exit window of each VM and directs the yields of its
 * spinning vCPUs, on a stock KVM. Each VM has its own mode, which is off by default.
 */
#include <linux/module.h>
#include <linux/utsname.h>
#include <asm/tsc.h>

#include "attach.h"
#include "discover.h"
#include "hooks.h"
#include "livepatch.h"
#include "prototypes.h"
#include "selfcheck.h"
#include "settings.h"
#include "state.h"
#include "symbols.h"
#include "sysfs.h"
#include "testing.h"
#include "unhook.h"
#include "vms.h"
#include "watch.h"
#include "window.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

UNSPIN_TEST_PARAM(uint, fail_at, 0400, "fail the Nth step of loading (0: none)");
static unsigned int steps_done;

/* Begins a step of loading. Returns 0, or an injected failure. */
static int step(const char *what)
{
	if (!fail_at || ++steps_done != fail_at)
		return 0;
	pr_notice("injected failure at step %u: %s\n", steps_done, what);
	return -ENOMEM;
}

/* Checks what the module assumes of the machine and its kernel, before it changes anything. */
static int probe_kernel(void)
{
	if (check_tsc_unstable()) {
		pr_err("not loading: this machine's TSC is unstable, and the module measures time with it\n");
		return -ENODEV;
	}
	if (!COMPAT_IS_TESTED)
		pr_warn("kernel %s is untested; tested series: " COMPAT_SERIES_TESTED "\n", utsname()->release);
	return unspin_symbols_init() ?: unspin_prototypes_check();
}

/* Leaves every VM to KVM and detaches from the kernel; never returns if a hook cannot be released. */
static void close_or_stay(void)
{
	bool closed;

	mutex_lock(&unspin_mutex);
	unspin_settings_all_off();
	closed = unspin_attach_close();
	mutex_unlock(&unspin_mutex);
	if (!closed)
		unspin_stay();
}

static int __init unspin_init(void)
{
	int err;

	unspin_settings_init(unspin_attach_update);
	err = step("probes of the kernel") ?: probe_kernel();
	if (err)
		return err;
	err = step("self-check of the hook") ?: unspin_selfcheck();
	if (err) {
		pr_err("not loading: the hook does not work on this kernel (%d)\n", err);
		return err;
	}
	err = step("work queue") ?: unspin_vms_init();
	if (err)
		return err;
	err = step("watchdog") ?: unspin_watch_init();
	if (err)
		goto no_watch;
	err = step("files") ?: unspin_sysfs_init();
	if (err)
		goto no_sysfs;
	err = step("window control") ?: unspin_window_init(unspin_settings_vendor);
	if (err)
		goto no_window;
	err = step("hooks") ?: unspin_hooks_init();
	if (err)
		goto no_hooks;
	err = step("livepatches") ?: unspin_livepatch_init();
	if (err)
		goto no_livepatches;
	err = step("discovery");
	if (err)
		goto no_discovery;
	unspin_discover();
	/* Last, because the files could be written before everything else was ready. */
	mutex_lock(&unspin_mutex);
	err = unspin_attach_open() ?: step("attaching");
	mutex_unlock(&unspin_mutex);
	if (err) {
		close_or_stay();
		goto no_discovery;
	}
	pr_info("%s loaded, every VM is in mode off\n", UNSPIN_VERSION);
	return 0;

no_discovery:
	unspin_livepatch_deinit();
no_livepatches:
	unspin_hooks_deinit();
no_hooks:
	unspin_window_deinit();
no_window:
	unspin_watch_deinit();
	unspin_vms_deinit();
	unspin_sysfs_deinit();
	rcu_barrier();	/* a mode may have been written, and vCPUs noted, before the load failed */
	return err;
no_sysfs:
	unspin_watch_deinit();
no_watch:
	unspin_vms_deinit();
	return err;
}

static void __exit unspin_exit(void)
{
	int live;

	close_or_stay();
	unspin_livepatch_deinit();
	unspin_watch_deinit();
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
