/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Gangs: whose turn it is on which pCPUs, so that the vCPUs of a VM run together.
 *
 * A turn is a span of time for the whole host. At its start pCPUs get owners: VMs whose
 * vCPUs spin (HIGH), or the group of all other VMs (LOW), whose vCPUs run as the scheduler
 * has them. While a pCPU is owned, vCPUs of rivals stay off it. One of them may fill it
 * while the owner has nothing to run there.
 *
 * The VM that is owed most comes first. A vCPU's part of a turn is what a fair scheduler would have
 * given it: the time that all vCPUs on its pCPU got, by weight, if it is pinned there. Others form
 * pools: vCPUs that may run on the same pCPUs. The time of a pool is the sum of what its vCPUs would have
 * got were they pinned. It is divided by weight, but no vCPU's part is longer than most of the turn:
 * a fair scheduler moves vCPUs until each has its part, and none is on two pCPUs. What a VM is owed is
 * the sum of its vCPUs' parts less the time they got, fills included. Where no VM owns the pCPU, the
 * group's vCPUs count as one: what they get there is theirs in proportion to their parts, whoever of
 * them had it. Else a VM that leaves its time to others of the group would be owed it again, by VMs
 * outside. But no vCPU counts as having had more than the turn: one that ran all the time had no more
 * to take. So turns only move time: what all are owed adds up to 0.
 *
 * Others come after the first in the same order, each on pCPUs that are left, if each of its
 * vCPUs that wants to run finds one. When it is a LOW VM's turn, the group owns those of its
 * vCPUs' pCPUs that are left. What nobody takes goes to vCPUs that sleep and whose VM owns pCPUs
 * already, for when they wake. A pCPU that nobody owns is left to the scheduler.
 *
 * A vCPU that has a pCPU for itself in a turn has it as its target. It stays where it is if it can,
 * unless that is a core's second thread while the last-level cache has a whole core free. Else its
 * target is a free pCPU: of the last-level cache where most of its VM are, else of that node, else any;
 * of these a whole core before a second thread. A VM none of whose vCPUs is alone on its pCPU goes to
 * one cache with room for all of it, if there is one. vCPUs of LOW VMs that share a pCPU are spread over
 * free ones. The policy only says where: the caller moves, or does not.
 *
 * A VM that could not have its vCPUs run together on an empty host is "unplaced": it is LOW as long as
 * that is so.
 *
 * A vCPU that cannot use what it owns, because of a quota or for another cause, is "held back". Its part
 * of the turn is what it got, and it owns nothing: it is as one that sleeps. It is so until the scheduler
 * chooses it again: in turns of others nobody could see that it still cannot run.
 *
 * That VMs which synchronize should run together, and only while they do, is ASMan's (Weng,
 * Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines", HPDC 2011); turns for
 * the whole host are Ousterhout's ("Scheduling Techniques for Concurrent Systems", ICDCS
 * 1982). What is owed, the group and fills are ours.
 *
 * The caller keeps time, stops what must not run, and calls in from one context at a time
 * for given arrays. Nothing here locks, allocates or reads a clock. Times are in any one unit.
 */
#ifndef UNSPIN_POLICY_GANG_H
#define UNSPIN_POLICY_GANG_H

#include "types.h"

typedef __INT64_TYPE__ gang_s64;

#define GANG_NONE 0xffffffffu	/* nobody owns the pCPU, or nobody may fill it */
#define GANG_LOW 0xfffffffeu	/* the group of the VMs that are LOW */

#define GANG_WEIGHT_MAX (1u << 20)		/* larger weights count as this, 0 as 1 */
#define GANG_TIME_MAX ((pol_u64)1 << 40)	/* longer times count as this */

/*
 * Of a pCPU's time, by tasks of the host: from the first on it has no turns, below the second it has
 * them again. A task that takes all it can get has more than the first beside up to seven vCPUs; what
 * takes less loses nothing in turns.
 */
#define GANG_USE_MOST_PERCENT 12
#define GANG_USE_AGAIN_PERCENT 6
/* The mean forgets a turn in about so many others. */
#define GANG_USE_TURNS 32

