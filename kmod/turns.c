// SPDX-License-Identifier: GPL-2.0-only
/*
 * Turns.
 *
 * One timer for the host. At its end a turn is settled: what each vCPU got is read from its
 * slot, policy/gang.c says who owns which CPU next, and the CPUs switch (owners.c). One that
 * waits in a run queue and may not run is asked to leave when it is switched in (hooks.c).
 *
 * A CPU that goes idle in a turn has a hole: an interrupt to itself lets one of the vCPUs in
 * that sleep for their turn there. It goes again when it spins, or when a vCPU whose
 * turn it is wakes up there.
 *
 * turns_lock orders all that; it is taken from the timer, from that interrupt and when a VM
 * ends. Threads are woken under it, so nothing that holds a run queue may take it: probes
 * only store.
 */
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/tracepoint.h>
#include <linux/vmalloc.h>
#include <trace/events/sched.h>

#include "../policy/gang.h"
#include "compat/compat.h"
#include "fail_open.h"
#include "turns.h"
#include "hot.h"
#include "host_tasks.h"
#include "owners.h"
#include "park.h"
#include "settings.h"
#include "symbols.h"
#include "user_spin.h"
#include "wanted.h"
#include "weight.h"

#define VCPUS_MAX 2048u
#define CLAMP_TURNS 2u		/* nobody is owed more turns than these */
#define STALL_MS 500u		/* a turn that has not ended by then: the timer is stuck */
#define FIRST_TURN_US 1000ull

static DEFINE_RAW_SPINLOCK(turns_lock);
static struct hrtimer timer;
static bool running;		/* under unspin_mutex */
static bool broken;		/* turns have failed: none again until the module is loaded anew */

/* What the policy sees, and whose it is. Under turns_lock. */
static struct gang_host host;
static struct unspin_vm *vm_at[UNSPIN_WANTED_VMS_MAX];
static struct unspin_slot *slot_at[VCPUS_MAX];
static u64 turn_started, turn_cycles;
static bool turn_owned;		/* somebody owned a CPU in the turn that ends */

static DEFINE_PER_CPU(struct irq_work, holes);	/* set at run time: the loader leaves pointers in here as they are */

/* --- what the policy sees --- */

static void vcpu_look(struct gang_vcpu *vcpu, struct unspin_slot *slot, struct task_struct *task,
		      u64 now)
{
	u64 run = unspin_run_cycles(READ_ONCE(slot->run), now);

	vcpu->got = run > slot->turn_run ? run - slot->turn_run : 0;
	slot->turn_run = run;
	vcpu->cpu = unspin_host_tasks_use(task_cpu(task)) ? GANG_NONE : task_cpu(task);
	vcpu->weight = READ_ONCE(slot->turn_weight) ?: UNSPIN_WEIGHT_DEFAULT;
	vcpu->parked = READ_ONCE(slot->parked);
	vcpu->lock = READ_ONCE(slot->park_at_lock);
	vcpu->wants = vcpu->parked || READ_ONCE(task->__state) == TASK_RUNNING;
	vcpu->allowed = (const pol_u64 *)cpumask_bits(&task->cpus_mask);
}

/* False: there is no room for all its vCPUs. */
static bool vm_look(struct unspin_vm *vm, u64 now)
{
	struct gang_vm *to = &host.vms[host.vm_count];
	u32 first = host.vcpu_count;
	struct unspin_slot *slot;

	unspin_wanted_vm(vm, host.vm_count);
	vm->beside_host = false;
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		struct gang_vcpu *vcpu = &host.vcpus[host.vcpu_count];
		struct task_struct *task = READ_ONCE(slot->held);

		if (!task)
			continue;
		if (host.vcpu_count == VCPUS_MAX)
			return false;
		slot_at[host.vcpu_count++] = slot;
		vcpu_look(vcpu, slot, task, now);
		vm->beside_host |= vcpu->wants && vcpu->cpu == GANG_NONE;
		unspin_wanted_vcpu(slot, host.vm_count);
	}
	*to = (struct gang_vm){
		.owed = vm->turn_owed_cycles,
		.last_turn = vm->turn_last,
		.first = first,
		.count = host.vcpu_count - first,
		.high = READ_ONCE(vm->gang),	/* in the turn that ends */
	};
	vm->turn_index = host.vm_count;
	vm_at[host.vm_count++] = vm;
	return true;
}

