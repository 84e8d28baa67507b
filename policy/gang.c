// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "gang.h"

_Static_assert(sizeof(struct gang_vm) == 32, "as in Rust");
_Static_assert(sizeof(struct gang_vcpu) == 24 + sizeof(void *), "as in Rust");
_Static_assert(sizeof(struct gang_cpu) == 88, "as in Rust");
_Static_assert(sizeof(struct gang_pool) == 64, "as in Rust");
_Static_assert(sizeof(struct gang_filler) == 16, "as in Rust");
_Static_assert(sizeof(struct gang_use) == 24, "as in Rust");

#define WANTING_MAX (1u << 22)	/* more vCPUs of a candidate count as these: products fit */

static pol_u64 weight_of(const struct gang_vcpu *vcpu)
{
	return pol_clamp_u32(vcpu->weight, 1, GANG_WEIGHT_MAX);
}

static pol_u64 limited(pol_u64 time)
{
	return time < GANG_TIME_MAX ? time : GANG_TIME_MAX;
}

static pol_u64 time_of(const struct gang_vcpu *vcpu)
{
	return limited(vcpu->got);
}

/* The vCPUs of a VM, without any that are not there. */
static pol_u32 end_of(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 first = vm->first < host->vcpu_count ? vm->first : host->vcpu_count;
	pol_u32 left = host->vcpu_count - first;

	return first + (vm->count < left ? vm->count : left);
}

static pol_u8 is_there(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return vcpu->cpu < host->cpu_count;
}

static pol_u8 wants(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return vcpu->wants && !vcpu->held_back && is_there(host, vcpu);
}

/* --- the turn that ends --- */

static pol_u8 takes_part(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return is_there(host, vcpu) && !vcpu->held_back && (vcpu->wants || vcpu->got);
}

static gang_s64 clamped(gang_s64 owed, pol_u64 clamp)
{
	gang_s64 bound = (gang_s64)limited(clamp);

	return owed > bound ? bound : owed < -bound ? -bound : owed;
}

/* Towards 0. BPF has no signed division. */
static gang_s64 divided(gang_s64 owed, pol_u64 by)
{
	return owed < 0 ? -(gang_s64)((pol_u64)-owed / by) : (gang_s64)((pol_u64)owed / by);
}

/* Whether its time is the group's, whose vCPUs have run as the scheduler has them. */
static pol_u8 is_of_group(const struct gang_vm *vm, const struct gang_cpu *cpu)
{
	return !gang_is_high(vm) && cpu->owner >= GANG_LOW;
}

static void cpu_add(struct gang_cpu *cpu, const struct gang_vcpu *vcpu, pol_u8 of_group)
{
	cpu->time += time_of(vcpu);
	cpu->weight += weight_of(vcpu);
	if (!of_group)
		return;
	cpu->group_time += time_of(vcpu);
	cpu->group_weight += weight_of(vcpu);
}

/* What each pCPU gave, and to how many, by weight. */
static void cpus_sum(struct gang_host *host)
{
	pol_u32 i, v, end;

	for (i = 0; i < host->cpu_count; i++) {
		host->cpus[i].time = host->cpus[i].weight = 0;
		host->cpus[i].group_time = host->cpus[i].group_weight = 0;
	}
	for (i = 0; i < host->vm_count; i++) {
		end = end_of(host, &host->vms[i]);
		for (v = host->vms[i].first; v < end; v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];
			struct gang_cpu *cpu;

			if (!takes_part(host, vcpu))
				continue;
			cpu = &host->cpus[vcpu->cpu];
			cpu_add(cpu, vcpu, is_of_group(&host->vms[i], cpu));
		}
	}
}

/* Its part of the pCPU it is on. */
static pol_u64 part_there(const struct gang_vcpu *vcpu, const struct gang_cpu *cpu)
{
	return pol_mul_div(cpu->time, weight_of(vcpu), cpu->weight);
}

