// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks at every load that hooks work, before KVM is touched.
 */
#include <linux/ftrace.h>

#include "compat/compat.h"
#include "selfcheck.h"
#include "unhook.h"

static noinline __noclone int selfcheck_original(int x)
{
	barrier();
	return x + 1;
}

static noinline __noclone int selfcheck_replacement(int x)
{
	barrier();
	return x + 2;
}

static void notrace selfcheck_callback(unsigned long ip, unsigned long parent_ip,
				       struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	if ((int)compat_ftrace_arg0(fregs) == 40)
		compat_ftrace_set_ip(fregs, (unsigned long)selfcheck_replacement);
}

static struct ftrace_ops selfcheck_ops = {
	.func = selfcheck_callback,
	.flags = FTRACE_OPS_FL_IPMODIFY,
};

int unspin_selfcheck(void)
{
	int (*volatile call)(int) = selfcheck_original;
	bool good;
	int err;

	err = ftrace_set_filter_ip(&selfcheck_ops, (unsigned long)selfcheck_original, 0, 0);
	if (err)
		return err;
	err = register_ftrace_function(&selfcheck_ops);
	if (err) {
		ftrace_free_filter(&selfcheck_ops);
		return err;
	}
	good = call(40) == 42 && call(7) == 8;
	unspin_unhook_or_stay(&selfcheck_ops);
	good &= call(40) == 41;
	return good ? 0 : -EIO;
}
