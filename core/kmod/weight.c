// SPDX-License-Identifier: GPL-2.0-only
/*
 * The weight of a vCPU on its CPU, so that turns give each VM the share that the scheduler would.
 *
 * VMs compete where their cgroups part: with the weight of the largest cgroup that holds one VM
 * only, which its vCPUs share. VMs that are in one cgroup compete with the weights of their
 * threads. A cgroup of a VM that takes no part counts as one that holds no VM. The kernel
 * exports no function for the weight of a cgroup, so it is read where the type information says
 * that it is; without that all vCPUs have the same weight.
 */
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

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
		pr_warn("cannot read the weights of cgroups (%d): all vCPUs have the same weight in turns\n", err);
}

/* A cgroup that holds vCPUs: how many, and of which VM. */
struct census {
	const void *group;
	const struct unspin_vm *vm;	/* NULL: several VMs */
	u32 vcpus;
	u32 round;		/* the reading that it belongs to; entries of other readings are void */
};
static struct census *table;
static u32 table_bits, rounds;

/* Cgroups per vCPU: its own, libvirt's of all vCPUs, and some above these. */
#define GROUPS_PER_VCPU 4u

int unspin_weights_begin(u32 vcpus_max)
{
	if (!learnt)
		return 0;
	table_bits = order_base_2(GROUPS_PER_VCPU * vcpus_max);
	rounds = 0;
	table = vcalloc(1u << table_bits, sizeof(*table));
	return table ? 0 : -ENOMEM;
}

void unspin_weights_end(void)
{
	vfree(table);
	table = NULL;
}

#ifdef CONFIG_FAIR_GROUP_SCHED
static const void *group_of(const struct task_struct *task)
{
	return READ_ONCE(task->sched_task_group);
}

static unsigned long shares_of(const void *group)
{
	return READ_ONCE(*(const unsigned long *)((const char *)group + members[0].offset));
}

static const void *parent_of(const void *group)
{
	return READ_ONCE(*(const void *const *)((const char *)group + members[1].offset));
}

/* Finds or adds the entry of a cgroup. NULL if there are too many. */
static struct census *find(const void *group)
{
	u32 mask = (1u << table_bits) - 1, at = hash_ptr(group, table_bits), tries;

	for (tries = 0; tries < 32; tries++, at = (at + 1) & mask) {
		struct census *entry = &table[at];

		if (entry->round == rounds && entry->group != group)
			continue;
		if (entry->round != rounds)
			*entry = (struct census){ .group = group, .round = rounds };
		return entry;
	}
	return NULL;
}

/* Counts the VM in all cgroups of the thread but the root, which all VMs share. */
static void count_in(const struct task_struct *task, const struct unspin_vm *vm)
{
	const void *at;

	for (at = group_of(task); at && parent_of(at); at = parent_of(at)) {
		struct census *entry = find(at);

		if (!entry)
			return;
		if (!entry->vcpus++)
			entry->vm = vm;
		else if (entry->vm != vm)
			entry->vm = NULL;
	}
}

/* The weight of the largest cgroup with this vCPU and no other VM; without one, the thread's own. */
static u32 weight_of(const struct task_struct *task, const struct unspin_vm *vm)
{
	const struct census *own = NULL, *entry;
	const void *at;

	for (at = group_of(task); at && parent_of(at); at = parent_of(at)) {
		entry = find(at);
		if (!entry || entry->vm != vm)
			break;
		own = entry;
	}
	if (!own)
		return task->se.load.weight >> UNIT_SHIFT;
	return (shares_of(own->group) >> UNIT_SHIFT) / max(own->vcpus, 1u);
}
#else
static void count_in(const struct task_struct *task, const struct unspin_vm *vm)
{
}

static u32 weight_of(const struct task_struct *task, const struct unspin_vm *vm)
{
	return task->se.load.weight >> UNIT_SHIFT;
}
#endif

void unspin_weights_read(struct unspin_slot *const *slots, u32 count)
{
	const struct task_struct *task;
	u32 i;

	if (!table)
		return;
	rounds++;
	for (i = 0; i < count; i++) {
		task = READ_ONCE(slots[i]->held);
		if (task)
			count_in(task, slots[i]->vm);
	}
	for (i = 0; i < count; i++) {
		task = READ_ONCE(slots[i]->held);
		if (task)
			WRITE_ONCE(slots[i]->turn.weight, max(weight_of(task, slots[i]->vm), 1u));
	}
}