/* What counts as its time there. */
static pol_u64 charge_there(const struct gang_vm *vm, const struct gang_vcpu *vcpu,
			    const struct gang_cpu *cpu)
{
	if (!is_of_group(vm, cpu))
		return time_of(vcpu);
	return pol_mul_div(cpu->group_time, weight_of(vcpu), cpu->group_weight);
}

/* --- pools: vCPUs that may run on the same pCPUs --- */

enum { PINNED = GANG_POOLS_MAX, NO_PART };	/* gang_vcpu.pool */

/* A number for the set of pCPUs where the vCPU may run; 0: it is pinned. */
static pol_u64 set_of(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	pol_u32 words = GANG_WORDS(host->cpu_count), rest = host->cpu_count % 64, w;
	pol_u64 number = 0, any = 0, word;
	pol_u8 several = 0;

	for (w = 0; vcpu->allowed && w < words; w++) {
		word = vcpu->allowed[w];
		if (rest && w == words - 1)
			word &= ((pol_u64)1 << rest) - 1;
		several |= (word & (word - 1)) || (word && any);
		any |= word;
		number = (number ^ word) * 0x9e3779b97f4a7c15u;
		number ^= number >> 32;
	}
	return several ? number | 1 : 0;
}

/* Sets that come when there are as many pools as may be share the last. */
static pol_u8 pool_for(struct gang_host *host, pol_u64 set)
{
	pol_u8 i;

	for (i = 0; i < GANG_POOLS_MAX - 1; i++)
		if (!host->pools[i].set || host->pools[i].set == set)
			break;
	host->pools[i].set = set;
	return i;
}

static void pool_add(struct gang_host *host, const struct gang_vm *vm, struct gang_vcpu *vcpu)
{
	pol_u32 weight = (pol_u32)weight_of(vcpu);
	const struct gang_cpu *cpu;
	struct gang_pool *pool;
	pol_u64 set;

	vcpu->pool = NO_PART;
	if (!takes_part(host, vcpu))
		return;
	set = set_of(host, vcpu);
	vcpu->pool = set ? pool_for(host, set) : PINNED;
	if (!set)
		return;
	pool = &host->pools[vcpu->pool];
	cpu = &host->cpus[vcpu->cpu];
	pool->time += part_there(vcpu, cpu);
	pool->weight += weight;
	pool->count++;
	pool->heaviest = weight > pool->heaviest ? weight : pool->heaviest;
	if (is_of_group(vm, cpu))
		pool->group_time += charge_there(vm, vcpu, cpu);
}

/* A vCPU is due most of a turn, or what all got if that is more for each. */
static void pools_begin(struct gang_host *host, pol_u64 turn)
{
	pol_u64 most = limited(turn) / 8 * GANG_MOST_EIGHTHS;
	pol_u32 i;

	for (i = 0; i < GANG_POOLS_MAX; i++) {
		struct gang_pool *pool = &host->pools[i];
		pol_u64 mean = pool->count ? (pool->time + pool->count - 1) / pool->count : 0;

		pool->most = most > mean ? most : mean;
		pool->level = GANG_WEIGHT_MAX;
	}
}

/* What each pool has to divide. */
static void pools_sum(struct gang_host *host, pol_u64 turn)
{
	static const struct gang_pool empty;
	pol_u32 i, v, end;

	for (i = 0; i < GANG_POOLS_MAX; i++)
		host->pools[i] = empty;
	for (i = 0; i < host->vm_count; i++) {
		end = end_of(host, &host->vms[i]);
		for (v = host->vms[i].first; v < end; v++)
			pool_add(host, &host->vms[i], &host->vcpus[v]);
	}
	pools_begin(host, turn);
}

/* Who is heavier than the level would get more than the most by weight. Whether there are any. */
static pol_u8 pools_level(struct gang_host *host)
{
	pol_u8 any = 0;
	pol_u32 i;

	for (i = 0; i < GANG_POOLS_MAX; i++) {
		struct gang_pool *pool = &host->pools[i];
		pol_u64 level;

		pool->level_before = pool->level;
		if (!pool->count)
			continue;
		level = pol_mul_div(pool->most, pool->weight, pool->time);
		if (pool->heaviest <= level)
			continue;
		pool->level = (pol_u32)level;
		pool->heaviest = 0;
		any = 1;
	}
	return any;
}

