/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * pCPUs without an owner when a turn starts, and which of them suits a vCPU best. Only
 * policy/gang_turn.c includes it.
 */
#ifndef UNSPIN_POLICY_GANG_FREE_H
#define UNSPIN_POLICY_GANG_FREE_H

#include "gang.h"

/* --- which pCPUs are free --- */

/* The row of the first pCPU of the same core, cache or node. */
static inline struct gang_cpu *first_of(const struct gang_host *host, pol_u32 number)
{
	return &host->cpus[number < host->cpu_count ? number : 0];
}

static inline pol_u8 is_free(const struct gang_host *host, pol_u32 cpu)
{
	return host->free[cpu / 64] >> cpu % 64 & 1;
}

/* A core is whole if all its threads are usable and have no owner. */
static inline void core_counts(struct gang_host *host, const struct gang_cpu *core, pol_u8 whole)
{
	struct gang_cpu *cache = first_of(host, core->cache), *node = first_of(host, core->node);

	if (whole) {
		host->whole_count++;
		cache->cache_whole++;
		node->node_whole++;
	} else {
		host->whole_count--;
		cache->cache_whole--;
		node->node_whole--;
	}
}

static inline void give_back(struct gang_host *host, pol_u32 i)
{
	struct gang_cpu *cpu = &host->cpus[i], *core = first_of(host, cpu->core);

	cpu->owner = cpu->vcpu = GANG_NONE;
	host->free[i / 64] |= (pol_u64)1 << i % 64;
	host->free_count++;
	first_of(host, cpu->cache)->cache_free++;
	first_of(host, cpu->node)->node_free++;
	if (!--core->core_taken)
		core_counts(host, core, 1);
}

/* Gives a free pCPU an owner, for this vCPU. */
static inline void take(struct gang_host *host, pol_u32 i, pol_u32 owner, pol_u32 v)
{
	struct gang_cpu *cpu = &host->cpus[i], *core = first_of(host, cpu->core);

	cpu->owner = owner;
	cpu->vcpu = v;
	host->vcpus[v].target = i;
	host->free[i / 64] &= ~((pol_u64)1 << i % 64);
	host->free_count--;
	first_of(host, cpu->cache)->cache_free--;
	first_of(host, cpu->node)->node_free--;
	if (!core->core_taken++)
		core_counts(host, core, 0);
}

/* Takes all owners and targets away. */
static inline void all_free(struct gang_host *host)
{
	pol_u32 i;

	for (i = 0; i < host->cpu_count; i++) {
		struct gang_cpu *cpu = &host->cpus[i];

		if (!(i % 64))
			host->free[i / 64] = 0;
		cpu->owner = cpu->vcpu = GANG_NONE;
		cpu->core_taken = cpu->cache_free = cpu->cache_whole = 0;
		cpu->node_free = cpu->node_whole = cpu->placed = 0;
		cpu->seen = GANG_NONE;
	}
	host->free_count = host->whole_count = 0;
	for (i = 0; i < host->cpu_count; i++)
		first_of(host, host->cpus[i].core)->core_taken++;
	for (i = 0; i < host->cpu_count; i++)
		if (host->cpus[i].usable)
			give_back(host, i);
	for (i = 0; i < host->vcpu_count; i++)
		host->vcpus[i].target = GANG_NONE;
}

/* --- a pCPU for a vCPU --- */

enum { ANYWHERE, IN_NODE, IN_CACHE };

/* The cache and node that a vCPU should be in, and which of these has room for its whole VM. */
struct wish {
	pol_u32 cache, node;
	pol_u32 room;
};

static inline void wish_for(const struct gang_host *host, pol_u32 cpu, struct wish *wish)
{
	wish->cache = host->cpus[cpu].cache;
	wish->node = host->cpus[cpu].node;
	wish->room = ANYWHERE;
}

static inline pol_u8 is_in_room(const struct gang_host *host, const struct wish *wish, pol_u32 cpu)
{
	if (wish->room == IN_CACHE)
		return host->cpus[cpu].cache == wish->cache;
	return wish->room == ANYWHERE || host->cpus[cpu].node == wish->node;
}

/* The value of a pCPU, 0 or more: in the cache, in the node, any; whole cores first in each. */
static inline pol_u32 worth_of(const struct gang_host *host, const struct wish *wish, pol_u32 i)
{
	const struct gang_cpu *cpu = &host->cpus[i];
	pol_u32 near = cpu->cache == wish->cache ? 4 : cpu->node == wish->node ? 2 : 0;

	return near + !first_of(host, cpu->core)->core_taken;
}

/* The highest value that a free pCPU can have. */
static inline pol_u32 most_worth(const struct gang_host *host, const struct wish *wish)
{
	const struct gang_cpu *cache = first_of(host, wish->cache), *node = first_of(host, wish->node);

	if (cache->cache_free)
		return 4 + !!cache->cache_whole;
	if (node->node_free)
		return 2 + !!node->node_whole;
	return !!host->whole_count;
}

/* The free pCPUs of a word of 64 on which the vCPU may run. */
static inline pol_u64 free_there(const struct gang_host *host, const struct gang_vcpu *vcpu,
				 pol_u32 word)
{
	return vcpu->allowed ? host->free[word] & vcpu->allowed[word] : 0;
}

struct choice {
	pol_u32 cpu, worth;
};

/* Takes a pCPU if it is better than the best so far. Returns 1 if none can be better. */
static inline pol_u8 consider(const struct gang_host *host, const struct wish *wish, pol_u32 cpu,
			      struct choice *best)
{
	pol_u32 worth = worth_of(host, wish, cpu);

	if (best->cpu != GANG_NONE && worth <= best->worth)
		return 0;
	best->cpu = cpu;
	best->worth = worth;
	return worth >= most_worth(host, wish);
}

/*
 * The most valuable free pCPU on which the vCPU may run, or GANG_NONE. Of equals, the first from the
 * wish's cache on.
 */
static inline pol_u32 choose(const struct gang_host *host, const struct gang_vcpu *vcpu,
			     const struct wish *wish)
{
	pol_u32 words = GANG_WORDS(host->cpu_count), n, w;
	pol_u32 from = wish->cache < host->cpu_count ? wish->cache : 0;
	pol_u64 below = ((pol_u64)1 << from % 64) - 1, bits;
	struct choice best = { GANG_NONE, 0 };

	for (n = 0, w = from / 64; n <= words; n++, w = w + 1 < words ? w + 1 : 0) {
		bits = free_there(host, vcpu, w);
		bits &= !n ? ~below : n == words ? below : ~(pol_u64)0;
		for (; bits; bits &= bits - 1)
			if (consider(host, wish, w * 64 + pol_lowest_bit(bits), &best))
				return best.cpu;
	}
	return best.cpu;
}

#endif
