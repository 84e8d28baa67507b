// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decides which vCPU leaves a CPU in a turn, which one is called to it, and which one fills it.
 *
 * The CPU decides this itself, in an interrupt: when it gets another owner, and when it goes idle
 * for any reason while it has an owner. The owner's vCPUs come first. If the owner has none for
 * this CPU, a vCPU of another VM may run here until it spins, or until one of the owner wakes up.
 *
 * It looks only at lists of single CPUs: its own, and those of a few others.
 */
#include <linux/percpu.h>
#include <linux/sched.h>

#include "../policy/gang.h"
#include "fail_open.h"
#include "hole.h"
#include "testing.h"
#include "turn.h"

#define CALLS_MAX 16u		/* called at a time, at most */
#define LOOKS_MAX 64u		/* parked vCPUs that are looked at per CPU, at most */
#define OTHER_LISTS_MAX 3u	/* of other CPUs, per look */

UNSPIN_TEST_PARAM(uint, looks_fewer, 0600, "fewer parked vCPUs that a CPU looks at, of 64");

static atomic64_t next_counted_tsc;	/* from when a list that is too long is counted again */

/* Result of a scan of lists: the vCPUs to call, and candidates to fill the CPU. */
struct found {
	const struct unspin_cpu *on;
	u32 cpu;
	bool idle;
	u32 looks;
	u32 calls;
	u32 fillers;
	u32 ready;	/* candidates that do not wait for a lock */
	struct unspin_slot *call[CALLS_MAX];
	struct unspin_slot *filler[GANG_FILLERS_MAX];
	struct gang_filler candidate[GANG_FILLERS_MAX];
};

static u32 looks_most(void)
{
	return LOOKS_MAX - min(unspin_test_value(looks_fewer), LOOKS_MAX);
}

static bool may_come(const struct unspin_slot *slot, u32 cpu)
{
	const struct task_struct *task = READ_ONCE(slot->held);

	return task && cpumask_test_cpu(cpu, task->cpus_ptr);
}

static bool collect(struct unspin_slot *slot, void *data)
{
	struct found *found = data;
	u16 target = READ_ONCE(slot->turn.target);

	if (++found->looks > looks_most())
		return false;
	if (!unspin_turn_is_asleep(slot))
		return true;
	if (unspin_may_run(slot, found->on)) {
		/* A vCPU that has another target is called there; one that cannot come here, where it is parked. */
		if (READ_ONCE(slot->turn.parked_on) != found->cpu && !may_come(slot, found->cpu))
			return true;
		if (target == UNSPIN_NO_CPU || target == found->cpu || !READ_ONCE(found->on->owner))
			found->call[found->calls++] = slot;
		return found->calls < CALLS_MAX;
	}
	if (found->fillers < GANG_FILLERS_MAX && may_come(slot, found->cpu)) {
		bool lock = unspin_turn_waits_for_lock(slot);

		found->ready += !lock;
		found->filler[found->fillers] = slot;
		found->candidate[found->fillers++] = (struct gang_filler){
			.owed = READ_ONCE(slot->vm->turn_owed_cycles),
			.lock = lock,
		};
	}
	return true;
}

/* Whether the vCPU that runs here must leave; if so, asks it to. */
static bool leaves(struct unspin_cpu *on)
{
	struct unspin_slot *cur = READ_ONCE(on->cur), *target = READ_ONCE(on->target);

	if (!cur)
		return false;
	/* It fills this CPU, and the vCPU that this CPU is for has come back. */
	if (target && target != cur && unspin_turn_is_asleep(target) && READ_ONCE(on->filler) == cur)
		cmpxchg(&on->filler, cur, NULL);
	if (unspin_may_stay(cur, on))
		return false;
	unspin_turn_ask(cur);
	return true;
}

/* The CPU that a vCPU is called to: the first gets this CPU, if it is idle and has an owner. */
static u32 called_to(const struct found *found, u32 i)
{
	bool is_for = READ_ONCE(found->on->owner) || READ_ONCE(found->on->target) == found->call[i];

	return !i && found->idle && is_for ? found->cpu : UNSPIN_NO_CPU;
}

/*
 * Threads that may run elsewhere are called only once this CPU is idle. Earlier, the scheduler would
 * move them to another CPU. Pinned threads queue here, and run as soon as the rival leaves.
 */
static bool call_owners(const struct found *found, bool later)
{
	bool any = false;
	u32 i;

	for (i = 0; i < found->calls; i++) {
		const struct task_struct *task = READ_ONCE(found->call[i]->held);

		if (later && task && !unspin_is_pinned(task))
			continue;
		unspin_turn_call(found->call[i], called_to(found, i));
		any = true;
	}
	return any;
}