/* Who came to be above the level gets the most: the others divide what is left. */
static void pool_cap(struct gang_pool *pool, pol_u32 weight)
{
	if (weight <= pool->level) {
		pool->heaviest = weight > pool->heaviest ? weight : pool->heaviest;
	} else if (weight <= pool->level_before) {
		pool->time -= pool->most;
		pool->weight -= weight;
	}
}

/* Somebody always stays below the level, as "most" is no less than the mean. */
static void pools_fill(struct gang_host *host)
{
	pol_u32 pass, i, v, end;

	for (pass = 0; pass < GANG_FILL_PASSES && pools_level(host); pass++) {
		for (i = 0; i < host->vm_count; i++) {
			end = end_of(host, &host->vms[i]);
			for (v = host->vms[i].first; v < end; v++)
				if (host->vcpus[v].pool < GANG_POOLS_MAX)
					pool_cap(&host->pools[host->vcpus[v].pool],
						 (pol_u32)weight_of(&host->vcpus[v]));
		}
	}
}

/* What a fair scheduler would have given it. */
static pol_u64 part_of(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	const struct gang_pool *pool;

	if (vcpu->pool == PINNED)
		return part_there(vcpu, &host->cpus[vcpu->cpu]);
	pool = &host->pools[vcpu->pool];
	return weight_of(vcpu) > pool->level ? pool->most :
	       pol_mul_div(pool->time, weight_of(vcpu), pool->weight);
}

/* The parts of those whose time is the group's. */
static void pools_group(struct gang_host *host)
{
	pol_u32 i, v, end;

	for (i = 0; i < host->vm_count; i++) {
		if (gang_is_high(&host->vms[i]))
			continue;
		end = end_of(host, &host->vms[i]);
		for (v = host->vms[i].first; v < end; v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];

			if (vcpu->pool < GANG_POOLS_MAX &&
			    is_of_group(&host->vms[i], &host->cpus[vcpu->cpu]))
				host->pools[vcpu->pool].group_part += part_of(host, vcpu);
		}
	}
}

/* What counts as a vCPU's time. */
static pol_u64 charge_of(const struct gang_host *host, const struct gang_vm *vm,
			 const struct gang_vcpu *vcpu, pol_u64 part)
{
	const struct gang_cpu *cpu = &host->cpus[vcpu->cpu];
	const struct gang_pool *pool;

	if (vcpu->pool == PINNED || !is_of_group(vm, cpu))
		return charge_there(vm, vcpu, cpu);
	pool = &host->pools[vcpu->pool];
	if (!pool->group_part)
		return charge_there(vm, vcpu, cpu);
	return pol_mul_div(pool->group_time, part, pool->group_part);
}

static void vm_account(const struct gang_host *host, struct gang_vm *vm, pol_u64 clamp)
{
	pol_u32 v, end = end_of(host, vm);

	vm->owed = clamped(vm->owed, GANG_TIME_MAX);
	vm->wanting = 0;
	for (v = vm->first; v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];
		pol_u64 part;

		if (vcpu->pool == NO_PART)
			continue;
		part = part_of(host, vcpu);
		vm->wanting += !!vcpu->wants;
		vm->owed += (gang_s64)part;
		vm->owed -= (gang_s64)charge_of(host, vm, vcpu, part);
	}
	vm->owed = vm->wanting ? clamped(vm->owed, pol_sat_mul(clamp, vm->wanting)) :
				  divided(vm->owed, 2);
}

void gang_account(struct gang_host *host, pol_u64 turn)
{
	pol_u32 i;

	cpus_sum(host);
	pools_sum(host, turn);
	pools_fill(host);
	pools_group(host);
	for (i = 0; i < host->vm_count; i++)
		vm_account(host, &host->vms[i], pol_sat_mul(GANG_CLAMP_TURNS, turn));
}