#define GANG_CLAMP_TURNS 2u	/* for each vCPU that wants to run nobody is owed, or owes, more turns */
#define GANG_POOLS_MAX 8u	/* vCPUs of further pools count as the last's */
/* So often it is looked who would get more than is a vCPU's. Who is found later gets more. */
#define GANG_FILL_PASSES 8u
/*
 * Of the turn, the most that an unpinned vCPU is due. With all eight a VM that has as many vCPUs as the
 * host has pCPUs would have no turn beside a vCPU that is due a pCPU all the time.
 */
#define GANG_MOST_EIGHTHS 7u

/* What callers keep to. */
#define GANG_FIRST_TURN_US 1000u	/* length of the first turn */
#define GANG_PARK_MAX_MS 200u		/* nobody is kept from running for longer */
#define GANG_SPUN_WINDOWS 2u		/* who has run for more PLE windows than these did not just spin */

struct gang_vm {
	gang_s64 owed;		/* 0 at first, then kept by the calls below */
	pol_u32 first, count;	/* its vCPUs: vcpus[first] and those that follow */
	pol_u32 last_turn;	/* the last turn it owned a pCPU in, 0 at first; kept likewise */
	pol_u8 high;		/* its vCPUs spin, and should run together; set between the two calls */
	pol_u8 unplaced;	/* but there is no pCPU for each: it counts as LOW; set by gang_turn() */
	pol_u8 reserved[2];
	pol_u32 wanting;	/* how many of its vCPUs want to run; set by gang_account() */
	pol_u32 waited;		/* scratch */
};

struct gang_vcpu {
	pol_u64 got;		/* CPU time in the turn that ends */
	const pol_u64 *allowed;	/* bit n: may run on pCPU n. NULL: only where it is */
	pol_u32 weight;		/* of its part of a pCPU */
	pol_u32 cpu;		/* the pCPU it runs on, or waits for */
	pol_u32 target;		/* the pCPU it should run on, or GANG_NONE: set by gang_turn() */
	pol_u8 wants;		/* runs, waits for a pCPU, or is kept from running by a turn */
	pol_u8 held_back;	/* but its pCPU idled or had a filler though it might run; not chosen since */
	pol_u8 placed, pool;	/* scratch */
};

/*
 * "core", "cache" and "node" are the index of the first pCPU of the same core, last-level cache and
 * node. Where all are 0, nothing is known. A number that is no pCPU's counts as 0.
 */
struct gang_cpu {
	pol_u64 time, weight;	/* scratch: of all vCPUs there */
	pol_u64 group_time, group_weight;	/* scratch: of those whose time is the group's */
	pol_u32 owner;		/* index of a VM, GANG_LOW or GANG_NONE: set by gang_turn() */
	pol_u32 vcpu;		/* the vCPU it is owned for, or GANG_NONE: set likewise */
	pol_u32 low_last_turn;	/* the last turn the group owned it in, as of a VM */
	pol_u32 core, cache, node;
	pol_u8 usable;		/* 0: offline, or tasks of the host use it. Nobody owns it, or is sent there */
	pol_u8 reserved[3];
	/* Scratch, in the row of the first pCPU of each: what is free, in pCPUs and in whole cores. */
	pol_u32 core_taken, cache_free, cache_whole, node_free, node_whole;
	pol_u32 placed, seen;	/* scratch */
};

/* Scratch: a time that is divided by weight, but nobody gets more than the most. */
struct gang_division {
	pol_u64 time, weight;	/* of all who share it, then of those up to the level */
	pol_u64 most;		/* heavier ones than the level get it */
	pol_u64 heaviest, level, level_before;
	pol_u32 count, reserved;
};

/* Scratch: vCPUs that are not pinned, and may run on the same pCPUs. */
struct gang_pool {
	pol_u64 set;			/* stands for these pCPUs; 0: there is no such pool */
	struct gang_division all;	/* parts, by the vCPUs' weights */
	struct gang_division group;	/* what those whose time is the group's are charged, by their parts */
};

