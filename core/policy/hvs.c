// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * HVS: finds the vCPU that ranks first, in one pass over a snapshot.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2, 3.3 and 4.4. Runs
 * on every PLE exit, so it does not sort or copy, and compares (rank, time) once per slot.
 */
#include "hvs.h"

#define HVS_CATEGORIES 5u

_Static_assert(sizeof(struct hvs_slot) == 16, "part of the trace format");
_Static_assert(HVS_ADDED == (HVS_QUORUM | HVS_WOKEN_LIST | HVS_USER_MODE_LAST | HVS_RETRY),
	       "flags are plain numbers, for Rust");
_Static_assert(sizeof(struct hvs_waiting) == 8 * HVS_LISTS * HVS_WORDS + 16, "shared with Rust");
_Static_assert(sizeof(struct hvs_look) == 20 + 2 * HVS_LOOKS_MAX, "shared with Rust");

/* How each category sorts: by rank, then by preempted_at ^ flip, lowest first. */
struct hvs_order {
	pol_u64 flip[HVS_CATEGORIES];	/* all ones: newest preemption first */
	pol_u32 rank[HVS_CATEGORIES];
};

/*
 * Ranks, lowest first. There are gaps for WOKEN: 0 is before all others, 2 between the
 * resource waiters and the lock waiters, whichever of these comes first, and 4 after both.
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

	order->rank[HVS_NOT_PREEMPTED] = 0;	/* not used */
	order->flip[HVS_NOT_PREEMPTED] = 0;

	order->rank[HVS_RESOURCE_WAITER] = lock_first ? RANK_SECOND : RANK_FIRST;
	order->flip[HVS_RESOURCE_WAITER] = flags & HVS_COUNTER_TIME_RESOURCE ? 0 : POL_U64_MAX;

	order->rank[HVS_LOCK_WAITER] = lock_first ? RANK_FIRST : RANK_SECOND;
	order->flip[HVS_LOCK_WAITER] = flags & HVS_COUNTER_TIME_LOCK ? POL_U64_MAX : 0;

	/* Oldest first: the one that has slept longest has been waited for longest. */
	order->rank[HVS_WOKEN] = flags & HVS_WOKEN_LIST ? RANK_WOKEN : RANK_NONE;
	order->flip[HVS_WOKEN] = 0;

	/* Oldest first: newest first would repeat the loop of section 3.3 within this list. */
	order->rank[HVS_YIELDED] = RANK_YIELDED;
	order->flip[HVS_YIELDED] = 0;
	if (flags & HVS_NO_YIELDED_LIST) {
		order->rank[HVS_YIELDED] = order->rank[HVS_RESOURCE_WAITER];
		order->flip[HVS_YIELDED] = order->flip[HVS_RESOURCE_WAITER];
	}
}

/*
 * Compares slots [from, to) with the best so far, which wins against equals. user_mode is added to the
 * rank of slots in user mode. It is a constant where this is inlined, which saves the loop a register.
 */
static POL_INLINE void scan(struct hvs_best *best, const struct hvs_slot *slots, pol_u32 from,
			    pol_u32 to, pol_u64 excluded, const struct hvs_order *order,
			    pol_u32 user_mode)
{
	pol_u32 step;

	POL_FOR(step, to - from) {
		pol_u32 i = POL_BELOW(from + step, HVS_SLOTS_MAX);
		pol_u32 category = slots[i].category;
		pol_u32 rank;
		pol_u64 time;

		if (!slots[i].ready || category == HVS_NOT_PREEMPTED ||
		    category >= HVS_CATEGORIES || (excluded >> i & 1))
			continue;

		rank = order->rank[category];
		if (slots[i].user_mode && category != HVS_WOKEN)
			rank += user_mode;
		time = slots[i].preempted_at ^ order->flip[category];
		if (rank < best->rank || (rank == best->rank && time < best->time)) {
			best->rank = rank;
			best->time = time;
			best->index = (pol_s32)i;
		}
	}
}