/* --- which pCPUs are free --- */

/* The row of the first pCPU of the same core, cache or node. */
static struct gang_cpu *first_of(const struct gang_host *host, pol_u32 number)
{
	return &host->cpus[number < host->cpu_count ? number : 0];
}

static pol_u8 is_free(const struct gang_host *host, pol_u32 cpu)
{
	return host->free[cpu / 64] >> cpu % 64 & 1;
}

/* A core with a thread that somebody owns, or that is not usable, is not whole. */
static void core_counts(struct gang_host *host, const struct gang_cpu *core, pol_u8 whole)
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

static void give_back(struct gang_host *host, pol_u32 i)
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

/* A free pCPU gets an owner, for this vCPU. */
static void take(struct gang_host *host, pol_u32 i, pol_u32 owner, pol_u32 v)
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

/* Nobody owns a pCPU, and no vCPU has a target. */
static void all_free(struct gang_host *host)
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

/* Where a vCPU should rather be, and how much of that has room for its whole VM. */
struct wish {
	pol_u32 cache, node;
	pol_u32 room;
};

static void wish_for(const struct gang_host *host, pol_u32 cpu, struct wish *wish)
{
	wish->cache = host->cpus[cpu].cache;
	wish->node = host->cpus[cpu].node;
	wish->room = ANYWHERE;
}

static pol_u8 is_in_room(const struct gang_host *host, const struct wish *wish, pol_u32 cpu)
{
	if (wish->room == IN_CACHE)
		return host->cpus[cpu].cache == wish->cache;
	return wish->room == ANYWHERE || host->cpus[cpu].node == wish->node;
}

/* What a pCPU is worth, from 0 on. Of the cache, of the node, any; each a whole core first. */
static pol_u32 worth_of(const struct gang_host *host, const struct wish *wish, pol_u32 i)
{
	const struct gang_cpu *cpu = &host->cpus[i];
	pol_u32 near = cpu->cache == wish->cache ? 4 : cpu->node == wish->node ? 2 : 0;

	return near + !first_of(host, cpu->core)->core_taken;
}

/* No free pCPU is worth more. */
static pol_u32 most_worth(const struct gang_host *host, const struct wish *wish)
{
	const struct gang_cpu *cache = first_of(host, wish->cache), *node = first_of(host, wish->node);

	if (cache->cache_free)
		return 4 + !!cache->cache_whole;
	if (node->node_free)
		return 2 + !!node->node_whole;
	return !!host->whole_count;
}

/* Free pCPUs of a word of 64 where the vCPU may run. */
static pol_u64 free_there(const struct gang_host *host, const struct gang_vcpu *vcpu, pol_u32 word)
{
	return vcpu->allowed ? host->free[word] & vcpu->allowed[word] : 0;
}

struct choice {
	pol_u32 cpu, worth;
};

/* Whether the pCPU, the first or better than all before, is as good as any. */
static pol_u8 consider(const struct gang_host *host, const struct wish *wish, pol_u32 cpu,
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
 * The free pCPU that is worth most, of those where the vCPU is allowed to run; GANG_NONE: there is none. Of
 * equals it is the first from the wish's cache on.
 */
static pol_u32 choose(const struct gang_host *host, const struct gang_vcpu *vcpu,
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

/* --- the order of VMs --- */

/* The last number of a turn is followed by 1. */
static pol_u32 turns_since(const struct gang_host *host, pol_u32 turn)
{
	return host->turn >= turn ? host->turn - turn : ~(turn - host->turn);
}

/* Turns since its last. A VM that is LOW waits where the group has had none for longest. */
static pol_u32 waited(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm), most = 0, turns;

	if (gang_is_high(vm))
		return turns_since(host, vm->last_turn);
	for (v = vm->first; v < end; v++) {
		if (!wants(host, &host->vcpus[v]))
			continue;
		turns = turns_since(host, host->cpus[host->vcpus[v].cpu].low_last_turn);
		most = turns > most ? turns : most;
	}
	return most;
}

/*
 * By what is owed for each vCPU that wants to run; of equals, who has not had a turn for longer;
 * of these by index.
 */
static pol_u8 comes_before(const struct gang_host *host, pol_u32 i, pol_u32 k)
{
	const struct gang_vm *a = &host->vms[i], *b = &host->vms[k];
	gang_s64 left = clamped(a->owed, GANG_TIME_MAX) * pol_clamp_u32(b->wanting, 0, WANTING_MAX);
	gang_s64 right = clamped(b->owed, GANG_TIME_MAX) * pol_clamp_u32(a->wanting, 0, WANTING_MAX);

	if (left != right)
		return left > right;
	return a->waited != b->waited ? a->waited > b->waited : i < k;
}

/* The heap below "root" is one again: whoever comes last is on top. */
static void sift(struct gang_host *host, pol_u32 root, pol_u32 count)
{
	pol_u32 *order = host->order, child, top = order[root];

	for (; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && comes_before(host, order[child], order[child + 1]))
			child++;
		if (!comes_before(host, top, order[child]))
			break;
		order[root] = order[child];
	}
	order[root] = top;
}

