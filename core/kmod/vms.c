// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lifetimes of VMs and vCPUs: creation, binding, end.
 *
 * KVM frees a vCPU with its VM and may reuse its address. So a VM's state is unlinked at the entry
 * of kvm_arch_destroy_vm(), before KVM frees anything. Code may dereference a vCPU in that vCPU's
 * thread, in the thread of a sibling, or if it holds unspin_lock and the vCPU is linked.
 */
#include <linux/log2.h>
#include <linux/rbtree.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "epoch.h"
#include "fail_open.h"
#include "numbers.h"
#include "settings.h"
#include "sysfs.h"
#include "testing.h"
#include "turn.h"
#include "vms.h"

/*
 * A vCPU that KVM refuses after its creation (its number is taken) leaves a slot behind until its
 * VM ends. This limits the slots of a program that does nothing else.
 */
#define SLOTS_MADE_MAX (2 * KVM_MAX_VCPUS)
UNSPIN_TEST_PARAM(uint, slots_made_most, 0600, "vCPUs that a VM may make, instead of twice those that it can have");

static struct workqueue_struct *workqueue;	/* ordered: a directory is added before it is removed */
static u64 next_generation;			/* under unspin_lock */

/*
 * Any user of /dev/kvm may create thousands of VMs, and unspin_lock is held with interrupts off.
 * So a search under the lock takes at most log2(VMs) steps.
 */
static struct rb_root vms_by_kvm = RB_ROOT;	/* under unspin_lock */

static int kvm_compare(const void *kvm, const struct rb_node *node)
{
	const void *other = rb_entry(node, struct unspin_vm, by_kvm)->kvm;

	return kvm < other ? -1 : kvm > other;
}

static struct unspin_vm *vm_find(const struct kvm *kvm)
{
	struct rb_node *node;

	lockdep_assert_held(&unspin_lock);
	node = rb_find(kvm, &vms_by_kvm, kvm_compare);
	return node ? rb_entry(node, struct unspin_vm, by_kvm) : NULL;
}

static bool vm_less(struct rb_node *node, const struct rb_node *other)
{
	return kvm_compare(rb_entry(node, struct unspin_vm, by_kvm)->kvm, other) < 0;
}

/* --- the thread that runs a vCPU --- */

struct held_task {
	struct rcu_head rcu;
	struct task_struct *task;
};

static void held_put(struct rcu_head *rcu)
{
	struct held_task *held = container_of(rcu, struct held_task, rcu);

	put_task_struct(held->task);
	kfree(held);
}

/*
 * Own thread, preemption off. Pickers take their own reference under RCU, so the old reference is
 * dropped after a grace period. Without memory for that, the old thread stays referenced, and yields
 * to this vCPU go to a thread that does not run it.
 */
void unspin_slot_hold_current(struct unspin_slot *slot)
{
	struct held_task *old = NULL;

	if (slot->held == current)
		return;
	if (slot->held) {
		old = kmalloc(sizeof(*old), GFP_ATOMIC | __GFP_NOWARN);
		if (!old) {
			unspin_fail_open_part(slot->vm, "no memory to follow a vCPU to another thread");
			return;
		}
		old->task = slot->held;
	}
	get_task_struct(current);
	smp_store_release(&slot->held, current);	/* pairs with the pickers' READ_ONCE() */
	if (old)
		call_rcu(&old->rcu, held_put);
}

static void vm_add_work(struct work_struct *work)
{
	struct unspin_vm *vm = container_of(work, struct unspin_vm, add_work);
	bool dead;

	mutex_lock(&unspin_mutex);
	raw_spin_lock_irq(&unspin_lock);
	dead = vm->dead;
	raw_spin_unlock_irq(&unspin_lock);
	if (!dead) {
		unspin_settings_linked_vm(vm);
		unspin_settings_modes_changed();	/* it may be the first VM that wants turns */
	}
	mutex_unlock(&unspin_mutex);

	if (dead)
		return;
	vm->named = !unspin_sysfs_vm_add(vm);
	if (vm->named)
		return;
	mutex_lock(&unspin_mutex);	/* without a directory its mode cannot be set, so it is left to KVM */
	unspin_settings_apply(vm, UNSPIN_APPLY_GO_ON);
	mutex_unlock(&unspin_mutex);
}