/* From the slot after the caller round to the one before it. */
static POL_INLINE void scan_round(struct hvs_best *best, const struct hvs_slot *slots,
				  pol_u32 count, pol_u32 caller, pol_u64 excluded,
				  const struct hvs_order *order, pol_u32 user_mode)
{
	if (caller < count)
		scan(best, slots, caller + 1, count, excluded, order, user_mode);
	scan(best, slots, 0, caller, excluded, order, user_mode);
}

static int is_running(const struct hvs_slot *slots, pol_u32 i, pol_u32 caller)
{
	return i == caller || (slots[i].category == HVS_NOT_PREEMPTED && slots[i].running);
}

static int is_shared(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller, pol_u16 cpu)
{
	pol_u32 step;

	POL_FOR(step, count) {
		pol_u32 i = POL_BELOW(step, HVS_SLOTS_MAX);

		if (slots[i].cpu == cpu && is_running(slots, i, caller))
			return 1;
	}
	return 0;
}

/*
 * Returns HVS_PICK_GIVE_WAY, HVS_PICK_COMPLETE, or HVS_PICK_NONE: neither, so pick a sibling. CPUs
 * that run a vCPU of the VM are noted by the low bits of their numbers. All slots are searched only
 * if such a CPU shares these bits with another CPU.
 */