/* VMs that want to run, in order. Returns how many. */
static pol_u32 sort_vms(struct gang_host *host)
{
	pol_u32 count = 0, i, last;

	for (i = 0; i < host->vm_count; i++) {
		if (!host->vms[i].wanting)
			continue;
		host->vms[i].waited = waited(host, &host->vms[i]);
		host->order[count++] = i;
	}
	for (i = count / 2; i > 0; i--)
		sift(host, i - 1, count);
	for (i = count; i > 1; i--) {
		last = host->order[0];
		host->order[0] = host->order[i - 1];
		host->order[i - 1] = last;
		sift(host, 0, i - 1);
	}
	return count;
}

/* --- pCPUs for a VM that is HIGH --- */

enum { NOWHERE, ALONE, SHARES };	/* gang_vcpu.placed: with others of its VM behind it, or not */

/*
 * Each vCPU that wants to run gets the pCPU it is on, if that is in the room; of two on one, the first.
 * Returns how many got none.
 */
static pol_u32 own_where_they_are(struct gang_host *host, pol_u32 who, const struct wish *wish)
{
	const struct gang_vm *vm = &host->vms[who];
	pol_u32 v, end = end_of(host, vm), missing = 0;

	for (v = vm->first; v < end; v++) {
		struct gang_vcpu *vcpu = &host->vcpus[v];
		const struct gang_cpu *cpu;

		vcpu->placed = NOWHERE;
		if (!wants(host, vcpu))
			continue;
		cpu = &host->cpus[vcpu->cpu];
		if (is_free(host, vcpu->cpu) && is_in_room(host, wish, vcpu->cpu)) {
			vcpu->placed = ALONE;
			take(host, vcpu->cpu, who, v);
			continue;
		}
		missing++;
		if (cpu->owner == who)
			host->vcpus[cpu->vcpu].placed = SHARES;
	}
	return missing;
}

static void disown(struct gang_host *host, pol_u32 who)
{
	pol_u32 v, end = end_of(host, &host->vms[who]);

	for (v = host->vms[who].first; v < end; v++) {
		if (host->vcpus[v].target == GANG_NONE)
			continue;
		give_back(host, host->vcpus[v].target);
		host->vcpus[v].target = GANG_NONE;
	}
}

/* The cache where most of a VM's vCPUs have targets, or where its first is that wants to run. */
static void wish_of(struct gang_host *host, const struct gang_vm *vm, struct wish *wish)
{
	pol_u32 v, end = end_of(host, vm), most = 0, placed;

	wish->cache = wish->node = 0;
	wish->room = ANYWHERE;
	for (v = end; v > vm->first; v--)
		if (wants(host, &host->vcpus[v - 1]))
			wish_for(host, host->vcpus[v - 1].cpu, wish);
	for (v = vm->first; v < end; v++) {
		pol_u32 target = host->vcpus[v].target;

		if (target == GANG_NONE)
			continue;
		placed = ++first_of(host, host->cpus[target].cache)->placed;
		if (placed <= most)
			continue;
		most = placed;
		wish_for(host, target, wish);
	}
	for (v = vm->first; v < end; v++)
		if (host->vcpus[v].target != GANG_NONE)
			first_of(host, host->cpus[host->vcpus[v].target].cache)->placed = 0;
}

