// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Asymmetric vCPUs: three components, each one transition per period.
 *
 * Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey
 * Institute of Technology, sections 5.4.1, 5.4.2 and 5.4.3.
 */
#include "asym.h"

#define NS_PER_US 1000u

/* What asym_latency() decided for a vCPU, in its scratch field. */
enum { KEEP, LOWER, RAISE };

_Static_assert(sizeof(struct asym_params) == 32, "part of the trace format");
_Static_assert(sizeof(struct asym_vcpu) == 40, "part of the trace format");
_Static_assert(sizeof(struct asym_core) == 24, "part of the trace format");

int asym_params_check(const struct asym_params *params)
{
	if (params->grow_ppm > ASYM_PPM)
		return 1;
	if (!params->latency_min_us)
		return 3;
	if (params->latency_max_us < params->latency_min_us)
		return 4;
	if (params->latency_init_us < params->latency_min_us ||
	    params->latency_init_us > params->latency_max_us)
		return 5;
	if (params->urgent_us >= params->latency_max_us)
		return 6;
	if (!params->conflict_ratio)
		return 8;
	return 0;
}

/* If the bounds contradict each other, the latency is the upper bound; 0 counts as 1. */
static pol_u32 clamp_latency(const struct asym_params *params, pol_u64 latency_us)
{
	pol_u32 high = params->latency_max_us ? params->latency_max_us : 1;
	pol_u32 low = params->latency_min_us ? params->latency_min_us : 1;

	return pol_clamp_u32(latency_us, low < high ? low : high, high);
}

void asym_vcpu_init(struct asym_vcpu *vcpu, const struct asym_params *params, pol_u32 core)
{
	pol_u32 i;

	/* Field by field: a compiler may call memset for a whole structure. */
	vcpu->allocated_ns = 0;
	vcpu->consumed_ns = 0;
	vcpu->wakers = 0;
	vcpu->latency_us = clamp_latency(params, params->latency_init_us);
	vcpu->core = core;
	vcpu->ready = 0;
	vcpu->change = KEEP;
	vcpu->vm = 0;
	for (i = 0; i < sizeof(vcpu->reserved); i++)
		vcpu->reserved[i] = 0;
}

/* Lowers the latency of a late vCPU; if it is the lowest already, that of those which wake it. */
static void lower_for(struct asym_vcpu *vcpus, pol_u32 count, pol_u32 late,
		      const struct asym_params *params)
{
	pol_u32 i;

	if (vcpus[late].latency_us > clamp_latency(params, 0)) {
		vcpus[late].change = LOWER;
		return;
	}
	for (i = 0; i < count && i < ASYM_WAKERS_MAX; i++)
		if (i != late && (vcpus[late].wakers >> i & 1))
			vcpus[i].change = LOWER;
}

void asym_latency(struct asym_vcpu *vcpus, pol_u32 count, const struct asym_params *params)
{
	pol_u32 i;

	for (i = 0; i < count; i++)
		vcpus[i].change =
			!vcpus[i].ready && vcpus[i].consumed_ns >= vcpus[i].allocated_ns ? RAISE : KEEP;
	for (i = 0; i < count; i++)
		if (vcpus[i].ready && vcpus[i].consumed_ns < vcpus[i].allocated_ns)
			lower_for(vcpus, count, i, params);
	for (i = 0; i < count; i++) {
		pol_u64 latency_us = vcpus[i].latency_us;

		if (vcpus[i].change == LOWER)
			latency_us /= 2;
		else if (vcpus[i].change == RAISE)
			latency_us *= 2;
		vcpus[i].latency_us = clamp_latency(params, latency_us);
	}
}

/* What a vCPU is expected to need in the next period. */
static pol_u64 demand_ns(const struct asym_vcpu *vcpu, const struct asym_params *params)
{
	pol_u64 low = (pol_u64)params->demand_min_us * NS_PER_US;
	pol_u64 demand = vcpu->consumed_ns;

	if (vcpu->ready) {
		if (demand < vcpu->allocated_ns)
			demand = vcpu->allocated_ns;
		demand = pol_mul_div(demand, (pol_u64)ASYM_PPM + params->grow_ppm, ASYM_PPM);
	}
	if (demand < low)
		demand = low;
	return demand < ASYM_DEMAND_MAX_NS ? demand : ASYM_DEMAND_MAX_NS;
}

