/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * HVS, Heuristic VCPU Scheduling: which vCPU of a VM should get the core that a spinning vCPU
 * gives up.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2, 3.3 and 4.4. The
 * paper's three lists (resource-waiter newest preemption first, lock-waiter
 * oldest first, "yielded" last) are one total order over a bounded snapshot. The paper
 * leaves the order within "yielded" open. Here it is oldest first, so that each vCPU
 * on it is picked some time. Flags 0 are the paper's HVS.
 */
#ifndef UNSPIN_POLICY_HVS_H
#define UNSPIN_POLICY_HVS_H

#include "types.h"

#define HVS_SLOTS_MAX 64u
#define HVS_VCPUS_MAX 4096u	/* largest VM for hvs_look() */
#define HVS_WORDS (HVS_VCPUS_MAX / 64u)
#define HVS_LISTS 4u		/* HVS_NOT_PREEMPTED (asleep) to HVS_YIELDED */
#define HVS_LOOKS_MAX (2u * HVS_SLOTS_MAX)
#define HVS_PICK_NONE (-1)
#define HVS_PICK_GIVE_WAY (-2)
#define HVS_PICK_COMPLETE (-3)

/* Why a vCPU is not running; the numeric values are part of the trace format. */
enum hvs_category {
	HVS_NOT_PREEMPTED = 0,	/* it runs or sleeps: never a candidate */
	HVS_RESOURCE_WAITER = 1,	/* its time slice ended */
	HVS_LOCK_WAITER = 2,	/* descheduled inside its own PLE exit */
	HVS_YIELDED = 3,	/* it was picked, and preempted again since */
	HVS_WOKEN = 4,		/* it slept, was woken, and waits for a core */
};

struct hvs_slot {
	/* When it lost its core or fell asleep, by any clock that is monotonic within a VM. */
	pol_u64 preempted_at;
	pol_u8 category;	/* enum hvs_category */
	pol_u8 ready;		/* it is runnable, by KVM's own flag */
	pol_u8 yielded_mark;	/* it was picked since it was last preempted */
	pol_u8 running;		/* on a core now (neither preempted nor asleep) */
	pol_u16 cpu;		/* where it runs or was switched out; only compared */
	/*
	 * Preempted in guest user mode, where it holds no kernel lock. Used only with
	 * HVS_USER_MODE_LAST, and not for HVS_WOKEN.
	 */
	pol_u8 user_mode;
	pol_u8 shared;	/* hvs_pick_looked() only: a vCPU of the VM runs on "cpu" */
};

/*
 * Variants of section 4.4, each the opposite of one heuristic. Bits can be combined. The numbers
 * have no suffix, so that both C and Rust can read them.
 */
#define HVS_COUNTER_TIME_RESOURCE 1	/* CPTH-R: resource-waiters oldest first */
#define HVS_COUNTER_TIME_LOCK 2	/* CPTH-L: lock-waiters newest first */
#define HVS_COUNTER_CAUSALITY 4	/* CCH: lock-waiters before resource-waiters */
#define HVS_NO_YIELDED_LIST 8		/* section 3.2 without 3.3: yielded = resource-waiter */
/*
 * Give way below a quorum. A directed yield leaves as many siblings without a core as
 * before. A queue of ticket waiters then pays a window and a switch for every hand-over,
 * until all of them happen to run at once. So if fewer of the VM's vCPUs run than wait for
 * a core that others have, the spinning one leaves its core to whatever the scheduler runs
 * next. This lets a VM with most of its vCPUs running become complete. At or above the
 * quorum a sibling is picked. A vCPU that waits where a sibling runs does not count, because
 * giving way would not help it: VMs with more vCPUs than cores pick as in the paper. If no
 * vCPU waits for a core, the VM is complete: its lock is only contended, and no exit can
 * help. Woken siblings count as waiting. Not in the paper.
 */
#define HVS_QUORUM 16
/*
 * A vCPU that lost its core to a directed yield is picked last, like a yielded one. In
 * section 3.3 a vCPU that is preempted "because its virtual run time is too large" is a
 * resource-waiter. A directed yield also preempts vCPUs whose time slice had not ended. As
 * resource-waiters these would take the core right back.
 */
#define HVS_DISPLACED_LAST 32
/*
 * A vCPU that slept, was woken and waits for a core is a candidate, too: a sibling that sent it an
 * interrupt may spin for the answer. They are one more list, oldest first, after the resource waiters
 * and before the lock waiters. The paper's lists have only preempted vCPUs.
 */
#define HVS_WOKEN_LIST 64
/* vCPUs preempted in user mode rank below all others. KVM's own selection skips them. */
#define HVS_USER_MODE_LAST 128
/*
 * For the code that yields. If the scheduler refuses the yield, the next in rank is tried, up to
 * HVS_TRIES refusals that found nothing to gain; only a vCPU that was yielded to is marked. The paper
 * selects one candidate, and marks it when it is selected.
 */