static void large_free(struct unspin_vm *vm)
{
	u32 i;

	if (!vm->large)
		return;
	for (i = 0; i < ARRAY_SIZE(vm->large->chunk); i++)
		kfree(vm->large->chunk[i]);
	kfree(vm->large);
}

static void vm_release(struct kobject *kobj)
{
	struct unspin_vm *vm = container_of(kobj, struct unspin_vm, kobj);
	struct unspin_slot *slot, *next;

	list_for_each_entry_safe(slot, next, &vm->slots, of_vm) {
		if (slot->held)
			put_task_struct(slot->held);
		kfree(slot);
		atomic_dec(&unspin_live_objects);
	}
	kfree(vm->maker);	/* set if the VM never began */
	large_free(vm);
	kfree(vm);
	atomic_dec(&unspin_live_objects);
}

static const struct kobj_type vm_ktype = {
	.sysfs_ops = &kobj_sysfs_ops,
	.release = vm_release,
	.default_groups = unspin_vm_groups,
};

/* Probes that held a slot of it have let go. */
static void vm_free_work(struct work_struct *work)
{
	struct unspin_vm *vm = container_of(to_rcu_work(work), struct unspin_vm, free_work);

	cancel_work_sync(&vm->epoch_work);
	kobject_put(&vm->kobj);
}

/* Waits for no grace period: new VMs are added from the same queue. */
static void vm_reap_work(struct work_struct *work)
{
	struct unspin_vm *vm = container_of(work, struct unspin_vm, reap_work);

	if (vm->named)
		kobject_del(&vm->kobj);	/* waits for readers of its files */
	mutex_lock(&unspin_mutex);
	unspin_settings_modes_changed();	/* it may have been the last VM with a mode */
	mutex_unlock(&unspin_mutex);
	queue_rcu_work(workqueue, &vm->free_work);
}

static struct unspin_vm *vm_alloc(const struct kvm *kvm, gfp_t gfp)
{
	struct unspin_vm *vm = kzalloc(sizeof(*vm), gfp | __GFP_NOWARN);

	if (!vm)
		return NULL;
	vm->maker = unspin_maker_alloc(kvm->userspace_pid, gfp);
	if (!vm->maker) {
		kfree(vm);
		return NULL;
	}
	vm->kvm = kvm;
	vm->pid = kvm->userspace_pid;
	vm->nslots_max = HVS_SLOTS_MAX;
	raw_spin_lock_init(&vm->epoch_lock);
	INIT_LIST_HEAD(&vm->slots);
	INIT_WORK(&vm->epoch_work, unspin_epoch_work);
	INIT_WORK(&vm->add_work, vm_add_work);
	INIT_WORK(&vm->reap_work, vm_reap_work);
	INIT_RCU_WORK(&vm->free_work, vm_free_work);
	kobject_init(&vm->kobj, &vm_ktype);
	unspin_settings_new_vm(vm);
	atomic_inc(&unspin_live_objects);
	return vm;
}

/* Removes the slot from the hash: its VM ends, or a new vCPU has the address of one that KVM refused. */
static void slot_unhash(struct unspin_slot *slot)
{
	lockdep_assert_held(&unspin_lock);
	if (!slot->hashed)
		return;
	hlist_del_rcu(&slot->hash);
	slot->hashed = 0;
}

/*
 * Makes room for all slots after a vCPU was created. Without memory, unspin_slot_bind() finds no
 * place for the slot.
 */
static void large_grow(struct unspin_vm *vm, gfp_t gfp)
{
	u32 n = (READ_ONCE(vm->slots_made) - 1) / HVS_SLOTS_MAX;
	struct unspin_large *large = READ_ONCE(vm->large);
	struct unspin_slot **chunk;
	unsigned long flags;

	if (!n || n >= HVS_WORDS || (large && READ_ONCE(large->chunk[n - 1])))
		return;
	chunk = kcalloc(HVS_SLOTS_MAX, sizeof(*chunk), gfp | __GFP_NOWARN);
	large = large ? NULL : kzalloc(sizeof(*large), gfp | __GFP_NOWARN);

	raw_spin_lock_irqsave(&unspin_lock, flags);
	if (!vm->large && large) {
		smp_store_release(&vm->large, large);	/* pairs with slot_numbered() in pick.c */
		large = NULL;
	}
	if (vm->large && !vm->large->chunk[n - 1]) {
		smp_store_release(&vm->large->chunk[n - 1], chunk);	/* pairs with slot_numbered(), too */
		chunk = NULL;
	}
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
	kfree(large);
	kfree(chunk);
}