void asym_allocate(struct asym_vcpu *vcpus, pol_u32 count, const struct asym_params *params,
		   pol_u64 vm_ns, pol_u64 switch_ns)
{
	pol_u64 total_ns = vm_ns > switch_ns ? vm_ns - switch_ns : 0;
	pol_u64 sum = 0, below = 0, given = 0;
	pol_u32 i;

	for (i = 0; i < count; i++) {
		vcpus[i].allocated_ns = demand_ns(&vcpus[i], params);
		sum = pol_sat_add(sum, vcpus[i].allocated_ns);
	}
	/* Differences of running sums: what one vCPU loses by rounding, the next one gets. */
	for (i = 0; i < count; i++) {
		pol_u64 upto;

		below = sum ? pol_sat_add(below, vcpus[i].allocated_ns) : i + 1;
		upto = pol_mul_div(total_ns, below, sum ? sum : count);
		vcpus[i].allocated_ns = upto - given;
		given = upto;
	}
}

static void swap_cores(struct asym_vcpu *a, struct asym_vcpu *b)
{
	pol_u32 core = a->core;

	a->core = b->core;
	b->core = core;
}

static pol_u32 siblings_on(const struct asym_vcpu *vcpus, pol_u32 count, pol_u16 vm, pol_u32 core)
{
	pol_u32 found = 0, i;

	for (i = 0; i < count; i++)
		found += vcpus[i].vm == vm && vcpus[i].core == core;
	return found;
}

/* Whether a vCPU may move to this core: it must have fewer of its siblings than its own core. */
static pol_u8 may_come(const struct asym_vcpu *vcpus, pol_u32 count, pol_u32 i, pol_u32 core)
{
	pol_u16 vm = vcpus[i].vm;

	return siblings_on(vcpus, count, vm, core) < siblings_on(vcpus, count, vm, vcpus[i].core);
}

/* Siblings may always swap. */
static pol_u8 may_swap(const struct asym_vcpu *vcpus, pol_u32 count, pol_u32 a, pol_u32 b)
{
	return vcpus[a].vm == vcpus[b].vm || (may_come(vcpus, count, a, vcpus[b].core) &&
					      may_come(vcpus, count, b, vcpus[a].core));
}

static pol_u64 distance(pol_u64 a, pol_u64 b)
{
	return a > b ? a - b : b - a;
}

static void sum_cores(const struct asym_vcpu *vcpus, pol_u32 count, struct asym_core *cores,
		      pol_u32 core_count)
{
	pol_u32 i;

	for (i = 0; i < core_count; i++) {
		cores[i].allocated_ns = 0;
		cores[i].vcpus = 0;
	}
	for (i = 0; i < count; i++) {
		struct asym_core *core;

		if (vcpus[i].core >= core_count)
			continue;
		core = &cores[vcpus[i].core];
		core->allocated_ns = pol_sat_add(core->allocated_ns, vcpus[i].allocated_ns);
		core->vcpus++;
	}
}

/* The difference between the cores with the most and the least. */
struct gap {
	pol_u64 ns;
	pol_u64 left_ns;	/* what the best swap or move so far leaves of it */
	pol_u32 least;
};

/* The vCPU of the lesser core whose swap with vcpus[from] leaves the least difference, or count. */
static pol_u32 best_partner(const struct asym_vcpu *vcpus, pol_u32 count, pol_u32 from,
			    struct gap *gap)
{
	pol_u32 best = count, i;

	for (i = 0; i < count; i++) {
		pol_u64 moved, left;

		if (vcpus[i].core != gap->least || vcpus[i].allocated_ns >= vcpus[from].allocated_ns)
			continue;
		moved = vcpus[from].allocated_ns - vcpus[i].allocated_ns;
		left = distance(gap->ns, pol_sat_mul(moved, 2));
		if (left < gap->left_ns && may_swap(vcpus, count, from, i)) {
			gap->left_ns = left;
			best = i;
		}
	}
	return best;
}

