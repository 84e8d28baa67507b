// SPDX-License-Identifier: GPL-2.0-only
/*
 * VMs and vCPUs: found, looked up, given their settings, let go.
 *
 * KVM frees a vCPU with its VM and uses its address again. So a VM's state is
 * unlinked at the entry of kvm_arch_destroy_vm(), before anything is freed, and
 * whoever dereferences a vCPU either runs in that vCPU's thread, runs in the
 * thread of a sibling, or holds unspin_lock and found it linked.
 */
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/delay.h>

#include "hot.h"

#define DISCOVER_VMS_MAX 1024
#define RESTORE_WAIT_MS 300	/* a busy vCPU that was kicked enters within a tick or two */

DEFINE_RAW_SPINLOCK(unspin_lock);
LIST_HEAD(unspin_vms);
atomic_t unspin_live_objects = ATOMIC_INIT(0);

struct hlist_head unspin_slot_hash[1 << UNSPIN_SLOT_HASH_BITS];
static struct workqueue_struct *workqueue;	/* ordered: a directory is added before it is removed */
static u64 next_generation;			/* under unspin_lock */

/* Processes that made VMs lately, so that a second VM gets the next number. Under unspin_lock. */
static struct {
	pid_t pid;
	u32 next;
} numbers[64];
static u32 numbers_at;

static struct unspin_vm *vm_find(const struct kvm *kvm)
{
	struct unspin_vm *vm;

	lockdep_assert_held(&unspin_lock);
	list_for_each_entry(vm, &unspin_vms, all)
		if (vm->kvm == kvm)
			return vm;
	return NULL;
}

static u32 number_next(pid_t pid)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		if (numbers[i].next && numbers[i].pid == pid)
			return numbers[i].next++;
	i = numbers_at++ % ARRAY_SIZE(numbers);
	numbers[i].pid = pid;
	numbers[i].next = 1;
	return 0;
}

static bool number_taken(pid_t pid, u32 number)
{
	struct unspin_vm *vm;

	list_for_each_entry(vm, &unspin_vms, all)
		if (vm->pid == pid && vm->number == number)
			return true;
	return false;
}

/* How many exits a vCPU collects before it touches the shared count: an eighth of an epoch in all. */
void unspin_vm_batch(struct unspin_vm *vm)
{
	u32 nslots = max(READ_ONCE(vm->nslots), 1u);

	WRITE_ONCE(vm->report_batch, clamp(vm->params.epoch_ple_exits / (8 * nslots), 1u, 64u));
	WRITE_ONCE(vm->epoch_ple_exits, vm->params.epoch_ple_exits);
}

/* Tells every vCPU of the VM to look at window and mode at its next entry. */
void unspin_vm_kick_slots(struct unspin_vm *vm)
{
	struct unspin_slot *slot;

	rcu_read_lock();
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		/* Pairs with the xchg() in unspin_entry(): what was stored before is seen there. */
		smp_store_release(&slot->work.remote, 1);
	}
	rcu_read_unlock();
}

/* Directed yields look at 64 vCPUs at most; a larger VM keeps KVM's selection and is told so once. */
static void vm_size_check(struct unspin_vm *vm)
{
	if (!READ_ONCE(vm->select_on) || READ_ONCE(vm->nslots) <= HVS_SLOTS_MAX || vm->told_large)
		return;
	vm->told_large = 1;
	atomic64_inc(&vm->fail_open_events);
	atomic64_inc(&unspin_fail_open_total);
	pr_warn_ratelimited("VM %d-%u has more than %u vCPUs and keeps KVM's selection\n",
			    vm->pid, vm->number, HVS_SLOTS_MAX);
}

/*
 * Makes the VM's settings what its vCPUs go by. A mode written anew also clears
 * fail-open. APLE starts over at its initial window where mode or that window
 * changed, and otherwise goes on within the bounds. unspin_mutex is held, or the
 * VM is not yet linked.
 */
