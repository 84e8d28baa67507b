// SPDX-License-Identifier: GPL-2.0-only
/*
 * Redirects functions and releases them. The module stays loaded if the kernel does not release one.
 */
#include <linux/ftrace.h>
#include <linux/sched.h>

#include "state.h"
#include "testing.h"
#include "unhook.h"

UNSPIN_TEST_PARAM(uint, fail_unhook, 0600, "the kernel refuses so many times to take a hook off");

int unspin_redirect(struct ftrace_ops *ops, const char *function)
{
	int err = register_ftrace_function(ops);

	if (err)
		pr_err("cannot hook %s (%d)%s\n", function, err,
		       err == -EBUSY ? ": a livepatch redirects it, or kernel.ftrace_enabled is 0" : "");
	return err;
}

int unspin_unhook(struct ftrace_ops *ops)
{
	int err = unspin_test_take(fail_unhook) ? -EIO : unregister_ftrace_function(ops);

	if (err)
		pr_crit("the kernel does not take a hook off (%d); it stays, and lets KVM's own code run\n", err);
	return err;
}

void __noreturn unspin_stay(void)
{
	pr_crit("not unloading, or the kernel would run code that is gone: every VM is KVM's own, start the machine anew to be rid of this module\n");
	for (;;)
		schedule_timeout_idle(MAX_SCHEDULE_TIMEOUT);
}

/* Up to 6.12 at least, ftrace_free_filter() leaves pointers to freed memory in ops. */
void unspin_unhook_or_stay(struct ftrace_ops *ops)
{
	if (unspin_unhook(ops))
		unspin_stay();
	ftrace_free_filter(ops);
}