pol_u32 asym_resolve_time(struct asym_vcpu *vcpus, pol_u32 count, struct asym_core *cores,
			  pol_u32 core_count, const struct asym_params *params)
{
	pol_u32 most = 0, least = 0, from = count, to = count, i;
	struct gap gap;

	sum_cores(vcpus, count, cores, core_count);
	for (i = 1; i < core_count; i++) {
		if (cores[i].allocated_ns > cores[most].allocated_ns)
			most = i;
		if (cores[i].allocated_ns < cores[least].allocated_ns)
			least = i;
	}
	if (!core_count ||
	    cores[most].allocated_ns <= pol_mul_div(cores[least].allocated_ns,
						    (pol_u64)ASYM_PPM + params->imbalance_ppm,
						    ASYM_PPM))
		return 0;

	gap.ns = cores[most].allocated_ns - cores[least].allocated_ns;
	gap.left_ns = gap.ns;
	gap.least = least;
	for (i = 0; i < count; i++) {
		pol_u64 alone;
		pol_u32 partner;

		if (vcpus[i].core != most)
			continue;
		partner = best_partner(vcpus, count, i, &gap);
		if (partner < count) {
			from = i;
			to = partner;
		}
		alone = distance(gap.ns, pol_sat_mul(vcpus[i].allocated_ns, 2));
		if (cores[least].vcpus < cores[most].vcpus && alone < gap.left_ns &&
		    may_come(vcpus, count, i, least)) {
			gap.left_ns = alone;
			from = i;
			to = count;
		}
	}
	if (from == count)
		return 0;
	if (to == count) {
		vcpus[from].core = least;
		return 1;
	}
	swap_cores(&vcpus[from], &vcpus[to]);
	return 2;
}

static pol_u8 is_on(const struct asym_vcpu *vcpu, pol_u32 core, pol_u8 urgent,
		    const struct asym_params *params)
{
	return vcpu->core == core && (vcpu->latency_us <= params->urgent_us) == urgent;
}

static pol_u32 count_on(const struct asym_vcpu *vcpus, pol_u32 count, pol_u32 core, pol_u8 urgent,
			const struct asym_params *params)
{
	pol_u32 found = 0, i;

	for (i = 0; i < count; i++)
		found += is_on(&vcpus[i], core, urgent, params);
	return found;
}

/* Swaps a vCPU of high urgency on one core with one of low urgency on the other, if there are any. */
static pol_u32 swap_urgent(struct asym_vcpu *vcpus, pol_u32 count, pol_u32 most, pol_u32 least,
			   const struct asym_params *params)
{
	pol_u32 high, low;

	for (high = 0; high < count; high++) {
		if (!is_on(&vcpus[high], most, 1, params))
			continue;
		for (low = 0; low < count; low++)
			if (is_on(&vcpus[low], least, 0, params) &&
			    may_swap(vcpus, count, high, low)) {
				swap_cores(&vcpus[high], &vcpus[low]);
				return 2;
			}
	}
	return 0;
}

pol_u32 asym_resolve_urgency(struct asym_vcpu *vcpus, pol_u32 count,
			     const struct asym_core *cores, pol_u32 core_count,
			     const struct asym_params *params)
{
	pol_u32 most = 0, least = 0, moved = 0, pairs, others, i;

	for (i = 1; i < core_count; i++) {
		if (cores[i].conflicts > cores[most].conflicts)
			most = i;
		if (cores[i].conflicts < cores[least].conflicts)
			least = i;
	}
	if (!core_count ||
	    cores[most].conflicts <= pol_sat_mul(cores[least].conflicts, params->conflict_ratio))
		return 0;

	pairs = count_on(vcpus, count, most, 1, params) / 2;
	others = count_on(vcpus, count, least, 0, params) / 2;
	if (pairs > others)
		pairs = others;
	for (; pairs; pairs--)
		moved += swap_urgent(vcpus, count, most, least, params);
	return moved;
}