void unspin_vm_apply(struct unspin_vm *vm, bool mode_written)
{
	enum unspin_mode mode = vm->set.mode;
	bool window_on, restart;
	unsigned long flags;
	u32 window;

	raw_spin_lock_irqsave(&vm->epoch_lock, flags);
	if (mode_written)
		vm->fail_open = 0;
	if (vm->fail_open && mode != UNSPIN_OFF)
		mode = UNSPIN_OBSERVE;
	window_on = (mode == UNSPIN_APLE || mode == UNSPIN_APPLES) &&
		    READ_ONCE(unspin_window) && !READ_ONCE(unspin_window_refused);
	restart = mode_written || window_on != vm->window_on ||
		  vm->params.window_init_cycles != vm->set.aple.window_init_cycles;
	vm->params = vm->set.aple;
	if (restart) {
		aple_init(&vm->aple, &vm->params);
		unspin_epoch_restart(vm);
	}
	window = pol_clamp_u32(vm->aple.window_cycles, vm->params.window_min_cycles,
			       vm->params.window_max_cycles);
	vm->aple.window_cycles = window;
	WRITE_ONCE(vm->window_cycles, window);
	WRITE_ONCE(vm->hvs_flags, vm->set.hvs_flags);
	WRITE_ONCE(vm->window_on, window_on);
	WRITE_ONCE(vm->select_on, mode == UNSPIN_HVS || mode == UNSPIN_APPLES);
	WRITE_ONCE(vm->active, mode != UNSPIN_OFF);
	unspin_vm_batch(vm);
	raw_spin_unlock_irqrestore(&vm->epoch_lock, flags);

	vm_size_check(vm);
	unspin_vm_kick_slots(vm);
}

static void settings_inherit(struct unspin_vm *vm, enum unspin_field field)
{
	struct unspin_settings *to = &vm->set;

	if (vm->own & BIT(field))
		return;
	switch (field) {
	case UNSPIN_F_MODE:
		to->mode = unspin_default.mode;
		break;
	case UNSPIN_F_VARIANT:
		to->hvs_flags = unspin_default.hvs_flags;
		break;
	case UNSPIN_F_DELTA:
		to->aple.delta_cycles = unspin_default.aple.delta_cycles;
		break;
	case UNSPIN_F_DELTA_MAX:
		to->aple.delta_max_cycles = unspin_default.aple.delta_max_cycles;
		break;
	case UNSPIN_F_EPOCH:
		to->aple.epoch_ple_exits = unspin_default.aple.epoch_ple_exits;
		break;
	case UNSPIN_F_EPOCH_MIN:
		to->aple.epoch_min_us = unspin_default.aple.epoch_min_us;
		break;
	default:	/* the three bounds make sense together only */
		if (vm->own & (BIT(UNSPIN_F_WINDOW_INIT) | BIT(UNSPIN_F_WINDOW_MIN) |
			       BIT(UNSPIN_F_WINDOW_MAX)))
			return;
		to->aple.window_init_cycles = unspin_default.aple.window_init_cycles;
		to->aple.window_min_cycles = unspin_default.aple.window_min_cycles;
		to->aple.window_max_cycles = unspin_default.aple.window_max_cycles;
		break;
	}
	/* As where a bound is written itself: steps fit the bounds, whichever of them is the VM's own. */
	to->aple.delta_cycles = min(to->aple.delta_cycles, to->aple.window_max_cycles);
	to->aple.delta_max_cycles = min(to->aple.delta_max_cycles, to->aple.window_max_cycles);
}

/*
 * A default was written: VMs that have no value of their own follow. Mode off is for
 * all: who turns the module off means every VM. unspin_mutex is held.
 */
void unspin_vms_inherit(enum unspin_field field)
{
	struct unspin_vm *vm;

	/* VMs are freed by the workqueue after a grace period; apply does not sleep. */
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (field == UNSPIN_F_MODE && unspin_default.mode == UNSPIN_OFF)
			vm->own &= ~BIT(UNSPIN_F_MODE);
		if (vm->own & BIT(field))
			continue;
		settings_inherit(vm, field);
		unspin_vm_apply(vm, field == UNSPIN_F_MODE);
	}
	rcu_read_unlock();
}

