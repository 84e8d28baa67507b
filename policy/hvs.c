// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * HVS: one pass over a snapshot finds the vCPU that ranks first.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2, 3.3 and 4.4. Runs
 * on every PLE exit, so: no sort, no copy, one compare of (rank, time) a slot.
 */
#include "hvs.h"

#define HVS_CATEGORIES 5u

_Static_assert(sizeof(struct hvs_slot) == 16, "part of the trace format");
_Static_assert(HVS_ADDED == (HVS_QUORUM | HVS_WOKEN_LIST | HVS_USER_MODE_LAST | HVS_RETRY),
	       "flags are plain numbers, for Rust");

/* How each category sorts: by rank, then by preempted_at ^ flip, lowest first. */
struct hvs_order {
	pol_u64 flip[HVS_CATEGORIES];	/* all ones: newest preemption first */
	pol_u32 rank[HVS_CATEGORIES];
	pol_u32 user_mode;		/* added to the rank of one that was in user mode */
};

/*
 * Ranks, lowest first. WOKEN has gaps around it: 0 would put it before all others, 2 is
 * between the resource waiters and the lock waiters whichever of these comes first, 4
 * after both.
 */
#define RANK_FIRST 1u		/* resource waiters; with HVS_COUNTER_CAUSALITY lock waiters */
#define RANK_WOKEN 2u
#define RANK_SECOND 3u		/* the other of the two */
#define RANK_YIELDED 5u
#define RANK_USER_MODE 6u	/* below all that were in kernel mode */
#define RANK_NONE (2 * RANK_USER_MODE)

struct hvs_best {
	pol_u64 time;
	pol_u32 rank;
	pol_s32 index;
};

pol_u8 hvs_category_on_preempt(pol_u8 in_ple_exit, pol_u8 displaced, pol_u8 *yielded_mark,
			       pol_u32 flags)
{
	pol_u8 last = *yielded_mark || (displaced && (flags & HVS_DISPLACED_LAST));

	if (in_ple_exit)
		return HVS_LOCK_WAITER;
	*yielded_mark = 0;
	if (last && !(flags & HVS_NO_YIELDED_LIST))
		return HVS_YIELDED;
	return HVS_RESOURCE_WAITER;
}

static void order_init(struct hvs_order *order, pol_u32 flags)
{
	pol_u8 lock_first = (flags & HVS_COUNTER_CAUSALITY) != 0;

	order->user_mode = flags & HVS_USER_MODE_LAST ? RANK_USER_MODE : 0;
	order->rank[HVS_NOT_PREEMPTED] = 0;	/* never looked up */
	order->flip[HVS_NOT_PREEMPTED] = 0;

	order->rank[HVS_RESOURCE_WAITER] = lock_first ? RANK_SECOND : RANK_FIRST;
	order->flip[HVS_RESOURCE_WAITER] = flags & HVS_COUNTER_TIME_RESOURCE ? 0 : POL_U64_MAX;

	order->rank[HVS_LOCK_WAITER] = lock_first ? RANK_FIRST : RANK_SECOND;
	order->flip[HVS_LOCK_WAITER] = flags & HVS_COUNTER_TIME_LOCK ? POL_U64_MAX : 0;

	/* Oldest first: the longest asleep has been waited for the longest. */
	order->rank[HVS_WOKEN] = flags & HVS_WOKEN_LIST ? RANK_WOKEN : RANK_NONE;
	order->flip[HVS_WOKEN] = 0;

	/* Oldest first: newest first would build section 3.3's loop again in here. */
	order->rank[HVS_YIELDED] = RANK_YIELDED;
	order->flip[HVS_YIELDED] = 0;
	if (flags & HVS_NO_YIELDED_LIST) {
		order->rank[HVS_YIELDED] = order->rank[HVS_RESOURCE_WAITER];
		order->flip[HVS_YIELDED] = order->flip[HVS_RESOURCE_WAITER];
	}
}

/* Slots [from, to) against the best so far; an equal one loses to it. */
static void scan(struct hvs_best *best, const struct hvs_slot *slots, pol_u32 from, pol_u32 to,
		 pol_u64 excluded, const struct hvs_order *order)
{
	pol_u32 i;

	for (i = from; i < to; i++) {
		pol_u32 category = slots[i].category;
		pol_u32 rank;
		pol_u64 time;

		if (!slots[i].ready || category == HVS_NOT_PREEMPTED ||
		    category >= HVS_CATEGORIES || (excluded >> i & 1))
			continue;

		rank = order->rank[category];
		if (slots[i].user_mode && category != HVS_WOKEN)
			rank += order->user_mode;
		time = slots[i].preempted_at ^ order->flip[category];
		if (rank < best->rank || (rank == best->rank && time < best->time)) {
			best->rank = rank;
			best->time = time;
			best->index = (pol_s32)i;
		}
	}
}

static int is_running(const struct hvs_slot *slots, pol_u32 i, pol_u32 caller)
{
	return i == caller || (slots[i].category == HVS_NOT_PREEMPTED && slots[i].running);
}

static int is_shared(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller, pol_u16 cpu)
{
	pol_u32 i;

	for (i = 0; i < count; i++)
		if (slots[i].cpu == cpu && is_running(slots, i, caller))
			return 1;
	return 0;
}

/*
 * HVS_PICK_GIVE_WAY, HVS_PICK_COMPLETE, or HVS_PICK_NONE: neither, so pick. CPUs that run
 * one of them are kept by the low bits of their numbers; all slots are looked at only
 * where two such CPUs, or such a CPU and another, have the same bits.
 */
static pol_s32 quorum(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller)
{
	pol_u64 ours = 0;
	pol_u8 runs[64];	/* by bit of ours: who runs on such a CPU */
	pol_u32 running = 0, ready = 0, missing = 0, i;

	for (i = 0; i < count; i++) {
		if (!is_running(slots, i, caller))
			continue;
		running++;
		ours |= (pol_u64)1 << (slots[i].cpu & 63);
		runs[slots[i].cpu & 63] = (pol_u8)i;
	}
	running += caller >= count;	/* it runs, wherever it is */
	for (i = 0; i < count; i++) {
		pol_u16 cpu = slots[i].cpu;

		if (i == caller || slots[i].category == HVS_NOT_PREEMPTED || !slots[i].ready)
			continue;
		ready++;
		if (!(ours >> (cpu & 63) & 1) ||
		    (slots[runs[cpu & 63]].cpu != cpu && !is_shared(slots, count, caller, cpu)))
			missing++;
	}
	if (!ready)
		return HVS_PICK_COMPLETE;
	return running < missing ? HVS_PICK_GIVE_WAY : HVS_PICK_NONE;
}

pol_s32 hvs_pick(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller,
		 pol_u64 excluded, pol_u32 flags)
{
	struct hvs_best best = { .time = 0, .rank = RANK_NONE, .index = HVS_PICK_NONE };
	struct hvs_order order;

	if (count > HVS_SLOTS_MAX)
		return HVS_PICK_NONE;
	if (caller >= count)
		caller = count;

	if (flags & HVS_QUORUM) {
		pol_s32 special = quorum(slots, count, caller);

		if (special != HVS_PICK_NONE)
			return special;
	}

	order_init(&order, flags);
	/* From the caller's neighbour round to the caller, who is in neither half. */
	if (caller < count)
		scan(&best, slots, caller + 1, count, excluded, &order);
	scan(&best, slots, 0, caller, excluded, &order);
	return best.index;
}
