// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Credit: Algorithm 3 as one transition per assignment, Algorithm 4 as one per PCPU and slot.
 *
 * Weng, Liu, Yu, Li, HPDC 2011, sections 4.4 and 4.5.
 */
#include "credit.h"

_Static_assert(sizeof(struct credit_params) == 20, "part of the trace format");
_Static_assert(sizeof(struct credit_vm) == 24, "part of the trace format");
_Static_assert(sizeof(struct credit_vcpu) == 24, "part of the trace format");
_Static_assert(sizeof(struct credit_host) == 16 + 4 * sizeof(void *), "as in Rust");
_Static_assert(sizeof(struct credit_decision) == 12, "as in Rust");

int credit_params_check(const struct credit_params *params)
{
	if (!params->slot_us)
		return 1;
	if (!params->slots_per_assignment)
		return 2;
	if (!params->credit_per_slot)
		return 3;
	if (!params->credit_max || params->credit_max > CREDIT_LIMIT)
		return 4;
	if (params->capped > 1)
		return 5;
	return 0;
}

/* credit + change, within the bounds; neither is so large that the sum could wrap. */
static pol_s64 bounded(const struct credit_params *params, pol_s64 credit, pol_s64 change)
{
	pol_s64 limit = pol_clamp_u32(params->credit_max, 1, CREDIT_LIMIT);

	if (credit > limit)
		credit = limit;
	if (credit < -limit)
		credit = -limit;
	credit += change;
	return credit > limit ? limit : credit < -limit ? -limit : credit;
}

/* A number of credits that bounded() can add. */
static pol_s64 change_of(pol_u64 credits)
{
	return (pol_s64)(credits < 4ull * CREDIT_LIMIT ? credits : 4ull * CREDIT_LIMIT);
}

/* Algorithm 3, lines 2 to 7. Parts of running sums lose nothing by rounding. */
static void distribute(const struct credit_host *host, pol_u64 total)
{
	struct credit_vcpu *vcpus = host->vcpus;
	struct credit_vm *vms = host->vms;
	pol_u32 count = host->count, vm_count = host->vm_count;
	pol_u64 weights = 0, below = 0, given = 0;
	pol_u32 i;

	for (i = 0; i < vm_count; i++) {
		weights += vms[i].weight;
		vms[i].vcpus = 0;
		vms[i].served = 0;
	}
	for (i = 0; i < vm_count; i++) {
		pol_u64 upto;

		below += weights ? vms[i].weight : 1;
		upto = pol_mul_div(total, below, weights ? weights : vm_count);
		vms[i].part = upto - given;
		given = upto;
	}
	POL_FOR(i, count)
		if (vcpus[i].vm < vm_count)
			vms[vcpus[i].vm].vcpus++;
	POL_FOR(i, count) {
		struct credit_vm *vm;
		pol_u64 before;

		if (vcpus[i].vm >= vm_count)
			continue;
		vm = &vms[vcpus[i].vm];
		before = pol_mul_div(vm->part, vm->served, vm->vcpus);
		vm->served++;
		vcpus[i].credit = bounded(host->params, vcpus[i].credit,
					  change_of(pol_mul_div(vm->part, vm->served, vm->vcpus) -
						    before));
	}
}

/* The PCPU without a vCPU of the VM that has the fewest queued, or pcpu_count. */
static pol_u32 free_pcpu(const struct credit_pcpu *pcpus, pol_u32 pcpu_count)
{
	pol_u32 best = pcpu_count, i;

	for (i = 0; i < pcpu_count; i++)
		if (!pcpus[i].of_vm &&
		    (best == pcpu_count || pcpus[i].queued < pcpus[best].queued))
			best = i;
	return best;
}

/* Algorithm 3, lines 9 to 14: puts one vCPU of the VM into each run queue, as far as there are as many. */
static pol_u32 spread(const struct credit_host *host, pol_u32 vm)
{
	struct credit_vcpu *vcpus = host->vcpus;
	struct credit_pcpu *pcpus = host->pcpus;
	pol_u32 count = host->count, pcpu_count = host->pcpu_count;
	pol_u32 moved = 0, i;

	for (i = 0; i < pcpu_count; i++) {
		pcpus[i].queued = 0;
		pcpus[i].of_vm = 0;
	}
	POL_FOR(i, count) {
		if (vcpus[i].pcpu >= pcpu_count)
			continue;
		pcpus[vcpus[i].pcpu].queued++;
		pcpus[vcpus[i].pcpu].of_vm += vcpus[i].vm == vm;
	}
	POL_FOR(i, count) {
		pol_u32 from = vcpus[i].pcpu, to;

		if (vcpus[i].vm != vm || vcpus[i].running || from >= pcpu_count ||
		    pcpus[from].of_vm < 2)
			continue;
		to = free_pcpu(pcpus, pcpu_count);
		if (to == pcpu_count)
			break;
		pcpus[from].queued--;
		pcpus[from].of_vm--;
		pcpus[to].queued++;
		pcpus[to].of_vm++;
		vcpus[i].pcpu = to;
		moved++;
	}
	return moved;
}