static void vm_add_work(struct work_struct *work)
{
	struct unspin_vm *vm = container_of(work, struct unspin_vm, add_work);
	bool dead;

	/* The default may have changed between the VM's making and its linking. */
	mutex_lock(&unspin_mutex);
	raw_spin_lock_irq(&unspin_lock);
	dead = vm->dead;
	raw_spin_unlock_irq(&unspin_lock);
	if (!dead && memcmp(&vm->set, &unspin_default, sizeof(vm->set))) {
		vm->set = unspin_default;
		unspin_vm_apply(vm, true);
	}
	mutex_unlock(&unspin_mutex);

	if (dead)
		return;
	vm->named = !unspin_sysfs_vm_add(vm);
	if (vm->named)
		return;
	mutex_lock(&unspin_mutex);	/* nobody could set its mode: KVM's own */
	unspin_vm_apply(vm, false);
	mutex_unlock(&unspin_mutex);
}

/* Frees the VM's state; called by the kobject's release. */
void unspin_vm_release(struct unspin_vm *vm)
{
	struct unspin_slot *slot, *next;

	list_for_each_entry_safe(slot, next, &vm->slots, of_vm) {
		kfree(slot);
		atomic_dec(&unspin_live_objects);
	}
	kfree(vm);
	atomic_dec(&unspin_live_objects);
}

static void vm_reap_work(struct work_struct *work)
{
	struct unspin_vm *vm = container_of(work, struct unspin_vm, reap_work);

	if (vm->named)
		kobject_del(&vm->kobj);	/* waits for readers of its files */
	synchronize_rcu();		/* probes that still hold a slot of it */
	mutex_lock(&unspin_mutex);
	unspin_attach_update();		/* it may have been the last one with a mode */
	mutex_unlock(&unspin_mutex);
	kobject_put(&vm->kobj);
}

static struct unspin_vm *vm_alloc(const struct kvm *kvm, gfp_t gfp)
{
	struct unspin_vm *vm = kzalloc(sizeof(*vm), gfp | __GFP_NOWARN);

	if (!vm)
		return NULL;
	vm->kvm = kvm;
	vm->pid = kvm->userspace_pid;
	raw_spin_lock_init(&vm->epoch_lock);
	INIT_LIST_HEAD(&vm->slots);
	INIT_WORK(&vm->add_work, vm_add_work);
	INIT_WORK(&vm->reap_work, vm_reap_work);
	kobject_init(&vm->kobj, &unspin_vm_ktype);
	vm->set = unspin_default;
	unspin_vm_apply(vm, true);
	atomic_inc(&unspin_live_objects);
	return vm;
}

/* An old slot at a new vCPU's address: its vCPU was never finished, so nothing runs with it. */
static void slot_unhash(struct unspin_slot *slot)
{
	lockdep_assert_held(&unspin_lock);
	if (!slot->hashed)
		return;
	hlist_del_rcu(&slot->hash);
	slot->hashed = 0;
}

/*
 * The slot of a vCPU, made if there is none. Called where KVM makes a vCPU (an
 * ftrace callback: no sleep), by discovery, and for a vCPU neither of them saw,
 * from its first entry. The vCPU's VM cannot end meanwhile. NULL: no memory.
 */
struct unspin_slot *unspin_slot_add(struct kvm_vcpu *vcpu, gfp_t gfp)
{
	struct unspin_slot *slot = kzalloc(sizeof(*slot), gfp | __GFP_NOWARN), *old;
	struct unspin_vm *fresh = NULL, *vm;
	unsigned long flags;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	vm = vm_find(vcpu->kvm);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
	/* The VM cannot end, so one that is there stays; two makers of one settle it below. */
	if (!vm)
		fresh = vm_alloc(vcpu->kvm, gfp);
	if (!slot || (!vm && !fresh))
		goto no_memory;
	slot->vcpu = vcpu;
	slot->idx = -1;
	slot->work.refresh = 1;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	old = unspin_slot_find(vcpu);
	if (old && old->vm->kvm == vcpu->kvm) {
		raw_spin_unlock_irqrestore(&unspin_lock, flags);
		kfree(slot);
		if (fresh)
			kobject_put(&fresh->kobj);
		return old;
	}
	if (old)
		slot_unhash(old);
	vm = vm_find(vcpu->kvm);
	if (!vm) {
		vm = fresh;
		fresh = NULL;
		vm->generation = ++next_generation;
		do {	/* forgotten where many processes made VMs since */
			vm->number = number_next(vm->pid);
		} while (number_taken(vm->pid, vm->number));
		list_add_tail_rcu(&vm->all, &unspin_vms);
		queue_work(workqueue, &vm->add_work);
	}
	slot->vm = vm;
	slot->hashed = 1;
	list_add_tail_rcu(&slot->of_vm, &vm->slots);
	hlist_add_head_rcu(&slot->hash, unspin_slot_bucket(vcpu));
	atomic_inc(&unspin_live_objects);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);

	if (fresh)
		kobject_put(&fresh->kobj);
	return slot;

