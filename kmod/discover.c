// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finding VMs that were there before the module.
 */
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "discover.h"
#include "fail_open.h"
#include "symbols.h"
#include "vms.h"

#define DISCOVER_VMS_MAX 1024

struct discovery {
	struct kvm **kvm;
	u32 count;
};

static int discover_file(const void *arg, struct file *file, unsigned int fd)
{
	struct discovery *found = (struct discovery *)arg;
	struct kvm *kvm;
	u32 i;

	if (!unspin_is_vm_release(file->f_op->release))
		return 0;
	kvm = file->private_data;
	for (i = 0; i < found->count; i++)
		if (found->kvm[i] == kvm)
			return 0;
	if (found->count == DISCOVER_VMS_MAX)
		return 1;
	kvm_get_kvm(kvm);	/* the open file holds one */
	found->kvm[found->count++] = kvm;
	return 0;
}

void unspin_discover(void)
{
	struct task_struct *leader, *task;
	struct discovery found = {};
	struct kvm_vcpu *vcpu;
	unsigned long i;
	u32 n;

	found.kvm = kvmalloc_array(DISCOVER_VMS_MAX, sizeof(*found.kvm), GFP_KERNEL);
	if (!found.kvm)
		return;
	rcu_read_lock();
	for_each_process_thread(leader, task) {
		task_lock(task);
		if (task->files && (task == leader || task->files != leader->files))
			iterate_fd(task->files, 0, discover_file, &found);
		task_unlock(task);
	}
	rcu_read_unlock();

	for (n = 0; n < found.count; n++) {
		kvm_for_each_vcpu(i, vcpu, found.kvm[n])
			if (!unspin_slot_add(vcpu, GFP_KERNEL))
				unspin_fail_open(NULL, "a vCPU is not known: no memory, or its VM made too many");
		kvm_put_kvm(found.kvm[n]);
	}
	kvfree(found.kvm);
}
