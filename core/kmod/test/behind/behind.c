// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls a function through a pointer that is some bytes behind its ENDBR64. A processor with indirect branch
 * tracking must fault there. This proves that the test for such calls would find one.
 */
#include <linux/compiler.h>
#include <linux/module.h>

#define ENDBR_BYTES 4

static bool skip;
module_param(skip, bool, 0400);
MODULE_PARM_DESC(skip, "call what lies behind the ENDBR64 (default: call the function where it begins)");

static noinline int callee(void)
{
	return 0;
}

static int __init behind_init(void)
{
	int (*call)(void) = callee;
	unsigned long address = (unsigned long)call;

	/* Keeps the compiler from making a direct call. */
	OPTIMIZER_HIDE_VAR(address);
	if (skip)
		address += ENDBR_BYTES;
	call = (void *)address;
	pr_warn("behind: calling %pS, on purpose\n", call);
	return call();
}

static void __exit behind_exit(void)
{
}

module_init(behind_init);
module_exit(behind_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A call behind an ENDBR64, for the tests of unspin");
