// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A turn ends: what each VM is owed after it (policy/gang.h).
 */
#include "gang_rows.h"

static pol_u64 weight_of(const struct gang_vcpu *vcpu)
{
	return pol_clamp_u32(vcpu->weight, 1, GANG_WEIGHT_MAX);
}

static pol_u64 time_of(const struct gang_vcpu *vcpu)
{
	return limited(vcpu->got);
}

static pol_u8 takes_part(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return is_there(host, vcpu) && !vcpu->held_back && (vcpu->wants || vcpu->got);
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
		several |= word && (any || (word & (word - 1)));
		any |= word;
		number ^= word;
		number ^= number << 13;	/* xorshift64, Marsaglia 2003 */
		number ^= number >> 7;
		number ^= number << 17;
	}
	return !several ? 0 : number ? number : 1;
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

/* By field: a compiler may call memcpy() to copy a structure. */
static void pool_init(struct gang_pool *pool)
{
	pool->set = pool->time = pool->weight = pool->most = 0;
	pool->group_time = pool->group_part = 0;
	pool->count = pool->heaviest = pool->level = pool->level_before = 0;
}

/* What each pool has to divide. */
static void pools_sum(struct gang_host *host, pol_u64 turn)
{
	pol_u32 i, v, end;

	for (i = 0; i < GANG_POOLS_MAX; i++)
		pool_init(&host->pools[i]);
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

/* --- what VMs are owed --- */

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