/* All VMs that are in turns; none at all where they are too many to be looked at in a timer. */
static void host_look(u64 now)
{
	struct unspin_vm *vm;

	host.vm_count = host.vcpu_count = 0;
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (!READ_ONCE(vm->in_turns))
			continue;
		if (host.vm_count < UNSPIN_WANTED_VMS_MAX && vm_look(vm, now))
			continue;
		host.vm_count = host.vcpu_count = 0;
		return;
	}
}

/* --- a turn ends, another begins --- */

static void turn_charge(u64 cycles)
{
	u32 i;

	/* A VM's turn is one in which it owns a CPU, however many. */
	for (i = 0; i < host.vm_count; i++)
		if (turn_owned && host.vms[i].high && vm_at[i]->turn_last == host.turn)
			vm_at[i]->turn_cycles += cycles;
}

static const void *owner_at(u32 cpu)
{
	u32 owner = host.cpus[cpu].owner;

	if (unspin_host_tasks_use(cpu))
		return NULL;
	if (owner == GANG_LOW)
		return unspin_turn_of_others;
	return owner < host.vm_count ? vm_at[owner] : NULL;
}

static void results_keep(void)
{
	u32 i;

	for (i = 0; i < host.vm_count; i++) {
		struct unspin_vm *vm = vm_at[i];

		WRITE_ONCE(vm->turn_owed_cycles, host.vms[i].owed);
		if (host.vms[i].last_turn != vm->turn_last)
			vm->turns++;
		vm->turn_last = host.vms[i].last_turn;
	}
}

/* Each CPU's owner, then all CPUs that get another switch. Under RCU. */
static void owners_change(bool any)
{
	u32 cpu;

	for (cpu = 0; cpu < host.cpu_count; cpu++)
		unspin_owner_set(cpu, any ? owner_at(cpu) : NULL);
	unspin_owners_switch();
}

/* As long as the VM wants it that comes first. */
static u64 turn_length_us(void)
{
	u64 us = unspin_settings_of(NULL)->number[UNSPIN_N_TURN];
	gang_s64 most = 0;
	u32 i;

	for (i = 0; i < host.vm_count; i++) {
		if (!host.vms[i].high || vm_at[i]->turn_last != host.turn || host.vms[i].owed < most)
			continue;
		most = host.vms[i].owed;
		us = vm_at[i]->set.number[UNSPIN_N_TURN];
	}
	return us;
}

/*
 * Whose vCPUs run together in the turn that begins: those that should. Where one of them would not be in
 * the turn, because its CPU has none, the others would wait for it.
 */
static void gangs_choose(void)
{
	u32 i;

	for (i = 0; i < host.vm_count; i++) {
		struct unspin_vm *vm = vm_at[i];

		WRITE_ONCE(vm->gang, READ_ONCE(vm->gang_wanted) && !vm->beside_host);
		host.vms[i].high = vm->gang;
	}
}

static enum hrtimer_restart turn(struct hrtimer *of)
{
	u64 now = unspin_now(), us;

	raw_spin_lock(&turns_lock);
	turn_charge(now - turn_started);
	unspin_host_tasks_judge(now, now - turn_started);
	host_look(now);
	gang_account(&host, CLAMP_TURNS * turn_cycles);
	unspin_wanted_judge(vm_at, host.vm_count);
	gangs_choose();
	turn_owned = gang_turn(&host);
	results_keep();
	owners_change(turn_owned);
	us = turn_length_us();
	WRITE_ONCE(turn_started, now);
	turn_cycles = us * tsc_khz / 1000;
	raw_spin_unlock(&turns_lock);
	hrtimer_forward_now(of, ns_to_ktime(us * NSEC_PER_USEC));
	return HRTIMER_RESTART;
}

