// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finding VMs that were there before the module.
 */
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "discover.h"
#include "fail_open.h"
#include "symbols.h"
#include "vms.h"

/* Descriptors scanned per step, with the file lock of a process held. */
#define PIECE_FILES 1024

struct piece {
	struct kvm *kvm[PIECE_FILES];
	u32 count, files;
};

/* Returns the descriptor to go on from, plus 1, where a piece ends; 0 goes on. */
static int discover_file(const void *arg, struct file *file, unsigned int fd)
{
	struct piece *piece = (struct piece *)arg;
	struct kvm *kvm = file->private_data;

	if (unspin_is_vm_release(file->f_op->release)) {
		kvm_get_kvm(kvm);	/* the open file holds one */
		piece->kvm[piece->count++] = kvm;
	}
	return ++piece->files == PIECE_FILES ? fd + 2 : 0;
}

/* The slots of the VMs of one piece; those that are known already stay as they are. */
static void vms_add(struct piece *piece)
{
	struct kvm_vcpu *vcpu;
	unsigned long i;
	u32 n;

	for (n = 0; n < piece->count; n++) {
		kvm_for_each_vcpu(i, vcpu, piece->kvm[n])
			if (!unspin_slot_add(vcpu, GFP_KERNEL))
				unspin_fail_open(NULL, "a vCPU is not known: no memory, or its VM made too many");
		kvm_put_kvm(piece->kvm[n]);
		cond_resched();
	}
}

/* Whether a thread's files are its process', which are looked at once. */
static bool shares_files(const struct task_struct *task)
{
	return task != task->group_leader && task->files == READ_ONCE(task->group_leader->files);
}

static void discover_task(struct task_struct *task, struct piece *piece)
{
	int next = 0;

	do {
		piece->count = piece->files = 0;
		task_lock(task);
		if (task->files && !shares_files(task))
			next = iterate_fd(task->files, next ? next - 1 : 0, discover_file, piece);
		else
			next = 0;
		task_unlock(task);
		vms_add(piece);
		cond_resched();
	} while (next > 0);
}

/* The first thread with a number from *nr on, with a reference, or NULL; *nr goes behind it. */
static struct task_struct *task_from(int *nr)
{
	struct task_struct *task = NULL;
	struct pid *pid;

	rcu_read_lock();
	while (!task && (pid = find_ge_pid(*nr, &init_pid_ns))) {
		*nr = pid_nr(pid) + 1;
		task = pid_task(pid, PIDTYPE_PID);	/* NULL: of a group only */
	}
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}

/*
 * A thread at a time, for a host may have many: nothing is held between two. One that comes meanwhile
 * and makes a VM is seen by the hook, which is on already.
 */
void unspin_discover(void)
{
	struct piece *piece = kvmalloc(sizeof(*piece), GFP_KERNEL | __GFP_NOWARN);
	struct task_struct *task;
	int nr = 1;

	if (!piece) {
		unspin_fail_open(NULL, "no memory to look for VMs made before: each is found when it enters its guest with a mode on");
		return;
	}
	while ((task = task_from(&nr))) {
		discover_task(task, piece);
		put_task_struct(task);
	}
	kvfree(piece);
}
