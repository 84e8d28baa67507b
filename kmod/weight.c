// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a vCPU counts for on its CPU, so that turns give each VM what the scheduler would.
 *
 * VMs compete where their cgroups part: with the weight of the largest cgroup that holds one
 * VM only, which its vCPUs share. VMs that are in one cgroup compete with the weights
 * of their threads. The kernel says nobody a cgroup's weight, so it is read where the type
 * information says that it is; without that all vCPUs count alike.
 */
#include <linux/sched.h>

#include "btf.h"
#include "weight.h"

/* The scheduler's unit is 1024 * 1024 at weight 100 and at nice 0: 8192 leaves room for parts. */
#define UNIT_SHIFT 7

static struct unspin_btf_want members[] = {
	{ .member = "shares", .size = sizeof(unsigned long) },
	{ .member = "parent" },
};
static bool learnt;

void unspin_weights_learn(const struct unspin_btf *btf)
{
	int err = unspin_btf_members(btf, "task_group", members, ARRAY_SIZE(members));

	learnt = !err;
	if (err)
		pr_warn("weights of cgroups are not known (%d): every vCPU counts alike in turns\n", err);
}

#ifdef CONFIG_FAIR_GROUP_SCHED
/* Under RCU, as is all that follows. */
static const struct task_group *group_of(const struct task_struct *task)
{
	return READ_ONCE(task->sched_task_group);
}

static unsigned long shares_of(const struct task_group *group)
{
	return READ_ONCE(*(unsigned long *)((char *)group + members[0].offset));
}

static const struct task_group *parent_of(const struct task_group *group)
{
	return READ_ONCE(*(const struct task_group **)((char *)group + members[1].offset));
}

static bool holds(const struct task_group *group, const struct task_struct *task)
{
	const struct task_group *at;

	for (at = group_of(task); at; at = parent_of(at))
		if (at == group)
			return true;
	return false;
}

/* Any of a VM's threads, for where the VM is. */
static const struct task_struct *task_of(const struct unspin_vm *vm)
{
	struct unspin_slot *slot;

	list_for_each_entry_rcu(slot, &vm->slots, of_vm)
		if (READ_ONCE(slot->held))
			return READ_ONCE(slot->held);
	return NULL;
}

static bool holds_another(const struct task_group *group, const struct unspin_vm *vm)
{
	const struct unspin_vm *other;
	const struct task_struct *task;

	list_for_each_entry_rcu(other, &unspin_vms, all) {
		task = other != vm && other->in_turns ? task_of(other) : NULL;
		if (task && holds(group, task))
			return true;
	}
	return false;
}

/* The largest cgroup that holds this vCPU and no other VM; NULL: its own holds another, or is the root. */
static const struct task_group *own_group(const struct unspin_vm *vm, const struct task_struct *task)
{
	const struct task_group *at, *own = NULL;

	for (at = group_of(task); at && parent_of(at) && !holds_another(at, vm); at = parent_of(at))
		own = at;
	return own;
}

static u32 vcpus_in(const struct task_group *group, const struct unspin_vm *vm)
{
	struct unspin_slot *slot;
	u32 count = 0;

	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		const struct task_struct *task = READ_ONCE(slot->held);

		count += task && holds(group, task);
	}
	return count;
}

static u32 weight_of(const struct unspin_vm *vm, const struct task_struct *task)
{
	const struct task_group *group = own_group(vm, task);

	if (!group)
		return task->se.load.weight >> UNIT_SHIFT;
	return (shares_of(group) >> UNIT_SHIFT) / max(vcpus_in(group, vm), 1u);
}
#else
static u32 weight_of(const struct unspin_vm *vm, const struct task_struct *task)
{
	return task->se.load.weight >> UNIT_SHIFT;
}
#endif

void unspin_weights_read(void)
{
	struct unspin_slot *slot;
	struct unspin_vm *vm;

	if (!learnt)
		return;
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (!vm->in_turns)
			continue;
		list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
			const struct task_struct *task = READ_ONCE(slot->held);

			if (task)
				WRITE_ONCE(slot->turn_weight, max(weight_of(vm, task), 1u));
		}
	}
	rcu_read_unlock();
}
