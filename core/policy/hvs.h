/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * HVS, Heuristic VCPU Scheduling: which vCPU of a VM should get the core that a spinning vCPU
 * gives up.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2, 3.3 and 4.4. The
 * paper's three lists (resource-waiter newest preemption first, lock-waiter
 * oldest first, "yielded" last) are one total order over a bounded snapshot. The paper
 * leaves the order within "yielded" open; here it is oldest first, so that everyone
 * on it has a turn. Flags 0 are the paper's HVS.
 */
#ifndef UNSPIN_POLICY_HVS_H
#define UNSPIN_POLICY_HVS_H

#include "types.h"

#define HVS_SLOTS_MAX 64u
#define HVS_VCPUS_MAX 4096u	/* of a VM that hvs_look() chooses from */
#define HVS_WORDS (HVS_VCPUS_MAX / 64u)
#define HVS_LISTS 4u		/* HVS_NOT_PREEMPTED (asleep) to HVS_YIELDED */
#define HVS_LOOKS_MAX (2u * HVS_SLOTS_MAX)
#define HVS_PICK_NONE (-1)
#define HVS_PICK_GIVE_WAY (-2)
#define HVS_PICK_COMPLETE (-3)

/* Why a vCPU is not running; the numeric values are part of the trace format. */
enum hvs_category {
	HVS_NOT_PREEMPTED = 0,	/* runs, or sleeps still: never a candidate */
	HVS_RESOURCE_WAITER = 1,	/* its time slice ended */
	HVS_LOCK_WAITER = 2,	/* descheduled inside its own PLE exit */
	HVS_YIELDED = 3,	/* picked before, and preempted again since */
	HVS_WOKEN = 4,		/* it slept, was woken, and waits for a core */
};

struct hvs_slot {
	/* When it lost its core, or went to sleep; any clock that never runs back within a VM. */
	pol_u64 preempted_at;
	pol_u8 category;	/* enum hvs_category */
	pol_u8 ready;		/* the scheduler would run it: KVM's own flag */
	pol_u8 yielded_mark;	/* picked since it was last preempted */
	pol_u8 running;		/* on a core now (neither preempted nor asleep) */
	pol_u16 cpu;		/* it runs there, or was switched out there; only equal or not counts */
	/*
	 * Preempted while in guest user mode, where it holds no kernel lock. Counts with
	 * HVS_USER_MODE_LAST only, and not for HVS_WOKEN.
	 */
	pol_u8 user_mode;
	pol_u8 shared;	/* hvs_pick_looked() only: a vCPU of the VM runs on "cpu" */
};

/*
 * Variants of section 4.4, each the opposite of one heuristic. Bits combine. Without a
 * suffix, so that both C and Rust read them.
 */
#define HVS_COUNTER_TIME_RESOURCE 1	/* CPTH-R: resource-waiters oldest first */
#define HVS_COUNTER_TIME_LOCK 2	/* CPTH-L: lock-waiters newest first */
#define HVS_COUNTER_CAUSALITY 4	/* CCH: lock-waiters before resource-waiters */
#define HVS_NO_YIELDED_LIST 8		/* section 3.2 without 3.3: yielded = resource-waiter */
/*
 * Give way below a quorum. A directed yield trades one of the VM's cores for
 * another: as many siblings are missing after it as before, and a queue of
 * ticket waiters then pays a window and a switch for every hand-over until
 * chance brings all of them onto cores at once. So where fewer of the VM's
 * vCPUs run than wait for a core that others have, the spinning one leaves its core
 * to whoever the scheduler has, which lets a VM with most of its vCPUs running
 * complete itself; only above the quorum is a sibling picked. One that waits where a
 * sibling runs is not missing for want of a core, and nothing is gained by giving
 * way: VMs with more vCPUs than cores pick as the paper does. And where nobody waits
 * for a core the VM is complete: it spins because its lock is contended, which no
 * exit can help. Woken siblings count as waiting. Ours, not the paper's.
 */
#define HVS_QUORUM 16
/*
 * A vCPU that a directed yield took off its core is picked last, like a yielded one.
 * Section 3.3 makes a resource-waiter of who is preempted "because its virtual run time is
 * too large"; a directed yield preempts others as well, whose time slice had not ended, and
 * as resource-waiters these would take the core right back.
 */
#define HVS_DISPLACED_LAST 32
/*
 * A vCPU that slept, was woken and waits for a core is a candidate: a sibling may spin for it as
 * well, for who sent it an interrupt waits for the answer. One more list, oldest first, after the
 * resource waiters and before the lock waiters. The paper's lists have preempted vCPUs only.
 */
