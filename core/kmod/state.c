// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lists and hash tables of VMs and vCPUs.
 */
#include "state.h"

DEFINE_MUTEX(unspin_mutex);
DEFINE_RAW_SPINLOCK(unspin_lock);
LIST_HEAD(unspin_vms);
atomic_t unspin_live_objects = ATOMIC_INIT(0);
struct hlist_head *unspin_slot_hash __read_mostly;
u32 unspin_slot_hash_bits __read_mostly;
DEFINE_PER_CPU(struct unspin_cpu, unspin_cpu);
atomic_t unspin_census = ATOMIC_INIT(0);

bool unspin_any_slot(bool (*is)(const struct unspin_slot *slot))
{
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	bool any = false;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		list_for_each_entry_rcu(slot, &vm->slots, of_vm)
			any |= is(slot);
	rcu_read_unlock();
	return any;
}
