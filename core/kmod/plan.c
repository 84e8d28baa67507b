// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plans a turn: accounts what each vCPU got, lets policy/gang_turn.c choose the owner of each
 * CPU, and notifies the CPUs (turn.h). Interrupts are on throughout. The tables have a row for
 * each VM and each vCPU. They are kept from turn to turn, and made anew when VMs or vCPUs come
 * and go.
 *
 * Rows point to VMs and slots, which are freed a grace period after they leave the lists. A VM that
 * ends changes unspin_census first. So if the planner finds the census unchanged under RCU, its rows
 * are valid as long as it holds RCU.
 */
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/vmalloc.h>

#include "../policy/gang.h"
#include "compat/compat.h"
#include "fail_open.h"
#include "host_tasks.h"
#include "plan.h"
#include "settings.h"
#include "testing.h"
#include "turn.h"
#include "wanted.h"
#include "weight.h"

#define VMS_MAX UNSPIN_WANTED_VMS_MAX
#define VCPUS_MAX 4096u
#define WEIGHTS_MS 250u		/* how often weights are read */

UNSPIN_TEST_PARAM(uint, plan_vms_most, 0600, "VMs that turns are planned for, instead of 512, up to that");

static struct gang_host host;
static struct gang_pool pools[GANG_POOLS_MAX];
static struct unspin_vm **vm_at;
static struct unspin_slot **slot_at;
static struct cpumask *told;		/* CPUs to notify of a change */
static u64 turn_started, weights_read;
static bool turn_owned;			/* a CPU had an owner in the turn that ends */
static int census;			/* unspin_census when the tables were made */
static u8 why[VMS_MAX];			/* enum unspin_refusal: vm->refused in the turn that begins */
static bool in_bounds;
static u32 cpus_known;			/* CPUs online when the topology was read */

/* --- tables --- */

/* It is in no table: its vCPUs run as the scheduler places them. */
static void leave_out(struct unspin_vm *vm)
{
	WRITE_ONCE(vm->refused, UNSPIN_REFUSED_BOUNDS);
	WRITE_ONCE(vm->in_turns, 0);
	WRITE_ONCE(vm->judged, 0);
	WRITE_ONCE(vm->gang, 0);
	unspin_turn_call_vm(vm);
}

/* Adds a VM to the tables. Returns false if there is no room for all of it. */
static bool vm_enter(struct unspin_vm *vm)
{
	u32 first = host.vcpu_count, count = first;
	struct unspin_slot *slot;

	if (host.vm_count >= min(unspin_test_value(plan_vms_most) ?: VMS_MAX, VMS_MAX))
		return false;
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		if (count == VCPUS_MAX)
			return false;
		host.vcpus[count] = (struct gang_vcpu){ .cpu = GANG_NONE };
		slot_at[count++] = slot;
	}
	host.vcpu_count = count;
	host.vms[host.vm_count] = (struct gang_vm){
		.owed = vm->turn_owed_cycles,
		.behind = vm->turn_behind_cycles,
		.apart = vm->turn_apart_cycles,
		.last_turn = vm->turn_last,
		.first = first,
		.count = count - first,
	};
	vm_at[host.vm_count++] = vm;
	return true;
}

/* The oldest VMs come first, so that whoever makes many new ones takes no turns from others. */
static void tables_update(void)
{
	int now = atomic_read_acquire(&unspin_census);	/* read before the lists are walked */
	struct unspin_vm *vm;
	bool fits = true;

	if (now == census)
		return;
	census = now;
	host.vm_count = host.vcpu_count = 0;
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (vm_enter(vm))
			continue;
		leave_out(vm);
		fits = false;
	}
	if (!fits && in_bounds)
		unspin_fail_open(NULL, "new VMs have no turns: there are more VMs or vCPUs than turns are planned for");
	in_bounds = fits;
	weights_read = 0;	/* the weights of new ones are unknown */
}

/* Notes for each CPU the first CPU of its core, last-level cache and node. */
static void topology_read(void)
{
	u32 cpu, other;

	if (cpus_known == num_online_cpus())
		return;
	cpus_known = num_online_cpus();
	for_each_possible_cpu(cpu) {
		struct gang_cpu *row = &host.cpus[cpu];

		row->core = min(cpumask_first(topology_sibling_cpumask(cpu)), cpu);
		row->cache = row->node = cpu;
		for_each_possible_cpu(other) {
			if (other >= cpu)
				break;
			if (row->cache == cpu && compat_cache_id(other) == compat_cache_id(cpu))
				row->cache = other;
			if (row->node == cpu && cpu_to_node(other) == cpu_to_node(cpu))
				row->node = other;
		}
	}
}

/* --- what the policy sees --- */