/* Scans lists of other CPUs until it finds a vCPU, first the list of the offered vCPU. */
static void collect_elsewhere(struct found *found)
{
	u32 tries, cpu = unspin_turn_offered();

	if (cpu != UNSPIN_NO_CPU && cpu != found->cpu) {
		found->looks = 0;
		unspin_turn_each_parked(cpu, collect, found);
	}
	cpu = found->cpu;
	for (tries = 0; tries < OTHER_LISTS_MAX && !found->calls && !found->ready; tries++) {
		found->looks = 0;
		cpu = unspin_turn_parked_after(cpu);
		if (cpu >= nr_cpu_ids || cpu == found->cpu)
			return;
		unspin_turn_each_parked(cpu, collect, found);
	}
}

/*
 * Whether a quota or the like holds a vCPU back: it should run here and is runnable, but the CPU stays
 * idle.
 */
static bool is_held_back(const struct unspin_slot *slot, u32 cpu)
{
	const struct task_struct *task = slot ? READ_ONCE(slot->held) : NULL;

	return task && !unspin_turn_is_asleep(slot) && task_cpu(task) == cpu && task_is_running(task) &&
	       !need_resched();
}

/* Calls all vCPUs that were found. The CPU has no owner. */
static void call_all(const struct found *found)
{
	u32 i;

	for (i = 0; i < found->calls; i++)
		unspin_turn_call(found->call[i], UNSPIN_NO_CPU);
	for (i = 0; i < found->fillers; i++)
		unspin_turn_call(found->filler[i], i ? UNSPIN_NO_CPU : found->cpu);
}

/* Fills an idle CPU whose list has no vCPU of its owner. */
static void fill(struct unspin_cpu *on, struct found *found)
{
	const void *owner = READ_ONCE(on->owner);
	struct unspin_slot *filler = READ_ONCE(on->filler), *target = READ_ONCE(on->target);
	u32 best;

	if (is_held_back(target, found->cpu)) {
		unspin_turn_held_back(target, on, owner);
		if (!found->fillers)
			collect_elsewhere(found);
		call_all(found);
		return;
	}
	if (is_held_back(filler, found->cpu)) {
		unspin_turn_fills_no_more(filler);
		cmpxchg(&on->filler, filler, NULL);	/* in case it was let in twice */
		filler = NULL;
	}
	if (filler) {	/* it is on its way, or could not come */
		if (unspin_turn_is_asleep(filler))
			unspin_turn_call(filler, found->cpu);
		return;
	}
	if (!found->ready)
		collect_elsewhere(found);
	if (found->calls) {
		found->calls = 1;
		call_owners(found, false);
		return;
	}
	while ((best = gang_fill(found->candidate, found->fillers)) != GANG_NONE) {
		if (unspin_turn_fill(found->filler[best], found->cpu))
			return;
		found->candidate[best].lock = 1;	/* another CPU took it */
	}
}

static void first_is(struct found *found, struct unspin_slot *slot)
{
	u32 last = min(found->calls, CALLS_MAX - 1);

	found->call[last] = found->call[0];
	found->call[0] = slot;
	found->calls = last + 1;
}

/* Counts a list that is too long at most once per second, and logs the first. */
static void count_left_out(void)
{
	u64 now = unspin_now(), next = atomic64_read(&next_counted_tsc), second = (u64)tsc_khz * MSEC_PER_SEC;

	if (unspin_time_left(next, now, second) || atomic64_cmpxchg(&next_counted_tsc, next, now + second) != next)
		return;
	atomic64_inc(&unspin_fail_open_total);
	pr_warn_once("more than 64 vCPUs wait for turns on one CPU: some wait until others have left it\n");
}

void unspin_hole_look(void)
{
	struct unspin_cpu *on = this_cpu_ptr(&unspin_cpu);
	struct found found = { .on = on, .cpu = smp_processor_id(), .idle = is_idle_task(current) };
	struct unspin_slot *target;
	bool later;

	unspin_turn_hole(found.idle && READ_ONCE(on->owner));
	rcu_read_lock();	/* keeps slots and their threads */
	later = leaves(on) || (!found.idle && !READ_ONCE(on->cur));
	target = READ_ONCE(on->target);
	unspin_turn_each_parked(found.cpu, collect, &found);
	if (found.looks > looks_most())
		count_left_out();
	/* The target vCPU of this CPU may be parked on another CPU: it is called once this CPU is idle. */
	if (target && found.idle && unspin_turn_is_asleep(target) && unspin_may_run(target, on) &&
	    may_come(target, found.cpu))
		first_is(&found, target);
	later = later && READ_ONCE(on->owner);
	if (call_owners(&found, later)) {
		if (found.calls == CALLS_MAX)	/* there may be more */
			unspin_turn_poke(found.cpu);
	} else if (found.idle && READ_ONCE(on->owner)) {
		fill(on, &found);
	}
	rcu_read_unlock();
}