/* --- holes --- */

/* turns_lock is held. */
static void fill(u32 cpu)
{
	struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, cpu);
	u32 v;

	if (!on->owner || READ_ONCE(on->cur) || READ_ONCE(on->filler))
		return;
	for (v = 0; v < host.vcpu_count; v++) {
		host.vcpus[v].parked = READ_ONCE(slot_at[v]->parked);
		host.vcpus[v].lock = READ_ONCE(slot_at[v]->park_at_lock);
	}
	v = gang_fill(&host, cpu);
	if (v == GANG_NONE)
		return;
	unspin_count(slot_at[v], UNSPIN_C_FILLS, 1);
	WRITE_ONCE(on->filler, slot_at[v]);
	smp_mb();	/* it is asleep, or sees that it may run */
	unspin_park_wake(slot_at[v]);
}

/* The CPU goes idle, and this interrupt follows at once. */
static void fill_hole(struct irq_work *work)
{
	raw_spin_lock(&turns_lock);
	fill(smp_processor_id());
	raw_spin_unlock(&turns_lock);
}

/* It may have let go of a lock: siblings that waited for one are worth a try. */
static void got_on(struct unspin_slot *slot)
{
	struct unspin_slot *sibling;
	unsigned long flags;

	raw_spin_lock_irqsave(&turns_lock, flags);
	list_for_each_entry_rcu(sibling, &slot->vm->slots, of_vm) {
		if (sibling == slot || !READ_ONCE(sibling->park_at_lock))
			continue;
		WRITE_ONCE(sibling->park_at_lock, 0);
		if (READ_ONCE(sibling->parked))
			fill(task_cpu(sibling->held));
	}
	raw_spin_unlock_irqrestore(&turns_lock, flags);
}

void unspin_turns_idle(const struct unspin_slot *out)
{
	if (__this_cpu_read(unspin_cpu.filler) == out)
		__this_cpu_write(unspin_cpu.filler, NULL);
	if (READ_ONCE(running))
		irq_work_queue(this_cpu_ptr(&holes));
}

void unspin_turns_filler_spins(struct unspin_slot *slot)
{
	struct unspin_cpu *on = this_cpu_ptr(&unspin_cpu);

	if (READ_ONCE(on->filler) != slot)
		return;
	WRITE_ONCE(on->filler, NULL);
	if (!unspin_may_run(slot, on))
		unspin_park_mark(slot, current);
}

/* A vCPU whose turn it is wakes up where another fills: that one goes. Its run queue is locked. */
static void notrace probe_sched_wakeup(void *data, struct task_struct *task)
{
	struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, task_cpu(task));
	struct unspin_slot *filler = READ_ONCE(on->filler);

	if (likely(!filler) || hlist_empty(&task->preempt_notifiers) || filler->held == task)
		return;
	if (cmpxchg(&on->filler, filler, NULL) == filler && !unspin_may_run(filler, on))
		unspin_park_request(filler);
}

/* --- begun and ended --- */

static void tables_free(void)
{
	vfree(host.vms);
	vfree(host.vcpus);
	vfree(host.cpus);
	memset(&host, 0, sizeof(host));
}

static int tables_make(void)
{
	host.vms = vcalloc(UNSPIN_WANTED_VMS_MAX, sizeof(*host.vms));
	host.vcpus = vcalloc(VCPUS_MAX, sizeof(*host.vcpus));
	host.cpus = vcalloc(nr_cpu_ids, sizeof(*host.cpus));
	if (!host.vms || !host.vcpus || !host.cpus) {
		tables_free();
		return -ENOMEM;
	}
	host.cpu_count = nr_cpu_ids;
	return 0;
}

/* A switch of a vCPU is one like any other from now on. */
static void switches_forget(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(unspin_cpu.in_turns, cpu), 0);
}