#define HVS_WOKEN_LIST 64
/* One that was in user mode ranks below all that were not. KVM's own selection skips it. */
#define HVS_USER_MODE_LAST 128
/*
 * For who carries a pick out. Where the scheduler refuses the yield the next in rank is tried, up
 * to HVS_TRIES refusals that found nothing to gain, and who was not yielded to is not marked. The
 * paper selects one candidate, and marks it when it is selected.
 */
#define HVS_RETRY 256
#define HVS_TRIES 3		/* as kvm_vcpu_on_spin() */
/* All that the variant "hvs" adds to the paper's. */
#define HVS_ADDED 464		/* HVS_QUORUM | HVS_WOKEN_LIST | HVS_USER_MODE_LAST | HVS_RETRY */
#define HVS_FLAGS_ALL 511

/*
 * The category a vCPU enters when it is scheduled out while runnable, and its
 * yielded mark afterwards (written back through *yielded_mark). A vCPU scheduled
 * out inside its PLE exit is a lock-waiter and keeps its mark; otherwise a
 * marked one moves to the yielded list and loses the mark (section 3.3). So does one
 * that was displaced, that is, taken off its core by a directed yield to another, where
 * HVS_DISPLACED_LAST is set. Without the list the mark is lost just the same.
 */
pol_u8 hvs_category_on_preempt(pol_u8 in_ple_exit, pol_u8 displaced, pol_u8 *yielded_mark,
			       pol_u32 flags);

/*
 * Index of the best candidate among slots[0..count), or HVS_PICK_NONE. Never the
 * caller, never a slot that is not ready or not preempted, never one whose bit
 * is set in excluded. Equal ranks go to the lowest index at or after caller + 1,
 * cyclically, so that no vCPU is favoured by its number. A caller outside [0, count)
 * excludes no slot. More than HVS_SLOTS_MAX slots give HVS_PICK_NONE: larger VMs have
 * hvs_pick_looked(). HVS_PICK_GIVE_WAY, with HVS_QUORUM
 * only: the slots that run, and the caller, are fewer than those that are ready on
 * CPUs where none of them runs. HVS_PICK_COMPLETE, with HVS_QUORUM only: no slot but
 * the caller is ready. Both look at all slots, excluded or not.
 */
pol_s32 hvs_pick(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller,
		 pol_u64 excluded, pol_u32 flags);

/*
 * Who of a VM of more than HVS_SLOTS_MAX vCPUs has no core, and why. Bit i of off[category] is
 * vCPU i's, set when it loses its core or goes to sleep (HVS_NOT_PREEMPTED: woken or not) and
 * cleared when it runs again. Each bit is set and cleared atomically; a reader may see any of
 * them late.
 */
struct hvs_waiting {
	pol_u64 off[HVS_LISTS][HVS_WORDS];
	pol_u32 known;			/* so many vCPUs run or have a bit */
	pol_u16 next[HVS_LISTS];	/* where the next look at a list begins */
};

/* What an exit in such a VM looks at. */
struct hvs_look {
	pol_u32 caller, words;		/* as hvs_look() was called; words of 64 vCPUs */
	pol_u32 count;			/* of number[] */
	pol_u32 running;		/* known vCPUs that have no bit, and the caller */
	pol_u32 preempted;		/* vCPUs that have a bit of another list than the first, but the caller */
	pol_u16 number[HVS_LOOKS_MAX];	/* vCPUs, those of the list that ranks first first */
};

/*
 * The likeliest: list after list in the order of their ranks, HVS_SLOTS_MAX of the preempted at
 * most, and as many of those asleep with HVS_WOKEN_LIST, who count only once they are ready. A
 * list that does not fit is taken from where the last look at it ended, round and round: who stays
 * on it is looked at again and again. vcpus: highest number + 1; above HVS_VCPUS_MAX none is
 * looked at. The caller is not.
 */
void hvs_look(struct hvs_waiting *waiting, pol_u32 vcpus, pol_u32 caller, pol_u32 flags,
	      struct hvs_look *look);

/*
 * As hvs_pick(), among the slots[0..count) that a look came to, HVS_SLOTS_MAX at most, none of
 * them the caller's. The quorum goes by all of the VM: where more are preempted than were looked
 * at, the others are taken to be like these. HVS_PICK_COMPLETE: none of these is ready.
 */
pol_s32 hvs_pick_looked(const struct hvs_slot *slots, pol_u32 count, const struct hvs_look *look,
			pol_u64 excluded, pol_u32 flags);

#endif