static pol_s32 quorum(const struct hvs_slot *slots, pol_u32 count, pol_u32 caller)
{
	pol_u64 ours = 0;
	pol_u16 runs[64];	/* by low bits of a CPU: the last one with these that runs a vCPU */
	pol_u32 running = POL_ZERO, ready = POL_ZERO, missing = POL_ZERO, step;

	POL_FOR(step, count) {
		pol_u32 i = POL_BELOW(step, HVS_SLOTS_MAX);

		if (!is_running(slots, i, caller))
			continue;
		running++;
		ours |= (pol_u64)1 << (slots[i].cpu & 63);
		runs[slots[i].cpu & 63] = slots[i].cpu;
	}
	running += caller >= count;	/* the caller runs, too */
	POL_FOR(step, count) {
		pol_u32 i = POL_BELOW(step, HVS_SLOTS_MAX);
		pol_u16 cpu = slots[i].cpu;

		if (i == caller || slots[i].category == HVS_NOT_PREEMPTED || !slots[i].ready)
			continue;
		ready++;
		if (!(ours >> (cpu & 63) & 1) ||
		    (runs[cpu & 63] != cpu && !is_shared(slots, count, caller, cpu)))
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
	if (flags & HVS_USER_MODE_LAST)
		scan_round(&best, slots, count, caller, excluded, &order, RANK_USER_MODE);
	else
		scan_round(&best, slots, count, caller, excluded, &order, 0);
	return best.index;
}

/* --- more than HVS_SLOTS_MAX vCPUs --- */

static inline pol_u64 word_read(const pol_u64 *word)
{
	return *(const volatile pol_u64 *)word;	/* other CPUs write it */
}

/* Number of set bits. The builtin may call a library function, which kernels do not have. */
static inline pol_u32 weight(pol_u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555u;
	bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
	bits += bits >> 8;
	bits += bits >> 16;
	bits += bits >> 32;
	return (pol_u32)(bits & 0x7f);
}

/* The number of the lowest set bit; bits is not 0. BPF has no instruction for it. */
static inline pol_u32 lowest(pol_u64 bits)
{
#ifdef __bpf__
	return weight((bits & -bits) - 1);
#else
	return (pol_u32)__builtin_ctzll(bits);
#endif
}

static inline pol_u64 without(pol_u64 bits, pol_u32 word, pol_u32 caller)
{
	return word == caller / 64 ? bits & ~((pol_u64)1 << (caller & 63)) : bits;
}

/* Adds up to "room" vCPUs of a list, from where the last look ended. Returns how many. */
static pol_u32 list_look(struct hvs_waiting *waiting, pol_u32 list, pol_u32 room,
			 struct hvs_look *look)
{
	pol_u32 words = look->words;
	pol_u32 from = waiting->next[list] < 64 * words ? waiting->next[list] : 0, step, taken = 0;
	pol_u64 upper = POL_U64_MAX << (from & 63);

	/* The first word is read twice: at first from "from" on, at last below it. */
	for (step = 0; step <= words; step++) {
		pol_u32 word = from / 64 + step < words ? from / 64 + step : from / 64 + step - words;
		pol_u64 bits = without(word_read(&waiting->off[list][word]), word, look->caller);

		if (step == 0)
			bits &= upper;
		else if (step == words)
			bits &= ~upper;
		for (; bits; bits &= bits - 1) {
			if (taken == room) {
				if (taken)
					waiting->next[list] =
						(pol_u16)(look->number[look->count - 1] + 1);
				return taken;
			}
			look->number[look->count++] =
				(pol_u16)(64 * word + lowest(bits));
			taken++;
		}
	}
	return taken;
}

/* Counts how many run, and how many are preempted. */
static void look_count(const struct hvs_waiting *waiting, struct hvs_look *look)
{
	pol_u32 off = 0, asleep = 0, list, word;

	for (list = 0; list < HVS_LISTS; list++) {
		for (word = 0; word < look->words; word++)
			off += weight(without(word_read(&waiting->off[list][word]), word,
					      look->caller));
		if (list == HVS_NOT_PREEMPTED)
			asleep = off;
	}
	look->preempted = off - asleep;
	if (waiting->known > off)
		look->running = waiting->known - off;
}

void hvs_look(struct hvs_waiting *waiting, pol_u32 vcpus, pol_u32 caller, pol_u32 flags,
	      struct hvs_look *look)
{
	pol_u32 first = flags & HVS_COUNTER_CAUSALITY ? HVS_LOCK_WAITER : HVS_RESOURCE_WAITER;
	pol_u32 second = HVS_RESOURCE_WAITER + HVS_LOCK_WAITER - first;
	pol_u32 room = HVS_SLOTS_MAX;

	look->caller = caller;
	look->count = 0;
	look->running = 1;
	look->preempted = 0;
	if (vcpus > HVS_VCPUS_MAX)
		return;
	look->words = (vcpus + 63) / 64;
	if (flags & HVS_QUORUM)
		look_count(waiting, look);
	room -= list_look(waiting, first, room, look);
	if (flags & HVS_WOKEN_LIST)
		list_look(waiting, HVS_NOT_PREEMPTED, HVS_SLOTS_MAX, look);
	room -= list_look(waiting, second, room, look);
	list_look(waiting, HVS_YIELDED, room, look);
}

static pol_s32 quorum_looked(const struct hvs_slot *slots, pol_u32 count, const struct hvs_look *look)
{
	pol_u32 ready = 0, missing = 0, i;

	for (i = 0; i < count; i++) {
		if (!slots[i].ready || slots[i].category == HVS_NOT_PREEMPTED)
			continue;
		ready++;
		missing += !slots[i].shared;
	}
	if (!ready)
		return HVS_PICK_COMPLETE;
	if (look->preempted > HVS_SLOTS_MAX)
		missing = missing * look->preempted / ready;
	return look->running < missing ? HVS_PICK_GIVE_WAY : HVS_PICK_NONE;
}

pol_s32 hvs_pick_looked(const struct hvs_slot *slots, pol_u32 count, const struct hvs_look *look,
			pol_u64 excluded, pol_u32 flags)
{
	if (count > HVS_SLOTS_MAX)
		return HVS_PICK_NONE;
	if (flags & HVS_QUORUM) {
		pol_s32 special = quorum_looked(slots, count, look);

		if (special != HVS_PICK_NONE)
			return special;
	}
	return hvs_pick(slots, count, count, excluded, flags & ~(pol_u32)HVS_QUORUM);
}
