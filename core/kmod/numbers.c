// SPDX-License-Identifier: GPL-2.0-only
/*
 * Numbers that distinguish the VMs of one process. A process may create thousands, so a lookup
 * takes log2(n) steps.
 */
#include <linux/rbtree.h>
#include <linux/slab.h>

#include "numbers.h"

/* Processes without VMs that are remembered, so that the next VM of one gets the next number. */
#define IDLE_MAKERS_MAX 64

/* A process that made VMs. Under unspin_lock. */
struct unspin_maker {
	struct rb_node by_pid;
	struct list_head idle;	/* in the list of processes without VMs, oldest first */
	pid_t pid;
	u32 next;		/* number of its next VM */
	u32 vms;		/* that have not ended */
};
static struct rb_root makers = RB_ROOT;
static LIST_HEAD(idle_makers);
static u32 idle_makers_count;

struct unspin_maker *unspin_maker_alloc(pid_t pid, gfp_t gfp)
{
	struct unspin_maker *maker = kzalloc(sizeof(*maker), gfp | __GFP_NOWARN);

	if (maker)
		maker->pid = pid;
	return maker;
}

static int maker_compare(struct rb_node *node, const struct rb_node *other)
{
	pid_t pid = rb_entry(node, struct unspin_maker, by_pid)->pid;
	pid_t other_pid = rb_entry(other, struct unspin_maker, by_pid)->pid;

	return pid < other_pid ? -1 : pid > other_pid;
}

u32 unspin_number_take(struct unspin_vm *vm)
{
	struct rb_node *known = rb_find_add(&vm->maker->by_pid, &makers, maker_compare);
	struct unspin_maker *maker = vm->maker;

	lockdep_assert_held(&unspin_lock);
	if (known) {
		kfree(maker);
		maker = vm->maker = rb_entry(known, struct unspin_maker, by_pid);
		if (!maker->vms) {
			list_del(&maker->idle);
			idle_makers_count--;
		}
	}
	maker->vms++;
	return maker->next++;
}

static void idle_maker_forget(void)
{
	struct unspin_maker *maker = list_first_entry(&idle_makers, struct unspin_maker, idle);

	rb_erase(&maker->by_pid, &makers);
	list_del(&maker->idle);
	idle_makers_count--;
	kfree(maker);
}

void unspin_number_put(struct unspin_vm *vm)
{
	struct unspin_maker *maker = vm->maker;

	lockdep_assert_held(&unspin_lock);
	vm->maker = NULL;
	if (--maker->vms)
		return;
	list_add_tail(&maker->idle, &idle_makers);
	if (idle_makers_count++ == IDLE_MAKERS_MAX)
		idle_maker_forget();
}

void unspin_numbers_end(void)
{
	while (!list_empty(&idle_makers))
		idle_maker_forget();
}
