// SPDX-License-Identifier: GPL-2.0-only
/*
 * A livepatch of the function that the module redirects, or of another function of the kernel. Only
 * one owner at a time can redirect a function.
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

struct kvm_vcpu;

/* Does nothing: a spinning vCPU continues to spin. */
static void patched_on_spin(struct kvm_vcpu *me, bool yield_to_kernel_mode)
{
}

static int patched_cmdline(struct seq_file *file, void *unused)
{
	seq_puts(file, "patched\n");
	return 0;
}

static struct klp_func funcs[] = {
	{ .old_name = "kvm_vcpu_on_spin", .new_func = patched_on_spin },
	{ }
};

static struct klp_object objects[] = {
	{ .name = "kvm", .funcs = funcs },
	{ }
};

static bool other;
module_param(other, bool, 0400);
MODULE_PARM_DESC(other, "patch what /proc/cmdline shows instead");

static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

static int __init patched_init(void)
{
	if (other) {
		funcs[0] = (struct klp_func){ .old_name = "cmdline_proc_show", .new_func = patched_cmdline };
		objects[0].name = NULL;
	}
	return klp_enable_patch(&patch);
}

static void __exit patched_exit(void)
{
}

module_init(patched_init);
module_exit(patched_exit);
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
MODULE_DESCRIPTION("A livepatch in the way of unspin, for its tests");