/*
 * Finds or creates the slot of a vCPU. Called when KVM creates a vCPU (an ftrace callback: no
 * sleep), by discovery, and at the first entry of a vCPU that neither of them saw. The vCPU's VM
 * cannot end meanwhile. NULL: no memory, or the VM made more vCPUs than a VM can have.
 */
struct unspin_slot *unspin_slot_add(struct kvm_vcpu *vcpu, gfp_t gfp)
{
	struct unspin_slot *slot = kzalloc(sizeof(*slot), gfp | __GFP_NOWARN), *old;
	struct unspin_vm *fresh = NULL, *vm;
	unsigned long flags;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	vm = vm_find(vcpu->kvm);
	/* Before anything can fail: the slot of a vCPU that KVM refused is not that of the next one at its address. */
	old = unspin_slot_find(vcpu);
	if (old && old->vm->kvm != vcpu->kvm)
		slot_unhash(old);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
	/* The VM cannot end, so a found one stays. If two CPUs create it, the code below keeps one. */
	if (!vm)
		fresh = vm_alloc(vcpu->kvm, gfp);
	if (!slot || (!vm && !fresh))
		goto no_memory;
	slot->vcpu = vcpu;
	slot->idx = -1;
	slot->work.refresh = 1;
	slot->turn.target = slot->turn.fills = slot->turn.called = UNSPIN_NO_CPU;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	old = unspin_slot_find(vcpu);
	if (old) {
		raw_spin_unlock_irqrestore(&unspin_lock, flags);
		kfree(slot);
		if (fresh)
			kobject_put(&fresh->kobj);
		return old;
	}
	vm = vm_find(vcpu->kvm);
	if (vm && vm->slots_made >= (unspin_test_value(slots_made_most) ?: SLOTS_MADE_MAX)) {
		raw_spin_unlock_irqrestore(&unspin_lock, flags);
		goto no_memory;
	}
	if (!vm) {
		vm = fresh;
		fresh = NULL;
		vm->generation = ++next_generation;
		vm->number = unspin_number_take(vm);
		rb_add(&vm->by_kvm, &vms_by_kvm, vm_less);
		list_add_tail_rcu(&vm->all, &unspin_vms);
		queue_work(workqueue, &vm->add_work);
	}
	slot->vm = vm;
	slot->hashed = 1;
	vm->slots_made++;
	list_add_tail_rcu(&slot->of_vm, &vm->slots);
	hlist_add_head_rcu(&slot->hash, unspin_slot_bucket(vcpu));
	atomic_inc_return_release(&unspin_census);
	atomic_inc(&unspin_live_objects);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);

	large_grow(vm, gfp);
	if (fresh)
		kobject_put(&fresh->kobj);
	return slot;

no_memory:
	kfree(slot);
	if (fresh)
		kobject_put(&fresh->kobj);
	return NULL;
}

/* Lets picks find the slot by its number. Returns false if there is no place. unspin_lock is held. */
static bool slot_place(struct unspin_vm *vm, struct unspin_slot *slot, u32 idx)
{
	struct unspin_large *large = vm->large;
	struct unspin_slot *other;

	if (idx < HVS_SLOTS_MAX) {
		/* Pairs with smp_load_acquire() in slot_numbered(), pick.c. */
		smp_store_release(&vm->slot[idx], slot);
	} else {
		if (idx >= HVS_VCPUS_MAX || !large || !large->chunk[idx / HVS_SLOTS_MAX - 1])
			return false;
		smp_store_release(&large->chunk[idx / HVS_SLOTS_MAX - 1][idx % HVS_SLOTS_MAX], slot);
	}
	if (large && large->waiting.known) {
		WRITE_ONCE(slot->waiting, &large->waiting);
		WRITE_ONCE(large->waiting.known, large->waiting.known + 1);
	} else if (idx >= HVS_SLOTS_MAX) {
		/*
		 * Adds the earlier vCPUs, once. A vCPU that has no core now gets its bit after it
		 * has had one.
		 */
		list_for_each_entry(other, &vm->slots, of_vm) {
			if (other->idx < 0)
				continue;
			WRITE_ONCE(other->waiting, &large->waiting);
			large->waiting.known++;
		}
	}
	return true;
}