no_memory:
	kfree(slot);
	if (fresh)
		kobject_put(&fresh->kobj);
	return NULL;
}

/* The vCPU runs, so its index is final: from now on it can be picked, kicked and restored. */
void unspin_slot_bind(struct unspin_slot *slot)
{
	struct unspin_vm *vm = slot->vm;
	u32 idx = slot->vcpu->vcpu_idx;
	unsigned long flags;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	slot->idx = idx;
	if (idx < HVS_SLOTS_MAX)
		/* Pairs with smp_load_acquire() in the picker's snapshot. */
		smp_store_release(&vm->slot[idx], slot);
	if (idx >= vm->nslots)
		WRITE_ONCE(vm->nslots, idx + 1);
	raw_spin_unlock_irqrestore(&unspin_lock, flags);

	raw_spin_lock_irqsave(&vm->epoch_lock, flags);
	unspin_vm_batch(vm);
	raw_spin_unlock_irqrestore(&vm->epoch_lock, flags);
	vm_size_check(vm);
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
	if (vm) {
		list_for_each_entry(slot, &vm->slots, of_vm)
			slot_unhash(slot);
		list_del_rcu(&vm->all);
		vm->dead = true;
		/*
		 * A thread that ran a vCPU and has not been switched since is still
		 * noted as that vCPU's; its next vCPU could have the same address.
		 */
		for_each_possible_cpu(cpu) {
			slot = READ_ONCE(per_cpu(unspin_cpu.cur, cpu));
			if (slot && slot->vm == vm)
				cmpxchg(&per_cpu(unspin_cpu.cur, cpu), slot, NULL);
		}
		queue_work(workqueue, &vm->reap_work);
	}
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
}

struct discovery {
	struct kvm **kvm;
	u32 count;
};

static int discover_file(const void *arg, struct file *file, unsigned int fd)
{
	struct discovery *found = (struct discovery *)arg;
	struct kvm *kvm;
	u32 i;

	if (!file_is_kvm(file))
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

/*
 * VMs made before the module came: through the processes that hold them open.
 * A VM whose descriptor was closed, or beyond the limit, is found at its first
 * entry while a mode is on. May sleep.
 */
void unspin_vms_discover(void)
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
				unspin_fail_open(NULL, "no memory for a vCPU");
		kvm_put_kvm(found.kvm[n]);
	}
	kvfree(found.kvm);
}

/* Whether a slot's vCPU may be dereferenced now. unspin_lock is held. */
static bool slot_alive(const struct unspin_slot *slot)
{
	return slot->hashed && slot->idx >= 0;
}

static u32 windows_touched(bool kick)
{
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	unsigned long flags;
	u32 touched = 0;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	list_for_each_entry(vm, &unspin_vms, all) {
		list_for_each_entry(slot, &vm->slots, of_vm) {
			if (!slot_alive(slot) || !READ_ONCE(slot->window_touched))
				continue;
			touched++;
			if (kick)
				kvm_vcpu_kick(slot->vcpu);
		}
	}
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
	return touched;
}

static void windows_restore_remote(void)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	unsigned long flags;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	list_for_each_entry(vm, &unspin_vms, all) {
		list_for_each_entry(slot, &vm->slots, of_vm) {
			if (!ops || !slot_alive(slot) || !READ_ONCE(slot->window_touched))
				continue;
			ops->restore_remote(slot->vcpu);
			WRITE_ONCE(slot->window_touched, 0);
		}
	}
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
}

/*
 * All VMs have left our windows: waits until each vCPU has put KVM's back at its
 * own entry, then does it for those that do not run. Probes are still attached.
 */
void unspin_windows_restore(void)
{
	u32 waited;

	for (waited = 0; waited < RESTORE_WAIT_MS && windows_touched(waited == 0); waited += 5)
		usleep_range(4000, 6000);
	windows_restore_remote();
}