static int begin(void)
{
	int err = tables_make(), cpu;

	if (err)
		return err;
	for_each_possible_cpu(cpu) {
		per_cpu(holes, cpu) = IRQ_WORK_INIT_HARD(fill_hole);
		WRITE_ONCE(per_cpu(unspin_cpu.in_turns, cpu), 1);
	}
	err = unspin_park_attach(got_on);
	if (err)
		goto no_park;
	err = tracepoint_probe_register(unspin_symbols.sched_wakeup, probe_sched_wakeup, NULL);
	if (err)
		goto no_probe;
	unspin_owners_begin();
	unspin_user_begin();
	unspin_host_tasks_begin(turn_length_us() * tsc_khz / 1000);
	unspin_weights_read();
	turn_started = unspin_now();
	turn_cycles = 0;
	WRITE_ONCE(running, true);
	compat_hrtimer_setup(&timer, turn, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	hrtimer_start(&timer, ns_to_ktime(FIRST_TURN_US * NSEC_PER_USEC),
		      HRTIMER_MODE_REL_HARD);
	return 0;

no_probe:
	unspin_park_detach();
no_park:
	switches_forget();
	tables_free();
	return err;
}

/* Nobody's turn: everybody may run. */
static void let_all_run(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&turns_lock, flags);
	turn_charge(unspin_now() - turn_started);
	rcu_read_lock();
	owners_change(false);
	rcu_read_unlock();
	while (host.vm_count)
		WRITE_ONCE(vm_at[--host.vm_count]->gang, false);
	host.vcpu_count = 0;
	turn_owned = false;
	raw_spin_unlock_irqrestore(&turns_lock, flags);
}

int unspin_turns_stop(void)
{
	int cpu, err;

	if (!running)
		return 0;
	hrtimer_cancel(&timer);
	unspin_user_end();
	WRITE_ONCE(running, false);
	let_all_run();
	switches_forget();
	tracepoint_probe_unregister(unspin_symbols.sched_wakeup, probe_sched_wakeup, NULL);
	tracepoint_synchronize_unregister();
	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&holes, cpu));
	let_all_run();	/* a hole may have been filled meanwhile */
	unspin_owners_wait();
	err = unspin_park_detach();
	tables_free();
	return err;
}

static bool any_wanted(void)
{
	struct unspin_vm *vm;
	bool any = false;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		any |= vm->in_turns && vm->set.coscheduling != UNSPIN_COSCHEDULING_NONE;
	rcu_read_unlock();
	return any;
}

int unspin_turns_update(void)
{
	bool wanted = any_wanted() && !broken;

	if (wanted && !running)
		return begin();
	if (!wanted && running)
		return unspin_turns_stop();
	return 0;
}

void unspin_turns_forget(const struct unspin_vm *vm)
{
	unsigned long flags;
	u32 i;

	raw_spin_lock_irqsave(&turns_lock, flags);
	/* The next turn begins with a new table; until then nobody is woken or let in by this one. */
	for (i = 0; i < host.vm_count; i++) {
		if (vm_at[i] != vm)
			continue;
		host.vm_count = host.vcpu_count = 0;
	}
	for (i = 0; i < host.cpu_count; i++) {
		struct unspin_cpu *on = per_cpu_ptr(&unspin_cpu, i);
		struct unspin_slot *filler = READ_ONCE(on->filler);

		if (on->owner == vm)
			WRITE_ONCE(on->owner, NULL);
		if (filler && filler->vm == vm)
			cmpxchg(&on->filler, filler, NULL);
	}
	raw_spin_unlock_irqrestore(&turns_lock, flags);
}

void unspin_turns_watch(void)
{
	u64 started = READ_ONCE(turn_started), now = unspin_now();

	lockdep_assert_held(&unspin_mutex);
	if (!running)
		return;
	unspin_weights_read();
	if (now < started || now - started < (u64)tsc_khz * STALL_MS)
		return;
	broken = true;
	unspin_fail_open(NULL, "turns have not changed for 500 ms: there are none until the module is loaded again");
	unspin_turns_stop();
}