static pol_u8 any_alone(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++)
		if (host->vcpus[v].placed == ALONE)
			return 1;
	return 0;
}

/* The first pCPU of another cache, or of another node, that has room; GANG_NONE: there is none. */
static pol_u32 other_with_room(const struct gang_host *host, const struct gang_vm *vm,
			       const struct wish *wish)
{
	const struct gang_vcpu *vcpu = &host->vcpus[vm->first];
	pol_u8 cache = wish->room == IN_CACHE;
	pol_u32 best = GANG_NONE, i;

	for (i = 0; vcpu->allowed && i < host->cpu_count; i++) {
		const struct gang_cpu *cpu = &host->cpus[i];

		if ((cache ? cpu->cache : cpu->node) != i || !(vcpu->allowed[i / 64] >> i % 64 & 1) ||
		    (cache ? cpu->cache_free : cpu->node_free) < vm->wanting)
			continue;
		if (cpu->node == wish->node)
			return i;
		best = best == GANG_NONE ? i : best;
	}
	return best;
}

/* Whether a cache, or a node, has room for a whole VM: the wish's, or else another. */
static pol_u8 find_room(const struct gang_host *host, const struct gang_vm *vm, pol_u32 room,
			struct wish *wish)
{
	pol_u32 other;

	wish->room = room;
	if ((room == IN_CACHE ? first_of(host, wish->cache)->cache_free :
				first_of(host, wish->node)->node_free) >= vm->wanting)
		return 1;
	other = other_with_room(host, vm, wish);
	if (other == GANG_NONE)
		return 0;
	wish_for(host, other, wish);
	wish->room = room;
	return 1;
}

/* The vCPU that has the pCPU where this one is goes to another, if it can: this one has it then. */
static pol_u8 make_room(struct gang_host *host, pol_u32 who, pol_u32 v, const struct wish *wish)
{
	pol_u32 here = host->vcpus[v].cpu, other, cpu;

	if (host->cpus[here].owner != who)
		return 0;
	other = host->cpus[here].vcpu;
	cpu = choose(host, &host->vcpus[other], wish);
	if (cpu == GANG_NONE)
		return 0;
	take(host, cpu, who, other);
	host->cpus[here].vcpu = v;
	host->vcpus[v].target = here;
	return 1;
}

/* A pCPU for each vCPU that wants to run and has none yet. 0: one of them found none. */
static pol_u8 own_others(struct gang_host *host, pol_u32 who, const struct wish *wish)
{
	pol_u32 v, end = end_of(host, &host->vms[who]), cpu;

	for (v = host->vms[who].first; v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];

		if (vcpu->target != GANG_NONE || !wants(host, vcpu))
			continue;
		cpu = choose(host, vcpu, wish);
		if (cpu != GANG_NONE)
			take(host, cpu, who, v);
		else if (!make_room(host, who, v, wish))
			return 0;
	}
	return 1;
}

/* A VM none of whose vCPUs is alone goes to one cache, or else to one node. 0: some may not. */
static pol_u8 gather(struct gang_host *host, pol_u32 who)
{
	const struct gang_vm *vm = &host->vms[who];
	struct wish wish;

	if (any_alone(host, vm))
		return 0;
	wish_of(host, vm, &wish);
	disown(host, who);
	if (!find_room(host, vm, IN_CACHE, &wish) && !find_room(host, vm, IN_NODE, &wish))
		return 0;
	own_where_they_are(host, who, &wish);
	return own_others(host, who, &wish);
}

