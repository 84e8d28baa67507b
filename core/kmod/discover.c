// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds VMs that are older than the module.
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

/* Returns 0 to continue, or, at the end of a piece, the descriptor to continue from, plus 1. */
static int discover_file(const void *arg, struct file *file, unsigned int fd)
{
	struct piece *piece = (struct piece *)arg;
	struct kvm *kvm = file->private_data;

	if (unspin_is_vm_release(file->f_op->release)) {
		kvm_get_kvm(kvm);	/* the open file holds a reference */
		piece->kvm[piece->count++] = kvm;
	}
	return ++piece->files == PIECE_FILES ? fd + 2 : 0;
}

/* Adds the vCPUs of the VMs of one piece; vCPUs that are known already are left alone. */
static void vms_add(struct piece *piece)
{
	struct kvm_vcpu *vcpu;
	unsigned long i;
	u32 n;

	for (n = 0; n < piece->count; n++) {
		kvm_for_each_vcpu(i, vcpu, piece->kvm[n])
			if (!unspin_slot_add(vcpu, GFP_KERNEL))
				unspin_fail_open(NULL, "a vCPU cannot be followed: no memory, or its VM made too many");
		kvm_put_kvm(piece->kvm[n]);
		cond_resched();
	}
}

/* Whether a thread shares the files of its process, which are scanned once. */
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

/* The first thread with a number of *nr or more, with a reference, or NULL. Moves *nr behind it. */
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
 * Takes one thread at a time and holds nothing in between, because a host may have many. The hook is
 * on already, so it sees the VMs of threads that start meanwhile.
 */
void unspin_discover(void)
{
	struct piece *piece = kvmalloc(sizeof(*piece), GFP_KERNEL | __GFP_NOWARN);
	struct task_struct *task;
	int nr = 1;

	if (!piece) {
		unspin_fail_open(NULL, "no memory to look for VMs older than the module: each is found at its next entry while a mode is on");
		return;
	}
	while ((task = task_from(&nr))) {
		discover_task(task, piece);
		put_task_struct(task);
	}
	kvfree(piece);
}