pol_u32 credit_assign(const struct credit_host *host)
{
	const struct credit_params *params = host->params;
	struct credit_vm *vms = host->vms;
	pol_u64 total = pol_sat_mul((pol_u64)host->pcpu_count * params->credit_per_slot,
				    params->slots_per_assignment);
	pol_u32 moved = 0, i;

	distribute(host, total);
	for (i = 0; i < host->vm_count; i++) {
		if (vms[i].high && !vms[i].was_high)
			moved += spread(host, i);
		vms[i].was_high = vms[i].high;
	}
	return moved;
}

void credit_charge(struct credit_vcpu *vcpu, const struct credit_params *params, pol_u64 ran_us)
{
	pol_u64 paid = pol_mul_div(ran_us, params->credit_per_slot,
				   params->slot_us ? params->slot_us : 1);

	vcpu->credit = bounded(params, vcpu->credit, -change_of(paid));
}

static pol_u8 is_high(const struct credit_host *host, pol_u32 vm)
{
	return vm < host->vm_count && host->vms[vm].high;
}

/* Whether a PCPU has a vCPU of this VM. */
static pol_u8 has_vm(const struct credit_vcpu *vcpus, pol_u32 count, pol_u32 pcpu, pol_u32 vm)
{
	pol_u32 i;

	POL_FOR(i, count)
		if (vcpus[i].pcpu == pcpu && vcpus[i].vm == vm)
			return 1;
	return 0;
}

/* The vCPUs in turn: those after last first, or from 0 if there is none. step is below count. */
static pol_u64 turn_after(pol_u32 last, pol_u32 step, pol_u32 count)
{
	pol_u64 first = last < count ? (pol_u64)last + 1 : 0;
	pol_u64 i = first + step;

	i = i < count ? i : i - count;
	POL_AS_IT_IS(i);
	return i;
}

/*
 * The head of a run queue: raised vCPUs first, then the largest credit, then the next after last. i
 * is below count. BPF's verifier knows only what is compared, and forgets it when 32 bits become
 * 64.
 */
static pol_u64 head_of(const struct credit_vcpu *vcpus, pol_u32 count, pol_u32 pcpu, pol_u32 last)
{
	pol_u64 best = CREDIT_NONE;
	pol_u32 step;

	POL_FOR(step, count) {
		pol_u64 i = turn_after(last, step, count);

		if (i >= count || !vcpus[i].runnable || vcpus[i].running || vcpus[i].pcpu != pcpu)
			continue;
		if (best >= count ||
		    (vcpus[i].raised && !vcpus[best].raised) ||
		    (!vcpus[i].raised == !vcpus[best].raised &&
		     vcpus[i].credit > vcpus[best].credit))
			best = i;
	}
	return best;
}

/* Algorithm 4, line 3: the vCPU to take from another run queue. Raised ones run where they are. */
static pol_u64 steal(const struct credit_host *host, pol_u32 pcpu, pol_u32 last)
{
	const struct credit_vcpu *vcpus = host->vcpus;
	pol_u64 best = CREDIT_NONE;
	pol_u32 count = host->count, step;

	POL_FOR(step, count) {
		pol_u64 i = turn_after(last, step, count);

		if (i >= count || !vcpus[i].runnable || vcpus[i].running || vcpus[i].raised ||
		    vcpus[i].pcpu == pcpu)
			continue;
		if (best < count && vcpus[i].credit <= vcpus[best].credit)
			continue;
		if (is_high(host, vcpus[i].vm) && has_vm(vcpus, count, pcpu, vcpus[i].vm))
			continue;
		best = i;
	}
	return best;
}

/* Algorithm 4, lines 6 and 7: the other vCPUs of a VM come first where they are queued. */
static pol_u32 raise(struct credit_vcpu *vcpus, pol_u32 count, pol_u64 leader)
{
	pol_u32 raised = 0, i;

	POL_FOR(i, count) {
		if (vcpus[i].vm != vcpus[leader].vm || vcpus[i].pcpu == vcpus[leader].pcpu ||
		    !vcpus[i].runnable || vcpus[i].running)
			continue;
		vcpus[i].raised = 1;
		raised++;
	}
	return raised;
}

void credit_pick(const struct credit_host *host, pol_u32 pcpu, pol_u32 last, pol_u8 may_raise,
		 struct credit_decision *decision)
{
	struct credit_vcpu *vcpus = host->vcpus;
	pol_u32 count = host->count;
	pol_u64 chosen = head_of(vcpus, count, pcpu, last);
	pol_u64 other;

	decision->vcpu = CREDIT_NONE;
	decision->migrated = 0;
	decision->raised = 0;
	if (chosen < count && (vcpus[chosen].raised || vcpus[chosen].credit >= 0)) {
		if (may_raise && vcpus[chosen].credit >= 0 && is_high(host, vcpus[chosen].vm))
			decision->raised = raise(vcpus, count, chosen);
	} else {
		other = steal(host, pcpu, last);
		if (other < count &&
		    (chosen >= count || vcpus[other].credit > vcpus[chosen].credit)) {
			decision->migrated = 1;
			chosen = other;
		}
		if (chosen >= count || (vcpus[chosen].credit < 0 && host->params->capped)) {
			decision->migrated = 0;
			return;
		}
	}
	decision->vcpu = (pol_u32)chosen;
	vcpus[chosen].running = 1;
	vcpus[chosen].raised = 0;
	vcpus[chosen].pcpu = pcpu;
}