#define HVS_RETRY 256
#define HVS_TRIES 3		/* as kvm_vcpu_on_spin() */
/* What the variant "hvs" adds to the paper's. */
#define HVS_ADDED 464		/* HVS_QUORUM | HVS_WOKEN_LIST | HVS_USER_MODE_LAST | HVS_RETRY */
/*
 * For the code that keeps the slots. True lists: a preempted vCPU stays on its list, with its time,
 * until it is picked or preempted again, even while it runs or sleeps. A pick may name one that needs
 * no core, and the yield fails. The paper keeps lists (3.2), and does not say that a vCPU leaves its
 * list when the scheduler runs it; without the flag it does. Not above HVS_SLOTS_MAX vCPUs.
 */
#define HVS_TRUE_LISTS 512
#define HVS_FLAGS_ALL 1023

/*
 * Returns the category of a vCPU that is scheduled out while runnable, and updates
 * *yielded_mark. A vCPU scheduled out inside its PLE exit is a lock-waiter and keeps its
 * mark. Otherwise a marked one moves to the yielded list and loses the mark (section
 * 3.3). With HVS_DISPLACED_LAST so does one that was displaced, that is, lost its core to
 * a directed yield to another vCPU. Without the list the mark is lost, too.
 */
pol_u8 hvs_category_on_preempt(pol_u8 in_ple_exit, pol_u8 displaced, pol_u8 *yielded_mark,
			       pol_u32 flags);

/*
 * Returns the index of the best candidate among slots[0..count), or HVS_PICK_NONE. It is
 * never the caller, a slot that is not ready or not preempted, or one whose bit is set in
 * excluded. Of equal ranks, the first index after the caller wins, cyclically, so that no
 * vCPU is favoured by its number. A caller outside [0, count) excludes no slot. With more
 * than HVS_SLOTS_MAX slots it returns HVS_PICK_NONE: larger VMs use hvs_pick_looked().
 *
 * With HVS_QUORUM it may also return HVS_PICK_GIVE_WAY: the slots that run, and the caller,
 * are fewer than those that are ready on CPUs where none of them runs. Or
 * HVS_PICK_COMPLETE: no slot but the caller is ready. Both use all slots, excluded or not.
 */
pol_s32 hvs_pick(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller,
		 pol_u64 excluded, pol_u32 flags);

/*
 * Which vCPUs of a VM with more than HVS_SLOTS_MAX vCPUs have no core, and why. Bit i of
 * off[category] is set when vCPU i loses its core or falls asleep (HVS_NOT_PREEMPTED: woken or
 * not), and cleared when it runs again. Each bit is set and cleared atomically; a reader may see
 * changes late.
 */
struct hvs_waiting {
	pol_u64 off[HVS_LISTS][HVS_WORDS];
	pol_u32 known;			/* number of vCPUs that run or have a bit */
	pol_u16 next[HVS_LISTS];	/* where the next look at a list begins */
};

/* The vCPUs that an exit in such a VM considers. */
struct hvs_look {
	pol_u32 caller, words;		/* as passed to hvs_look(); words of 64 vCPUs */
	pol_u32 count;			/* of number[] */
	pol_u32 running;		/* known vCPUs without a bit, and the caller */
	pol_u32 preempted;		/* vCPUs with a bit in another list than the first, without the caller */
	pol_u16 number[HVS_LOOKS_MAX];	/* indices of vCPUs, by the rank of their lists */
};

/*
 * Chooses the most likely vCPUs: the lists in the order of their ranks, at most HVS_SLOTS_MAX
 * preempted vCPUs, and with HVS_WOKEN_LIST as many sleeping ones, which count only once they are
 * ready. A list that does not fit continues where the last look at it ended, cyclically, so each
 * vCPU on it is considered repeatedly. vcpus: highest index + 1; above HVS_VCPUS_MAX none is
 * chosen. The caller is never chosen.
 */
void hvs_look(struct hvs_waiting *waiting, pol_u32 vcpus, pol_u32 caller, pol_u32 flags,
	      struct hvs_look *look);

/*
 * As hvs_pick(), among the slots[0..count) of a look, at most HVS_SLOTS_MAX and without the
 * caller. The quorum rule uses all of the VM: preempted vCPUs that are not among the slots are
 * assumed to be like those that are. HVS_PICK_COMPLETE: none of the slots is ready.
 */
pol_s32 hvs_pick_looked(const struct hvs_slot *slots, pol_u32 count, const struct hvs_look *look,
			pol_u64 excluded, pol_u32 flags);

#endif