/* Whether something, such as a quota, has held it back since it last ran. */
static bool is_held_back(const struct unspin_slot *slot)
{
	u64 out = READ_ONCE(slot->out_tsc);

	return out && READ_ONCE(slot->turn.held_back_tsc) == out;
}

/* "took_part": the VM did in the turn that ends. If not, what it had then is not counted. */
static void vcpu_look(struct gang_vcpu *row, struct unspin_slot *slot, struct task_struct *task, bool took_part,
		      u64 now)
{
	u64 ran = unspin_turn_ran_cycles(slot, now);
	bool parked = unspin_turn_is_asleep(slot);

	row->got = took_part && ran > slot->turn.seen_cycles ? ran - slot->turn.seen_cycles : 0;
	slot->turn.seen_cycles = max(ran, slot->turn.seen_cycles);
	row->cpu = task_cpu(task);
	row->weight = READ_ONCE(slot->turn.weight) ?: UNSPIN_WEIGHT_DEFAULT;
	row->wants = parked || task_is_running(task);
	row->held_back = row->wants && !parked && is_held_back(slot);
	row->allowed = (const pol_u64 *)cpumask_bits(&task->cpus_mask);
}

static enum unspin_refusal refused_by_threads(const struct unspin_vm *vm)
{
	struct unspin_slot *slot;

	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		const struct task_struct *task = READ_ONCE(slot->held);

		if (!task)
			continue;
		if (unspin_is_realtime(task))
			return UNSPIN_REFUSED_REALTIME;
#ifdef SCHED_EXT
		if (READ_ONCE(task->policy) == SCHED_EXT)
			return UNSPIN_REFUSED_SCHED_EXT;
#endif
#ifdef CONFIG_SCHED_CORE
		if (READ_ONCE(task->core_cookie))
			return UNSPIN_REFUSED_CORE_SCHEDULING;
#endif
	}
	return UNSPIN_REFUSED_NONE;
}

/* Why the VM takes no part in turns. */
static enum unspin_refusal refused(const struct unspin_vm *vm)
{
	if (vm->fail_open)
		return UNSPIN_REFUSED_LEFT_TO_KVM;
	if (!READ_ONCE(vm->waits_for_turns))
		return UNSPIN_REFUSED_NOT_WAITING;
	return READ_ONCE(vm->refused_until_set) ?: refused_by_threads(vm);
}

/* Lets the VM take part in turns, or no longer: then its parked vCPUs may run. */
static void part_take(struct unspin_vm *vm, enum unspin_refusal refused)
{
	bool had = vm->in_turns;

	WRITE_ONCE(vm->in_turns, refused == UNSPIN_REFUSED_NONE);
	/* It may have been refused at this very moment; the refusal stays. */
	if (READ_ONCE(vm->refused_until_set))
		WRITE_ONCE(vm->in_turns, 0);
	if (had && !vm->in_turns)
		unspin_turn_call_vm(vm);
}

static void vm_look(u32 i, u64 now)
{
	struct gang_vm *row = &host.vms[i];
	struct unspin_vm *vm = vm_at[i];
	bool took_part = vm->in_turns;
	u32 v;

	why[i] = refused(vm);
	part_take(vm, why[i]);
	/* A scheduler of sched_ext may make turns itself, and read "vcrd". */
	WRITE_ONCE(vm->judged, vm->in_turns || refused_by_threads(vm) == UNSPIN_REFUSED_SCHED_EXT);
	row->high = READ_ONCE(vm->gang);	/* in the turn that ends */
	unspin_wanted_vm(vm, i);
	for (v = row->first; v < row->first + row->count; v++) {
		struct task_struct *task = READ_ONCE(slot_at[v]->held);

		if (task && vm->judged) {
			vcpu_look(&host.vcpus[v], slot_at[v], task, took_part, now);
			unspin_wanted_vcpu(slot_at[v], i);
		}
		if (!task || !vm->in_turns)
			host.vcpus[v] = (struct gang_vcpu){ .cpu = GANG_NONE };
	}
}

static void host_look(u64 now)
{
	u32 i;

	for (i = 0; i < host.vm_count; i++)
		vm_look(i, now);
	topology_read();
	for (i = 0; i < host.cpu_count; i++)
		host.cpus[i].usable = cpu_active(i) && !unspin_host_tasks_use(i);
}

/* --- a turn ends, another begins --- */

/* Charges the turn to each VM that owned at least one CPU in it. */
static void turn_charge(u64 cycles)
{
	u32 i;

	for (i = 0; i < host.vm_count; i++)
		if (turn_owned && vm_at[i]->gang && vm_at[i]->turn_last == host.turn)
			vm_at[i]->turn_cycles += cycles;
}