/* Gives a VM a pCPU for each vCPU that wants to run, or none at all. */
static pol_u8 own_cpus(struct gang_host *host, pol_u32 who, pol_u8 may_gather)
{
	static const struct wish anywhere = { 0, 0, ANYWHERE };
	struct wish wish;

	if (host->free_count < host->vms[who].wanting)
		return 0;
	if (!own_where_they_are(host, who, &anywhere))
		return 1;
	if (may_gather) {
		if (gather(host, who))
			return 1;
		disown(host, who);
		own_where_they_are(host, who, &anywhere);
	}
	wish_of(host, &host->vms[who], &wish);
	if (own_others(host, who, &wish))
		return 1;
	disown(host, who);
	return 0;
}

/* Whether each vCPU that wants to run is alone on a pCPU, of its VM: it needs no other then. */
static pol_u8 all_alone(struct gang_host *host, pol_u32 who)
{
	const struct gang_vm *vm = &host->vms[who];
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++) {
		struct gang_cpu *cpu;

		if (!wants(host, &host->vcpus[v]))
			continue;
		cpu = &host->cpus[host->vcpus[v].cpu];
		if (!cpu->usable || cpu->seen == who)
			return 0;
		cpu->seen = who;
	}
	return 1;
}

/* Which VMs have too few pCPUs, were they alone on the host. All pCPUs are free. Whether any is HIGH. */
static pol_u8 find_unplaced(struct gang_host *host)
{
	pol_u8 any = 0;
	pol_u32 i;

	for (i = 0; i < host->vm_count; i++) {
		struct gang_vm *vm = &host->vms[i];

		vm->unplaced = 0;
		if (!vm->high || !vm->wanting)
			continue;
		if (!all_alone(host, i)) {
			vm->unplaced = !own_cpus(host, i, 0);
			disown(host, i);
		}
		any |= gang_is_high(vm);
	}
	return any;
}

/* --- pCPUs for the group --- */

/* The group has every free pCPU where a vCPU of this VM wants to run. Where two are on one, both have it. */
static void group_owns_cpus(struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++)
		if (wants(host, &host->vcpus[v]) && is_free(host, host->vcpus[v].cpu))
			take(host, host->vcpus[v].cpu, GANG_LOW, v);
}

/* Its vCPUs that wait for pCPUs of others get free ones. "behind": behind others of the group. */
static void group_spreads(struct gang_host *host, const struct gang_vm *vm, pol_u8 behind)
{
	pol_u32 v, end = end_of(host, vm), cpu;
	struct wish wish;

	for (v = vm->first; host->free_count && v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];

		if (vcpu->target != GANG_NONE || !wants(host, vcpu))
			continue;
		if (behind && host->cpus[vcpu->cpu].owner != GANG_LOW)
			continue;
		wish_for(host, vcpu->cpu, &wish);
		cpu = choose(host, vcpu, &wish);
		if (cpu != GANG_NONE)
			take(host, cpu, GANG_LOW, v);
	}
}

/* vCPUs without a pCPU for themselves run where they are, if that is the group's. */
static void group_stays(struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++) {
		struct gang_vcpu *vcpu = &host->vcpus[v];

		if (vcpu->target == GANG_NONE && is_there(host, vcpu) &&
		    host->cpus[vcpu->cpu].owner == GANG_LOW)
			vcpu->target = vcpu->cpu;
	}
}

/* --- the turn that starts --- */

static void place(struct gang_host *host, pol_u32 who)
{
	if (gang_is_high(&host->vms[who])) {
		own_cpus(host, who, 1);
	} else {
		group_owns_cpus(host, &host->vms[who]);
		group_spreads(host, &host->vms[who], 1);
	}
}

/* Not before all are placed: their order is by the turns before. */
static void note_turn(struct gang_host *host)
{
	pol_u32 i;

	host->turn = host->turn < ~(pol_u32)0 ? host->turn + 1 : 1;
	for (i = 0; i < host->cpu_count; i++)
		if (host->cpus[i].owner < GANG_LOW)
			host->vms[host->cpus[i].owner].last_turn = host->turn;
}