/* What tasks of the host use of a pCPU. */
struct gang_use {
	gang_s64 of_host, of_all;	/* means of a turn */
	pol_u8 used;			/* so much that the pCPU has no turns */
	pol_u8 reserved[7];
};

/* All VMs, vCPUs and pCPUs that take part. A vCPU on any other pCPU is left alone. */
struct gang_host {
	struct gang_vm *vms;
	struct gang_vcpu *vcpus;
	struct gang_cpu *cpus;
	pol_u32 *order;		/* scratch: of vm_count entries */
	pol_u64 *free;		/* scratch: a bit for each pCPU, of GANG_WORDS(cpu_count) entries */
	struct gang_pool *pools;	/* scratch: of GANG_POOLS_MAX entries */
	pol_u32 vm_count, vcpu_count, cpu_count;
	pol_u32 turn;		/* how many there were; kept by gang_turn(), which begins anew at 1 */
	pol_u32 free_count, whole_count;	/* scratch */
};

#define GANG_WORDS(cpus) (((cpus) + 63) / 64)

/* A vCPU that is parked on a pCPU, and may be let in to fill. */
struct gang_filler {
	gang_s64 owed;		/* to its VM */
	pol_u32 vcpu;		/* the caller's own number */
	pol_u8 lock;		/* waits for a lock of its guest: it would only spin */
	pol_u8 reserved[3];
};

#define GANG_FILLERS_MAX 16u	/* nobody is looked at after so many candidates */

/* Whether its vCPUs run together, in turns of its own: else it is LOW. */
static inline pol_u8 gang_is_high(const struct gang_vm *vm)
{
	return vm->high && !vm->unplaced;
}

/*
 * A turn of such a length has ended: what VMs are owed follows from what their vCPUs got, from who was
 * HIGH in it and from who owned the pCPUs. A vCPU that wanted nothing and got nothing has no part; one
 * that was held back has what it got. No VM is owed, or owes, more than GANG_CLAMP_TURNS for each vCPU
 * that wants to run. What a VM that wants nothing is owed is halved: who sleeps for long comes back
 * without.
 */
void gang_account(struct gang_host *host, pol_u64 turn);

/*
 * A turn starts: sets the owner of each pCPU and the target of each vCPU, and which VMs are
 * unplaced. Returns 1, or 0 where no pCPU has an owner: no VM is HIGH, or nobody has a rival.
 *
 * A target is a pCPU that the vCPU's VM owns, or the group for a vCPU of a LOW VM. It is usable, and
 * the vCPU may run there. No two vCPUs of VMs that are HIGH have the same one. A vCPU has none where its
 * VM has no turn, and where nothing was left for it.
 *
 * Takes O(VMs log VMs + vCPUs + pCPUs) where each vCPU is alone on its pCPU. One that shares a pCPU
 * costs at most a look at each free pCPU that it may use, and a VM none of whose vCPUs is alone a look at
 * each pCPU.
 */
pol_u8 gang_turn(struct gang_host *host);

/* Whether vCPUs of a VM may run on a pCPU, fills aside. */
pol_u8 gang_may_run(const struct gang_host *host, pol_u32 vm, pol_u32 cpu);

/*
 * A pCPU's owner has nothing to run there: who of those parked there may fill it, as an index, or
 * GANG_NONE. Of those that do not wait for a lock, it is the one whose VM is owed most; of equals, the
 * first.
 */
pol_u32 gang_fill(const struct gang_filler *candidates, pol_u32 count);

/* Turns of about such a length begin. The host counts as if it had used nothing so far. */
void gang_use_begin(struct gang_use *use, pol_u64 turn);

/*
 * A turn of such a length has ended, in which tasks of the host had "of_host" of the pCPU. Below 0
 * it makes up for too much before. Returns "used".
 *
 * In a turn one vCPU has a pCPU to itself. A task of the host that wants to run there, too, would get
 * half of the pCPU, not its part among all vCPUs that are there. And the vCPU would lose its pCPU in the
 * middle of its turn, which is what turns are for.
 */
pol_u8 gang_use(struct gang_use *use, gang_s64 of_host, pol_u64 turn);

#endif