/* Nothing is attached any more: close what probes left open. */
void unspin_slots_quiesce(void)
{
	struct unspin_slot *slot;
	u64 now = unspin_now();
	struct unspin_vm *vm;
	unsigned long flags;
	int cpu;

	raw_spin_lock_irqsave(&unspin_lock, flags);
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(unspin_cpu.cur, cpu), NULL);
	list_for_each_entry(vm, &unspin_vms, all) {
		list_for_each_entry(slot, &vm->slots, of_vm) {
			unspin_run_stop(slot, now);
			slot->work.ple = 0;
			slot->work.refresh = 1;
			slot->category = HVS_NOT_PREEMPTED;
			slot->yielded_mark = 0;
			slot->pick_pending = 0;
			slot->out_tsc = UNSPIN_OUT_UNKNOWN;
		}
	}
	raw_spin_unlock_irqrestore(&unspin_lock, flags);
}

bool unspin_any_in_flight(void)
{
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	bool any = false;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		list_for_each_entry_rcu(slot, &vm->slots, of_vm)
			any |= READ_ONCE(slot->in_flight);
	rcu_read_unlock();
	return any;
}

#define WATCH_STALL_MS 750	/* fail-open must come within a second; the watchdog looks every 250 ms */

static bool vm_stalled(struct unspin_vm *vm, u64 now)
{
	u64 limit = (u64)tsc_khz * WATCH_STALL_MS, out;
	struct unspin_slot *slot;
	bool stalled = false;
	u64 picks = 0;

	list_for_each_entry(slot, &vm->slots, of_vm) {
		picks += READ_ONCE(slot->count[UNSPIN_C_YIELD_RESOURCE]) +
			 READ_ONCE(slot->count[UNSPIN_C_YIELD_LOCK]) +
			 READ_ONCE(slot->count[UNSPIN_C_YIELD_YIELDED]) +
			 READ_ONCE(slot->count[UNSPIN_C_GAVE_WAY]);
		out = READ_ONCE(slot->out_tsc);
		if (slot_alive(slot) && READ_ONCE(slot->category) != HVS_NOT_PREEMPTED &&
		    READ_ONCE(slot->vcpu->ready) && out && now > out && now - out > limit)
			stalled = true;
	}
	/* Where we picked nobody lately, we starved nobody: a throttled group looks the same. */
	if (picks == vm->watch_picks)
		stalled = false;
	vm->watch_picks = picks;
	return stalled;
}

/* A vCPU ready for long while its siblings were preferred: leave that VM to KVM. */
void unspin_watch(void)
{
	struct unspin_vm *vm, *stalled;
	unsigned long flags;
	u64 now;

	mutex_lock(&unspin_mutex);
	do {
		stalled = NULL;
		now = unspin_now();
		raw_spin_lock_irqsave(&unspin_lock, flags);
		list_for_each_entry(vm, &unspin_vms, all) {
			if (READ_ONCE(vm->select_on) && vm_stalled(vm, now)) {
				stalled = vm;
				kobject_get(&vm->kobj);
				break;
			}
		}
		raw_spin_unlock_irqrestore(&unspin_lock, flags);
		if (stalled) {
			unspin_fail_open(stalled, "a ready vCPU has not run for 750 ms");
			unspin_vm_apply(stalled, false);
			kobject_put(&stalled->kobj);
		}
	} while (stalled);
	mutex_unlock(&unspin_mutex);
}

int unspin_vms_init(void)
{
	workqueue = alloc_ordered_workqueue("unspin", 0);
	return workqueue ? 0 : -ENOMEM;
}

/* Hooks are off: nothing adds VMs or looks them up. */
void unspin_vms_deinit(void)
{
	struct unspin_vm *vm, *next;
	LIST_HEAD(ended);

	flush_workqueue(workqueue);
	raw_spin_lock_irq(&unspin_lock);
	list_for_each_entry_safe(vm, next, &unspin_vms, all) {
		vm->dead = true;
		list_del_rcu(&vm->all);
		queue_work(workqueue, &vm->reap_work);
	}
	memset(unspin_slot_hash, 0, sizeof(unspin_slot_hash));
	raw_spin_unlock_irq(&unspin_lock);
	destroy_workqueue(workqueue);	/* runs what is queued */
}