/*
 * Chooses the gangs of the next turn: VMs that want to run together, and whose vCPUs reach their
 * target CPUs.
 */
static void gangs_choose(u64 now)
{
	u32 i;

	for (i = 0; i < host.vm_count; i++) {
		struct unspin_vm *vm = vm_at[i];
		bool wanted = vm->in_turns && READ_ONCE(vm->gang_wanted);

		host.vms[i].high = wanted && !unspin_time_left(READ_ONCE(vm->missed_until_tsc), now,
							       (u64)tsc_khz * UNSPIN_MISSED_PAUSE_MS);
		if (wanted && !host.vms[i].high)
			why[i] = UNSPIN_REFUSED_MISSED;
	}
}

static void vm_publish(u32 i)
{
	const struct gang_vm *row = &host.vms[i];
	struct unspin_vm *vm = vm_at[i];

	if (row->high && row->unplaced)
		why[i] = UNSPIN_REFUSED_UNPLACED;
	WRITE_ONCE(vm->refused, why[i]);
	WRITE_ONCE(vm->gang, gang_is_high(row));
	WRITE_ONCE(vm->turn_owed_cycles, row->owed);
	vm->turn_behind_cycles = row->behind;
	WRITE_ONCE(vm->over_share, !gang_may_come_back(row));
	vm->turn_apart_cycles = row->apart;
	if (row->last_turn != vm->turn_last)
		vm->turns++;
	vm->turn_last = row->last_turn;
}

static const void *owner_at(u32 cpu)
{
	u32 owner = host.cpus[cpu].owner;

	if (owner == GANG_LOW)
		return unspin_turn_of_others;
	return owner < host.vm_count ? vm_at[owner] : NULL;
}

/* Sets its target CPU. A vCPU on the target of a sibling is moved: it is parked, then called. */
static void vcpu_publish(u32 v)
{
	const struct gang_vcpu *row = &host.vcpus[v];
	struct unspin_turn *turn = &slot_at[v]->turn;
	bool here = row->target == GANG_NONE || row->target == row->cpu || row->cpu >= host.cpu_count;

	WRITE_ONCE(turn->target, row->target == GANG_NONE ? UNSPIN_NO_CPU : row->target);
	WRITE_ONCE(turn->moves, !here && row->wants && !row->held_back && !unspin_turn_is_asleep(slot_at[v]) &&
				unspin_turn_is_its(slot_at[v], owner_at(row->cpu)));
}

/*
 * Notes the CPUs that a vCPU must leave or be called to even though the CPU's owner stays the same.
 */
static void vcpu_tell(u32 v)
{
	struct unspin_slot *slot = slot_at[v];
	u32 cpu = host.vcpus[v].cpu;
	u16 target = READ_ONCE(slot->turn.target);

	if (cpu >= host.cpu_count || !host.vcpus[v].wants)
		return;
	if (unspin_turn_is_asleep(slot)) {
		if (!cpu_online(slot->turn.parked_on))
			unspin_turn_call(slot, UNSPIN_NO_CPU);
		cpumask_set_cpu(slot->turn.parked_on, told);
		if (target != UNSPIN_NO_CPU)
			cpumask_set_cpu(target, told);
	} else if (!unspin_may_stay(slot, per_cpu_ptr(&unspin_cpu, cpu))) {
		cpumask_set_cpu(cpu, told);
	}
}

static bool is_left(u32 cpu)
{
	const struct gang_cpu *row = &host.cpus[cpu];

	return row->owner == GANG_NONE && row->usable && row->vcpu == GANG_NONE;
}

/*
 * Lets each CPU without an owner call one vCPU that is parked on another VM's CPU and has no target
 * in this turn.
 */
static void left_cpus_call(void)
{
	u32 v, cpu = 0;

	for (v = 0; v < host.vcpu_count; v++) {
		const struct gang_vcpu *row = &host.vcpus[v];

		if (!row->allowed || row->target != GANG_NONE || !unspin_turn_is_asleep(slot_at[v]))
			continue;
		while (cpu < host.cpu_count && !is_left(cpu))
			cpu++;
		if (cpu == host.cpu_count)
			return;
		if (cpumask_test_cpu(cpu, to_cpumask((unsigned long *)row->allowed)))
			host.cpus[cpu++].vcpu = v;
	}
}