static void note_group(struct gang_host *host)
{
	pol_u32 i;

	for (i = 0; i < host->cpu_count; i++)
		if (host->cpus[i].owner == GANG_LOW)
			host->cpus[i].low_last_turn = host->turn;
}

/* pCPUs that are left are kept for vCPUs that sleep and whose VM has a turn: where they are, or anywhere. */
static void keep_for_sleepers(struct gang_host *host, pol_u8 anywhere)
{
	pol_u32 i, v, end, cpu;
	struct wish wish;

	for (i = 0; host->free_count && i < host->vm_count; i++) {
		const struct gang_vm *vm = &host->vms[i];

		if (!gang_is_high(vm) || vm->last_turn != host->turn)
			continue;
		if (anywhere)
			wish_of(host, vm, &wish);
		end = end_of(host, vm);
		for (v = vm->first; v < end; v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];

			if (vcpu->target != GANG_NONE || vcpu->held_back || !is_there(host, vcpu))
				continue;
			cpu = is_free(host, vcpu->cpu) ? vcpu->cpu :
			      anywhere ? choose(host, vcpu, &wish) : GANG_NONE;
			if (cpu != GANG_NONE)
				take(host, cpu, i, v);
		}
	}
}

/* What is left once all that want to run were asked in order. Who wants to run comes before who sleeps. */
static void place_rest(struct gang_host *host, pol_u32 count)
{
	pol_u32 i;

	keep_for_sleepers(host, 0);
	for (i = 0; i < count; i++)
		if (!gang_is_high(&host->vms[host->order[i]]))
			group_spreads(host, &host->vms[host->order[i]], 0);
	keep_for_sleepers(host, 1);
	for (i = 0; i < host->vm_count; i++)
		if (!gang_is_high(&host->vms[i]))
			group_stays(host, &host->vms[i]);
}

pol_u8 gang_turn(struct gang_host *host)
{
	pol_u32 count, i;
	pol_u8 any_high;

	all_free(host);
	any_high = find_unplaced(host);
	count = sort_vms(host);
	if (!any_high || count < 2)
		return 0;
	for (i = 0; i < count; i++)
		place(host, host->order[i]);
	note_turn(host);
	place_rest(host, count);
	note_group(host);
	return 1;
}

pol_u8 gang_may_run(const struct gang_host *host, pol_u32 vm, pol_u32 cpu)
{
	pol_u32 owner = cpu < host->cpu_count ? host->cpus[cpu].owner : GANG_NONE;

	if (owner == GANG_NONE || vm >= host->vm_count)
		return 1;
	return owner == (gang_is_high(&host->vms[vm]) ? vm : GANG_LOW);
}

/* --- holes --- */

pol_u32 gang_fill(const struct gang_filler *candidates, pol_u32 count)
{
	pol_u32 best = GANG_NONE, i;

	for (i = 0; i < count && i < GANG_FILLERS_MAX; i++) {
		if (candidates[i].lock)
			continue;
		if (best == GANG_NONE || candidates[i].owed > candidates[best].owed)
			best = i;
	}
	return best;
}

/* --- tasks of the host --- */

static gang_s64 mean(gang_s64 before, gang_s64 of_turn)
{
	before = clamped(before, GANG_TIME_MAX);
	return before + divided(of_turn - before, GANG_USE_TURNS);
}

void gang_use_begin(struct gang_use *use, pol_u64 turn)
{
	use->of_host = 0;
	use->of_all = (gang_s64)limited(turn);
	use->used = 0;
}

pol_u8 gang_use(struct gang_use *use, gang_s64 of_host, pol_u64 turn)
{
	use->of_host = mean(use->of_host, clamped(of_host, turn));
	use->of_all = mean(use->of_all, (gang_s64)limited(turn));
	if (use->of_host * 100 > use->of_all * GANG_USE_MOST_PERCENT)
		use->used = 1;
	else if (use->of_host * 100 < use->of_all * GANG_USE_AGAIN_PERCENT)
		use->used = 0;
	return use->used;
}
