// SPDX-License-Identifier: GPL-2.0-only
/*
 * Probes instead of version numbers: every function that is hooked, every tracepoint that is probed and
 * every structure that is read is looked up in the type information of the loaded kvm.ko.
 */
#include <linux/err.h>
#include <linux/kvm_host.h>

#include "btf.h"
#include "state.h"

#include "prototypes.h"
#include "weight.h"

static const struct {
	const char *function;	/* or the type of a tracepoint's probes, whose argument 0 is the data */
	u32 at;
	const char *pointer;	/* to this structure */
	u32 size;		/* or a number of this many bytes */
} arguments[] = {
	{ "kvm_vcpu_on_spin", 0, "kvm_vcpu", 0 },
	{ "kvm_vcpu_on_spin", 1, NULL, sizeof(bool) },
	{ "kvm_arch_vcpu_create", 0, "kvm_vcpu", 0 },
	{ "kvm_arch_destroy_vm", 0, "kvm", 0 },
	{ "kvm_read_guest_virt", 0, "kvm_vcpu", 0 },
	{ "kvm_read_guest_virt", 1, NULL, sizeof(u64) },
	{ "kvm_read_guest_virt", 3, NULL, sizeof(unsigned int) },
	{ "kvm_read_guest_virt", 4, "x86_exception", 0 },
	{ "btf_trace_sched_switch", 1, NULL, sizeof(bool) },
	{ "btf_trace_sched_switch", 2, "task_struct", 0 },
	{ "btf_trace_sched_switch", 3, "task_struct", 0 },
	{ "btf_trace_sched_switch", 4, NULL, sizeof(unsigned int) },
	{ "btf_trace_sched_wakeup", 1, "task_struct", 0 },
	{ "btf_trace_kvm_entry", 1, "kvm_vcpu", 0 },
	{ "btf_trace_kvm_hypercall", 1, NULL, sizeof(unsigned long) },
	{ "btf_trace_kvm_hypercall", 2, NULL, sizeof(unsigned long) },
	{ "btf_trace_kvm_hypercall", 3, NULL, sizeof(unsigned long) },
};

#define MEMBER(type, name) { #type, #name, sizeof_field(struct type, name), offsetof(struct type, name) }
static const struct {
	const char *type, *member;
	u32 size, offset;
} members[] = {
	MEMBER(kvm_vcpu, vcpu_id),
	MEMBER(kvm_vcpu, vcpu_idx),
	MEMBER(kvm_vcpu, ready),
	MEMBER(kvm_vcpu, preempted),
	MEMBER(kvm, last_boosted_vcpu),
	MEMBER(kvm, userspace_pid),
};

static int mismatch(const char *what, const char *of)
{
	pr_err("not loading: %s of %s is not what this module was built for; build it against this kernel's headers\n",
	       what, of);
	return -EINVAL;
}

static int argument_check(const struct unspin_btf *btf, u32 i)
{
	const char *function = arguments[i].function;

	if (!unspin_btf_knows(btf, function)) {
		pr_err("not loading: kvm's type information has no %s%s\n", function,
		       IS_ENABLED(CONFIG_BPF_EVENTS) ? ": this module does not know this KVM" :
		       "; a kernel built without CONFIG_BPF_EVENTS leaves tracepoints out of it");
		return -EINVAL;
	}
	if (!unspin_btf_takes(btf, function, arguments[i].at, arguments[i].pointer, arguments[i].size))
		return mismatch("an argument", function);
	return 0;
}

static int members_check(const struct unspin_btf *btf)
{
	u32 i;

	if (unspin_btf_size(btf, "kvm_vcpu") != sizeof(struct kvm_vcpu))
		return mismatch("the size", "struct kvm_vcpu");
	if (unspin_btf_size(btf, "kvm") != sizeof(struct kvm))
		return mismatch("the size", "struct kvm");
	for (i = 0; i < ARRAY_SIZE(members); i++) {
		struct unspin_btf_want want = { .member = members[i].member, .size = members[i].size };

		if (unspin_btf_members(btf, members[i].type, &want, 1) ||
		    want.offset != members[i].offset)
			return mismatch(members[i].member, members[i].type);
	}
	return 0;
}

int unspin_prototypes_check(void)
{
	struct unspin_btf *btf = unspin_btf_open("kvm");
	int err = 0;
	u32 i;

	if (IS_ERR(btf)) {
		err = PTR_ERR(btf);
		pr_err("not loading: kvm has no type information%s (/sys/kernel/btf/kvm, error %d) to check prototypes against\n",
		       err == -EINVAL ? " that this module understands" : "", err);
		return err;
	}
	for (i = 0; i < ARRAY_SIZE(arguments) && !err; i++)
		err = argument_check(btf, i);
	err = err ?: members_check(btf);
	if (!err)
		unspin_weights_learn(btf);
	unspin_btf_close(btf);
	return err;
}
