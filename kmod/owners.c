// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs get other owners, all at the same time.
 *
 * An interrupt tells each CPU whose owner changes. There a vCPU that runs and may not is asked to leave
 * (park.c), and one that sleeps for this turn is woken. Each CPU does this for itself: where one
 * came late, the vCPUs on the others would spin for the one there.
 */
#include <linux/cpumask.h>
#include <linux/sched.h>
#include <linux/smp.h>

#include "owners.h"
#include "park.h"

/* Set at run time: the loader leaves pointers in per-CPU data as they are. */
static DEFINE_PER_CPU(call_single_data_t, switches);
static struct cpumask switching;	/* CPUs that get another owner, or lose who filled them */

void unspin_owner_set(u32 cpu, const void *owner)
{
	struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);

	if (on->owner == owner && !READ_ONCE(on->filler))
		return;
	WRITE_ONCE(on->filler, NULL);
	WRITE_ONCE(on->owner_tsc, unspin_now());
	WRITE_ONCE(on->owner, owner);
	cpumask_set_cpu(cpu, &switching);
}

static void rival_asked_to_go(const struct unspin_cpu *on)
{
	struct unspin_slot *cur = READ_ONCE(on->cur);

	if (cur && !unspin_may_run(cur, on))
		unspin_park_request(cur);
}

/* What changes on one CPU: who runs there goes, and who sleeps there for its turn is woken. Under RCU. */
static void cpu_switch(u32 cpu)
{
	const struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);
	const void *owner = READ_ONCE(on->owner);
	struct unspin_slot *slot;
	struct unspin_vm *vm;

	rival_asked_to_go(on);
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (owner && owner != vm && owner != unspin_turn_of_others && READ_ONCE(vm->in_turns))
			continue;
		list_for_each_entry_rcu(slot, &vm->slots, of_vm)
			if (READ_ONCE(slot->parked) && task_cpu(slot->held) == cpu &&
			    unspin_may_run(slot, on))
				unspin_park_wake(slot);
	}
}

/* The interrupt that tells a CPU. */
static void switch_here(void *unused)
{
	cpu_switch(smp_processor_id());
}

/*
 * All CPUs that switch do so at the same time, each for itself: where one came late, the vCPUs on the
 * others would spin for the one there. One that has not yet taken the last such interrupt needs no other.
 */
static void cpus_switch(void)
{
	u32 cpu, here = smp_processor_id();

	for_each_cpu(cpu, &switching)
		if (cpu != here && smp_call_function_single_async(cpu, per_cpu_ptr(&switches, cpu)) == -ENXIO)
			cpu_switch(cpu);	/* offline */
	if (cpumask_test_cpu(here, &switching))
		cpu_switch(here);
}

/*
 * On CPUs that do not switch: VMs have come, gone, or changed their kind. Those too that are in no
 * table: a VM that is left to KVM, or one too many. Under RCU.
 */
static void others_look(void)
{
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	u32 cpu;

	for_each_online_cpu(cpu)
		if (!cpumask_test_cpu(cpu, &switching))
			rival_asked_to_go(per_cpu_ptr(&unspin_cpu, cpu));
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
			if (!READ_ONCE(slot->parked))
				continue;
			cpu = task_cpu(slot->held);
			if (!cpumask_test_cpu(cpu, &switching) &&
			    unspin_may_run(slot, per_cpu_ptr(&unspin_cpu, cpu)))
				unspin_park_wake(slot);
		}
}

void unspin_owners_switch(void)
{
	smp_mb();	/* a thread about to sleep sees the owner (park.c), or is seen asleep */
	cpus_switch();
	others_look();
	cpumask_clear(&switching);
}

void unspin_owners_begin(void)
{
	u32 cpu;

	cpumask_clear(&switching);
	for_each_possible_cpu(cpu)
		INIT_CSD(per_cpu_ptr(&switches, cpu), switch_here, NULL);
}

static void nothing(void *unused)
{
}

void unspin_owners_wait(void)
{
	on_each_cpu(nothing, NULL, 1);	/* CPUs are told in order */
}
