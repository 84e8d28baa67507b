/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Gangs: which VM has its turn on which pCPUs, so that the vCPUs of a VM run together.
 *
 * A *turn* is a span of time for the whole host. At its start pCPUs get *owners*: VMs whose vCPUs
 * spin (HIGH), or the *group* of all other VMs (LOW), whose vCPUs run as the scheduler places
 * them. vCPUs of other VMs stay off an owned pCPU. One of them may *fill* it while the owner has
 * nothing to run there.
 *
 * The VM that is *owed* most comes first. What a VM is owed is the sum of its vCPUs' parts minus the
 * time they got, fills included. A vCPU's part of a turn is what a fair scheduler would have given it:
 *  - If it is pinned: the time that all vCPUs got on its pCPU, divided by weight.
 *  - Otherwise vCPUs that may run on the same pCPUs form a *pool*. The time of a pool is the sum of
 *    what its vCPUs would have got if they were pinned. It is divided by weight, but no vCPU's part is
 *    longer than most of the turn: a fair scheduler moves vCPUs until each has its part, and none
 *    runs on two pCPUs.
 * Where no VM owns the pCPU, the group's vCPUs count as one: what they get there is charged to them in
 * proportion to their parts, whichever of them ran. Otherwise a VM that leaves its time to others of
 * the group would be owed this time by VMs outside the group. No vCPU is charged more than the turn,
 * because it could not have run for longer. So turns only move time: the sum of what all VMs are owed
 * is 0.
 *
 * A HIGH VM also has CPU time outside its turns, where it spins: what other VMs leave. If it has had as
 * much of it as a turn gives, and no turn for long, it comes before all others once. VMs that often sleep
 * and wake up want some pCPU whenever a turn begins, and are owed it. Without this rule a VM next to them
 * that needs all pCPUs would never have a turn. Its share does not grow: others are owed what the turn took.
 *
 * Other VMs follow in the same order. Each gets pCPUs that are left, if every vCPU of it that wants to
 * run finds one. When a LOW VM's turn comes, the group gets those of its vCPUs' pCPUs that are left.
 * The rest goes to sleeping vCPUs whose VM owns pCPUs already, in case they wake up. A pCPU without an
 * owner is left to the scheduler.
 *
 * A vCPU that has a pCPU for itself in a turn has it as its *target*. It stays where it is if possible,
 * unless that is the second thread of a core while its last-level cache has a whole core free.
 * Otherwise its target is a free pCPU of the last-level cache with most of its VM, else of that node,
 * else any; whole cores come before second threads. If none of a VM's vCPUs is alone on its pCPU, the VM
 * goes to one cache with room for all of it, if there is one. vCPUs of LOW VMs that share a pCPU are
 * spread over free ones. The policy only chooses; the caller moves vCPUs, or does not.
 *
 * A vCPU of a LOW VM that wakes up need not wait for the end of a turn if its VM is owed time, or if the
 * VM's own CPU time is *behind* its parts or equal to them: callers let it run for GANG_BACK_US in turns of
 * other VMs. So a VM that answers requests does so as without turns. What a VM is owed does not tell alone: one
 * that sleeps most of the time owes its share of what others of the group got. Nor does its own time: it may
 * have what light VMs of the group leave of their parts.
 *
 * A VM is *unplaced* if its vCPUs could not run together even on an empty host. It is LOW meanwhile.
 *
 * A vCPU is *held back* if it cannot use what it owns, because of a quota or for another reason. Its
 * part of the turn is what it got, and it owns nothing, as if it slept. It stays held back until the
 * scheduler runs it again, because in turns of other VMs it could not be seen that it still cannot run.
 *
 * ASMan (Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines", HPDC 2011) lets VMs run
 * together only while they synchronize. Turns for the whole host are from Ousterhout ("Scheduling
 * Techniques for Concurrent Systems", ICDCS 1982). What VMs are owed, the group and fills are new here.
 *
 * The caller keeps time, stops what must not run, and calls from one context at a time for given
 * arrays. Nothing here locks, allocates or reads a clock. Times are in any unit, but all in the same.
 */
#ifndef UNSPIN_POLICY_GANG_H
#define UNSPIN_POLICY_GANG_H

#include "types.h"

typedef __INT64_TYPE__ gang_s64;

#define GANG_NONE 0xffffffffu	/* no owner, or nothing to fill with */
#define GANG_LOW 0xfffffffeu	/* the group of the VMs that are LOW */

#define GANG_WEIGHT_MAX (1u << 20)		/* larger weights count as this, 0 as 1 */
#define GANG_TIME_MAX ((pol_u64)1 << 40)	/* longer times count as this */

/*
 * Share of a pCPU's time that tasks of the host use. At the first or more it has no turns; below the
 * second it has them again. A task that wants all it can get has more than the first beside up to seven
 * vCPUs. A task that uses less loses nothing in turns.
 */
#define GANG_USE_MOST_PERCENT 12
#define GANG_USE_AGAIN_PERCENT 6
/*
 * More in one turn counts as this. So up to 20 turns that tasks of the host take whole, such as those in
 * which a VM is created, take no turns away. A task with a larger share for long has more than the first.
 */
#define GANG_USE_TURN_MOST_PERCENT 25
/* Turns over which the mean is taken: after about this many a turn is forgotten. */
#define GANG_USE_TURNS 32

/* Turns without its own after which a HIGH VM may come first. */
#define GANG_APART_TURNS 8u
#define GANG_CLAMP_TURNS 2u	/* most turns that a VM is owed, or owes, per vCPU that wants to run */
#define GANG_POOLS_MAX 8u	/* vCPUs of further pools count as part of the last pool */
/* Passes that look for vCPUs above their limit. A vCPU found only later gets more. */
#define GANG_FILL_PASSES 8u
/*
 * The most that an unpinned vCPU is due, in eighths of the turn. With eight, a VM with as many vCPUs as
 * the host has pCPUs would have no turn beside a vCPU that is due a pCPU all the time.
 */
#define GANG_MOST_EIGHTHS 7u

/* Limits for callers. */
#define GANG_FIRST_TURN_US 1000u	/* length of the first turn */
#define GANG_PARK_MAX_MS 200u		/* longest time that a vCPU is kept from running */
#define GANG_BACK_US 3000u		/* CPU time in turns of other VMs that a vCPU has after it wakes up */
#define GANG_SPUN_WINDOWS 2u		/* a vCPU that ran for more PLE windows did more than spin */

struct gang_vm {
	gang_s64 owed;		/* initially 0, then set by the functions below */
	gang_s64 behind;	/* its vCPUs' parts minus their own CPU time; set likewise */
	pol_u64 apart;		/* CPU time while it was HIGH, since it last owned a pCPU; set likewise */
	pol_u32 first, count;	/* its vCPUs: vcpus[first] and the following */
	pol_u32 last_turn;	/* the last turn in which it owned a pCPU, initially 0; set by the functions below */
	pol_u8 high;		/* its vCPUs spin and should run together; set it between the two calls */
	pol_u8 unplaced;	/* too few pCPUs for it, so it counts as LOW; set by gang_turn() */
	pol_u8 apart_enough;	/* "apart" is as much as a turn gives; set by gang_account() */
	pol_u8 reserved;
	pol_u32 wanting;	/* how many of its vCPUs want to run; set by gang_account() */
	pol_u32 waited;		/* scratch */
};

struct gang_vcpu {
	pol_u64 got;		/* CPU time in the turn that ends */
	const pol_u64 *allowed;	/* bit n: it may run on pCPU n. NULL: only on "cpu" */
	pol_u32 weight;		/* its weight on a pCPU */
	pol_u32 cpu;		/* the pCPU it runs on, or waits for */
	pol_u32 target;		/* the pCPU it should run on, or GANG_NONE: set by gang_turn() */
	pol_u8 wants;		/* runs, waits for a pCPU, or is kept from running by a turn */
	pol_u8 held_back;	/* it could run, but its pCPU idled or had a filler; not run since */
	pol_u8 placed, pool;	/* scratch */
};

/*
 * "core", "cache" and "node" are the index of the first pCPU of the same core, last-level cache and
 * node. All 0: unknown. A number without a pCPU counts as 0.
 */
struct gang_cpu {
	pol_u64 time, weight;	/* scratch: of all vCPUs there */
	pol_u64 group_time, group_weight;	/* scratch: of those whose time belongs to the group */
	pol_u32 owner;		/* index of a VM, GANG_LOW or GANG_NONE: set by gang_turn() */
	pol_u32 vcpu;		/* the vCPU it is owned for, or GANG_NONE: set by gang_turn() */
	pol_u32 low_last_turn;	/* the last turn in which the group owned it */
	pol_u32 core, cache, node;
	pol_u8 usable;		/* 0: offline, or used by tasks of the host. It has no owner and is no target */
	pol_u8 reserved[3];
	/* Scratch, in the row of the first pCPU of a core, cache or node: free pCPUs and whole cores. */
	pol_u32 core_taken, cache_free, cache_whole, node_free, node_whole;
	pol_u32 placed, seen;	/* scratch */
};

/* Scratch: a time that is divided by weight, with an upper limit for each. */
struct gang_division {
	pol_u64 time, weight;	/* of all sharers, then of those up to the level */
	pol_u64 most;		/* the limit, which those heavier than the level get */
	pol_u64 heaviest, level, level_before;
	pol_u32 count, reserved;
};

/* Scratch: unpinned vCPUs that may run on the same pCPUs. */
struct gang_pool {
	pol_u64 set;			/* a number for the set of pCPUs; 0: no pool */
	struct gang_division all;	/* parts, by the vCPUs' weights */
	struct gang_division group;	/* what vCPUs of the group are charged, by their parts */
};

/* The use of a pCPU by tasks of the host. */
struct gang_use {
	gang_s64 of_host, of_all;	/* means of a turn */
	pol_u8 used;			/* 1: so high that the pCPU has no turns */
	pol_u8 reserved[7];
};

/* All VMs, vCPUs and pCPUs that take part. vCPUs on other pCPUs are left alone. */
struct gang_host {
	struct gang_vm *vms;
	struct gang_vcpu *vcpus;
	struct gang_cpu *cpus;
	pol_u32 *order;		/* scratch: of vm_count entries */
	pol_u64 *free;		/* scratch: a bit for each pCPU, of GANG_WORDS(cpu_count) entries */
	struct gang_pool *pools;	/* scratch: of GANG_POOLS_MAX entries */
	pol_u32 vm_count, vcpu_count, cpu_count;
	pol_u32 turn;		/* number of turns so far; set by gang_turn(), which wraps to 1 */
	pol_u32 free_count, whole_count;	/* scratch */
};

#define GANG_WORDS(cpus) (((cpus) + 63) / 64)

/* A parked vCPU that may fill a pCPU. */
struct gang_filler {
	gang_s64 owed;		/* what its VM is owed */
	pol_u32 vcpu;		/* the caller's own number */
	pol_u8 lock;		/* it waits for a lock of its guest, so it would only spin */
	pol_u8 reserved[3];
};

#define GANG_FILLERS_MAX 16u	/* most candidates that are considered */

/* Whether it has turns of its own, in which its vCPUs run together. Otherwise it is LOW. */
static inline pol_u8 gang_is_high(const struct gang_vm *vm)
{
	return vm->high && !vm->unplaced;
}

/* Whether a vCPU of it that wakes up may run in turns of other VMs for GANG_BACK_US, if it is LOW. */
static inline pol_u8 gang_may_come_back(const struct gang_vm *vm)
{
	return vm->owed > 0 || vm->behind >= 0;
}

/*
 * Call when a turn of this length has ended. Updates what VMs are owed, by what their vCPUs got, which
 * VMs were HIGH and who owned the pCPUs. A vCPU that wanted nothing and got nothing has no part. The part
 * of one that was held back is what it got. No VM is owed, owes, or is behind by more than GANG_CLAMP_TURNS
 * per vCPU that wants to run. If a VM wants nothing, both are halved, so that after a long sleep nothing
 * is left.
 */
void gang_account(struct gang_host *host, pol_u64 turn);

/*
 * Call when a turn starts. Sets the owner of each pCPU, the target of each vCPU, and which VMs are
 * unplaced. Returns 1, or 0 if no pCPU has an owner: no VM is HIGH, or no VM has a rival.
 *
 * The target of a vCPU is a pCPU that its VM owns, or that the group owns if its VM is LOW. It is usable,
 * and the vCPU may run there. vCPUs of HIGH VMs never share a target. A vCPU has no target if its VM has
 * no turn, or if no pCPU was left for it.
 *
 * Takes O(VMs log VMs + vCPUs + pCPUs) if each vCPU is alone on its pCPU. A vCPU that shares a pCPU adds
 * at most the free pCPUs that it may use. A VM none of whose vCPUs is alone adds all pCPUs.
 */
pol_u8 gang_turn(struct gang_host *host);

/* Whether vCPUs of a VM may run on a pCPU, other than as fillers. */
pol_u8 gang_may_run(const struct gang_host *host, pol_u32 vm, pol_u32 cpu);

/*
 * Chooses the vCPU that fills a pCPU whose owner has nothing to run there: an index into candidates, or
 * GANG_NONE. It is the one whose VM is owed most, of those that do not wait for a lock; of equals, the
 * first.
 */
pol_u32 gang_fill(const struct gang_filler *candidates, pol_u32 count);

/* Call when turns of about this length begin. Starts as if the host had used nothing so far. */
void gang_use_begin(struct gang_use *use, pol_u64 turn);

/*
 * Call when a turn of this length has ended, in which tasks of the host used "of_host" of the pCPU. A
 * negative value corrects an earlier one that was too large. Returns "used".
 *
 * In a turn one vCPU has a pCPU to itself. A task of the host that also wants to run there would get
 * half of the pCPU, instead of its part among all vCPUs there. And the vCPU would lose its pCPU during
 * its turn, which turns are to prevent.
 */
pol_u8 gang_use(struct gang_use *use, gang_s64 of_host, pol_u64 turn);

#endif
