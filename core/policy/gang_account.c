// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Accounts a turn that ended: what each VM is owed (policy/gang.h).
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

/* Whether its time belongs to the group, whose vCPUs ran as the scheduler placed them. */
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

/* Sums up the time and the weight of all vCPUs per pCPU. */
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

/* Its part of its pCPU's time. */
static pol_u64 part_there(const struct gang_vcpu *vcpu, const struct gang_cpu *cpu)
{
	return pol_mul_div(cpu->time, weight_of(vcpu), cpu->weight);
}

/* The time that it is charged there. */
static pol_u64 charge_there(const struct gang_vm *vm, const struct gang_vcpu *vcpu,
			    const struct gang_cpu *cpu)
{
	if (!is_of_group(vm, cpu))
		return time_of(vcpu);
	return pol_mul_div(cpu->group_time, weight_of(vcpu), cpu->group_weight);
}

/* --- dividing a time --- */

/* Field by field, because a compiler may call memset() to clear a structure. */
static void division_init(struct gang_division *division)
{
	division->time = division->weight = division->most = 0;
	division->heaviest = division->level_before = 0;
	division->level = POL_U64_MAX;
	division->count = division->reserved = 0;
}

static void division_add(struct gang_division *division, pol_u64 time, pol_u64 weight)
{
	division->time += time;
	division->weight += weight;
	division->heaviest = weight > division->heaviest ? weight : division->heaviest;
	division->count++;
}

/* Sets the limit, but never below the mean, so that all of the time is given away. */
static void division_begin(struct gang_division *division, pol_u64 most)
{
	pol_u32 count = division->count;
	pol_u64 mean = count ? (division->time + count - 1) / count : 0;

	division->most = most > mean ? most : mean;
}

/* Computes the weight above which a share would exceed the limit. False: there is none. */
static pol_u8 division_level(struct gang_division *division)
{
	pol_u64 level;

	division->level_before = division->level;
	if (!division->count)
		return 0;
	level = pol_mul_div(division->most, division->weight, division->time);
	if (division->heaviest <= level)
		return 0;
	division->level = level;
	division->heaviest = 0;
	return 1;
}

/*
 * Gives the limit to one that is above the level now; the others divide what is left. At least one
 * stays below the level, because "most" is not less than the mean.
 */
static void division_cap(struct gang_division *division, pol_u64 weight)
{
	if (weight <= division->level) {
		division->heaviest = weight > division->heaviest ? weight : division->heaviest;
	} else if (weight <= division->level_before) {
		division->time -= division->most;
		division->weight -= weight;
	}
}

static pol_u64 division_share(const struct gang_division *division, pol_u64 weight)
{
	return weight > division->level ? division->most :
	       pol_mul_div(division->time, weight, division->weight);
}

/* --- pools: vCPUs that may run on the same pCPUs --- */

enum { PINNED = GANG_POOLS_MAX, NO_PART };	/* gang_vcpu.pool */

/* A number for the set of pCPUs on which the vCPU may run; 0: it is pinned. */
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

/* Once all pools are used, further sets share the last one. */
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
	division_add(&pool->all, part_there(vcpu, cpu), weight_of(vcpu));
	if (is_of_group(vm, cpu))
		pool->group.time += charge_there(vm, vcpu, cpu);
}

/* Sums up each pool. The limit per vCPU is most of a turn, or the mean if that is more. */
static void pools_sum(struct gang_host *host, pol_u64 turn)
{
	pol_u32 i, v, end;

	for (i = 0; i < GANG_POOLS_MAX; i++) {
		host->pools[i].set = 0;
		division_init(&host->pools[i].all);
		division_init(&host->pools[i].group);
	}
	for (i = 0; i < host->vm_count; i++) {
		end = end_of(host, &host->vms[i]);
		for (v = host->vms[i].first; v < end; v++)
			pool_add(host, &host->vms[i], &host->vcpus[v]);
	}
	for (i = 0; i < GANG_POOLS_MAX; i++)
		division_begin(&host->pools[i].all, limited(turn) / 8 * GANG_MOST_EIGHTHS);
}

/* The time that a fair scheduler would have given it. */
static pol_u64 part_of(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	if (vcpu->pool == PINNED)
		return part_there(vcpu, &host->cpus[vcpu->cpu]);
	return division_share(&host->pools[vcpu->pool].all, weight_of(vcpu));
}

/* Whether its charge is a share of what its pool is charged. */
static pol_u8 shares_charge(const struct gang_host *host, const struct gang_vm *vm,
			    const struct gang_vcpu *vcpu)
{
	return vcpu->pool < GANG_POOLS_MAX && is_of_group(vm, &host->cpus[vcpu->cpu]);
}