/* Gives the policy's plan to the CPUs, to all at the same time. Under RCU. */
static void publish(bool owned)
{
	u32 i, vcpu;

	cpumask_clear(told);
	for (i = 0; i < host.vm_count; i++)
		vm_publish(i);
	for (i = 0; i < host.vcpu_count; i++)
		vcpu_publish(i);
	if (owned)
		left_cpus_call();
	for (i = 0; i < host.cpu_count; i++) {
		vcpu = host.cpus[i].vcpu;
		if (!cpu_possible(i))
			continue;
		if (unspin_turn_give(i, owned ? owner_at(i) : NULL,
				     owned && vcpu < host.vcpu_count ? slot_at[vcpu] : NULL))
			cpumask_set_cpu(i, told);
	}
	for (i = 0; i < host.vcpu_count; i++)
		vcpu_tell(i);
	preempt_disable();
	unspin_turn_tell(told);
	preempt_enable();
}

/*
 * The longest turn for which no vCPU waits longer than half of the time limit: by how many want a CPU on the
 * average, and on the CPU with the most vCPUs, which may be pinned there.
 */
static u64 turn_most_us(void)
{
	u32 i, wanting = 0, usable = 0, most = 1;

	for (i = 0; i < host.vm_count; i++)
		wanting += host.vms[i].wanting;
	for (i = 0; i < host.cpu_count; i++) {
		usable += host.cpus[i].usable;
		host.cpus[i].seen = 0;
	}
	for (i = 0; i < host.vcpu_count; i++)
		if (host.vcpus[i].wants && host.vcpus[i].cpu < host.cpu_count)
			most = max(most, ++host.cpus[host.vcpus[i].cpu].seen);
	return GANG_PARK_MAX_MS * USEC_PER_MSEC / (2 * max(most, wanting / max(usable, 1u) + 1));
}

/* The length that the VM with the first claim asks for, within bounds. */
static u64 turn_length_us(void)
{
	u64 us = unspin_settings_of(NULL)->number[UNSPIN_N_TURN];
	gang_s64 most = 0;
	u32 i;

	for (i = 0; i < host.vm_count; i++) {
		if (!vm_at[i]->gang || vm_at[i]->turn_last != host.turn || host.vms[i].owed < most)
			continue;
		most = host.vms[i].owed;
		us = vm_at[i]->set.number[UNSPIN_N_TURN];
	}
	return max_t(u64, min(us, turn_most_us()), UNSPIN_TURN_LEAST_US);
}

static void weights_update(u64 now)
{
	if (weights_read && now - weights_read < (u64)tsc_khz * WEIGHTS_MS)
		return;
	unspin_weights_read(slot_at, host.vcpu_count);
	weights_read = now;
}

u64 unspin_plan_turn(void)
{
	u64 now = unspin_now(), us;

	rcu_read_lock();
	tables_update();
	turn_charge(now - turn_started);
	unspin_host_tasks_judge();
	weights_update(now);
	host_look(now);
	gang_account(&host, now - turn_started);
	unspin_wanted_judge(vm_at, host.vm_count);
	gangs_choose(now);
	turn_owned = gang_turn(&host);
	publish(turn_owned);
	us = turn_length_us();
	rcu_read_unlock();
	turn_started = now;
	unspin_host_tasks_spare(unspin_now() - now);
	return us;
}

/* --- begun and ended --- */

void unspin_plan_end(void)
{
	unspin_weights_end();
	kvfree(vm_at);
	kvfree(slot_at);
	kfree(told);
	vfree(host.vms);
	vfree(host.vcpus);
	vfree(host.cpus);
	vfree(host.order);
	vfree(host.free);
	memset(&host, 0, sizeof(host));
	vm_at = NULL;
	slot_at = NULL;
	told = NULL;
}

int unspin_plan_begin(void)
{
	host.vms = vcalloc(VMS_MAX, sizeof(*host.vms));
	host.vcpus = vcalloc(VCPUS_MAX, sizeof(*host.vcpus));
	host.cpus = vcalloc(nr_cpu_ids, sizeof(*host.cpus));
	host.order = vcalloc(VMS_MAX, sizeof(*host.order));
	host.free = vcalloc(GANG_WORDS(nr_cpu_ids), sizeof(*host.free));
	vm_at = kvcalloc(VMS_MAX, sizeof(*vm_at), GFP_KERNEL);
	slot_at = kvcalloc(VCPUS_MAX, sizeof(*slot_at), GFP_KERNEL);
	told = kzalloc(sizeof(*told), GFP_KERNEL);
	host.pools = pools;
	host.cpu_count = nr_cpu_ids;
	census = atomic_read(&unspin_census) - 1;	/* so that the tables are made */
	in_bounds = true;
	turn_owned = false;
	cpus_known = 0;
	weights_read = 0;
	if (host.vms && host.vcpus && host.cpus && host.order && host.free && vm_at && slot_at && told &&
	    !unspin_weights_begin(VCPUS_MAX)) {
		unspin_host_tasks_begin(turn_length_us() * tsc_khz / 1000);
		turn_started = unspin_now();
		return 0;
	}
	unspin_plan_end();
	return -ENOMEM;
}
