// SPDX-License-Identifier: GPL-2.0-only
/*
 * A livepatch of the function the module hooks: two may not redirect one function, so
 * whoever comes second is refused.
 */
#include <linux/livepatch.h>
#include <linux/module.h>

struct kvm_vcpu;

/* A spinning vCPU goes on spinning. */
static void patched_on_spin(struct kvm_vcpu *me, bool yield_to_kernel_mode)
{
}

static struct klp_func funcs[] = {
	{ .old_name = "kvm_vcpu_on_spin", .new_func = patched_on_spin },
	{ }
};

static struct klp_object objects[] = {
	{ .name = "kvm", .funcs = funcs },
	{ }
};

static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

static int __init patched_init(void)
{
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