/* The weight by which the group's time is divided. Never 0, so that one is left when others are capped. */
static pol_u64 charge_weight(pol_u64 part)
{
	return part ? part : 1;
}

/* Sums up what the group is charged. The limit per vCPU is a turn, or the mean if that is more. */
static void groups_sum(struct gang_host *host, pol_u64 turn)
{
	pol_u32 i, v, end;

	for (i = 0; i < host->vm_count; i++) {
		if (gang_is_high(&host->vms[i]))
			continue;
		end = end_of(host, &host->vms[i]);
		for (v = host->vms[i].first; v < end; v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];

			if (shares_charge(host, &host->vms[i], vcpu))
				division_add(&host->pools[vcpu->pool].group, 0,
					     charge_weight(part_of(host, vcpu)));
		}
	}
	for (i = 0; i < GANG_POOLS_MAX; i++)
		division_begin(&host->pools[i].group, limited(turn));
}

static struct gang_division *division_of(struct gang_pool *pool, pol_u8 group)
{
	return group ? &pool->group : &pool->all;
}

static void vm_fill(struct gang_host *host, const struct gang_vm *vm, pol_u8 group)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];

		if (group ? shares_charge(host, vm, vcpu) : vcpu->pool < GANG_POOLS_MAX)
			division_cap(division_of(&host->pools[vcpu->pool], group),
				     group ? charge_weight(part_of(host, vcpu)) : weight_of(vcpu));
	}
}

/* Finds the levels of all pools: for parts, or for what the group is charged. */
static void pools_fill(struct gang_host *host, pol_u8 group)
{
	pol_u32 pass, i;
	pol_u8 any;

	for (pass = 0; pass < GANG_FILL_PASSES; pass++) {
		any = 0;
		for (i = 0; i < GANG_POOLS_MAX; i++)
			any |= division_level(division_of(&host->pools[i], group));
		if (!any)
			return;
		for (i = 0; i < host->vm_count; i++)
			vm_fill(host, &host->vms[i], group);
	}
}

/* --- what VMs are owed --- */

/* The time that a vCPU is charged. */
static pol_u64 charge_of(const struct gang_host *host, const struct gang_vm *vm,
			 const struct gang_vcpu *vcpu, pol_u64 part)
{
	if (!shares_charge(host, vm, vcpu))
		return charge_there(vm, vcpu, &host->cpus[vcpu->cpu]);
	return division_share(&host->pools[vcpu->pool].group, charge_weight(part));
}

/* Its time outside its turns, and whether that is as much as a turn gives. */
static void apart_account(const struct gang_host *host, struct gang_vm *vm, pol_u64 got, pol_u64 turn)
{
	pol_u8 waits = gang_is_high(vm) && vm->last_turn != host->turn;

	vm->apart = !waits ? 0 : limited(pol_sat_add(vm->apart, got));
	vm->apart_enough = vm->wanting && vm->apart >= pol_sat_mul(limited(turn), vm->wanting);
}

/* The balance after a turn: within the clamp per vCPU that wants to run; halved if none does. */
static gang_s64 balance_after(const struct gang_vm *vm, gang_s64 balance, pol_u64 clamp)
{
	return vm->wanting ? clamped(balance, pol_sat_mul(clamp, vm->wanting)) : divided(balance, 2);
}

static void vm_account(const struct gang_host *host, struct gang_vm *vm, pol_u64 turn)
{
	pol_u64 clamp = pol_sat_mul(GANG_CLAMP_TURNS, turn), got = 0;
	gang_s64 parts = 0;
	pol_u32 v, end = end_of(host, vm);

	vm->owed = clamped(vm->owed, GANG_TIME_MAX);
	vm->behind = clamped(vm->behind, GANG_TIME_MAX);
	vm->wanting = 0;
	for (v = vm->first; v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];
		pol_u64 part;

		if (vcpu->pool == NO_PART)
			continue;
		part = part_of(host, vcpu);
		vm->wanting += !!vcpu->wants;
		got = pol_sat_add(got, time_of(vcpu));
		parts += (gang_s64)part;
		vm->owed -= (gang_s64)charge_of(host, vm, vcpu, part);
	}
	vm->owed = balance_after(vm, vm->owed + parts, clamp);
	vm->behind = balance_after(vm, vm->behind + parts - (gang_s64)got, clamp);
	apart_account(host, vm, got, turn);
}

void gang_account(struct gang_host *host, pol_u64 turn)
{
	pol_u32 i;

	cpus_sum(host);
	pools_sum(host, turn);
	pools_fill(host, 0);
	groups_sum(host, turn);
	pools_fill(host, 1);
	for (i = 0; i < host->vm_count; i++)
		vm_account(host, &host->vms[i], turn);
}