/* The vCPU runs, so its index is final. From now on it can be picked, kicked and restored. */
void unspin_slot_bind(struct unspin_slot *slot)
{
	struct unspin_vm *vm = slot->vm;
	u32 idx = slot->vcpu->vcpu_idx;
	unsigned long flags;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	slot->idx = idx;
	if (!slot_place(vm, slot, idx))
		WRITE_ONCE(vm->nslots_max, 0);
	else if (idx >= HVS_SLOTS_MAX && vm->nslots_max)
		WRITE_ONCE(vm->nslots_max, HVS_VCPUS_MAX);
	if (idx >= vm->nslots)
		WRITE_ONCE(vm->nslots, idx + 1);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);

	raw_spin_lock_irqsave(&vm->epoch_lock, flags);
	unspin_epoch_batch(vm);
	raw_spin_unlock_irqrestore(&vm->epoch_lock, flags);
	unspin_settings_size_check(vm);
}

/* Removes the VM from all lookups. */
static void vm_unlink(struct unspin_vm *vm)
{
	lockdep_assert_held(&unspin_lock);
	list_del_rcu(&vm->all);
	rb_erase(&vm->by_kvm, &vms_by_kvm);
	unspin_number_put(vm);
	vm->dead = true;
}

/* Entry of kvm_arch_destroy_vm(): none of its vCPUs runs any more, none has been freed yet. */
void unspin_vm_end(const struct kvm *kvm)
{
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	unsigned long flags;
	int cpu;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	vm = vm_find(kvm);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
	if (!vm)
		return;
	/* It gets no more vCPUs, but may have made thousands. */
	list_for_each_entry(slot, &vm->slots, of_vm) {
		raw_spin_lock_irqsave(&unspin_lock, flags);
		slot_unhash(slot);
		raw_spin_unlock_irqrestore(&unspin_lock, flags);
	}
	raw_spin_lock_irqsave(&unspin_lock, flags);
	vm_unlink(vm);
	atomic_inc(&unspin_census);
	unspin_turn_forget(vm);
	/*
	 * A CPU still notes the vCPU of a thread that has not been switched since it
	 * ran it. The thread's next vCPU could have the same address.
	 */
	for_each_possible_cpu(cpu) {
		slot = READ_ONCE(per_cpu(unspin_cpu.cur, cpu));
		if (slot && slot->vm == vm)
			cmpxchg(&per_cpu(unspin_cpu.cur, cpu), slot, NULL);
	}
	queue_work(workqueue, &vm->reap_work);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
}

/*
 * The hash is read under a run queue's lock. It has room for SLOTS_PER_CPU vCPUs per CPU, twice as
 * many as a crowded host runs, so that most buckets have at most one vCPU. A bucket is 8 bytes.
 */
#define SLOTS_PER_CPU 64
#define SLOT_HASH_BITS_MIN 10
#define SLOT_HASH_BITS_MAX 15

int unspin_vms_init(void)
{
	u32 wanted = order_base_2((u64)num_possible_cpus() * SLOTS_PER_CPU);

	unspin_slot_hash_bits = clamp_t(u32, wanted, SLOT_HASH_BITS_MIN, SLOT_HASH_BITS_MAX);
	unspin_slot_hash = kvcalloc(1u << unspin_slot_hash_bits, sizeof(*unspin_slot_hash),
				    GFP_KERNEL | __GFP_NOWARN);
	if (!unspin_slot_hash)
		return -ENOMEM;
	workqueue = alloc_ordered_workqueue("unspin", 0);
	if (workqueue)
		return 0;
	kvfree(unspin_slot_hash);
	return -ENOMEM;
}

/* Ends one VM. False if none is left. */
static bool vm_end_any(void)
{
	struct unspin_vm *vm;

	raw_spin_lock_irq(&unspin_lock);
	vm = list_first_entry_or_null(&unspin_vms, struct unspin_vm, all);
	if (vm) {
		vm_unlink(vm);
		queue_work(workqueue, &vm->reap_work);
	}
	raw_spin_unlock_irq(&unspin_lock);
	return vm;
}

/* Call with all hooks released, so that nothing adds VMs or looks them up. */
void unspin_vms_deinit(void)
{
	flush_workqueue(workqueue);
	while (vm_end_any())
		cond_resched();
	flush_workqueue(workqueue);
	rcu_barrier();			/* queues what frees the VMs */
	destroy_workqueue(workqueue);	/* runs what is queued */
	unspin_numbers_end();
	kvfree(unspin_slot_hash);
}
