// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * KVM's own window rule and directed yield, as transitions over a snapshot.
 *
 * Behaviour of Linux 3.19, 6.12, 6.13 to 6.18 and 6.19; see kvm_stock.h.
 */
#include "kvm_stock.h"

typedef __INT64_TYPE__ pol_s64;

#define S32_MAX_VALUE 2147483647u

_Static_assert(sizeof(struct kvm_stock_window_params) == 16, "shared with Rust");
_Static_assert(sizeof(struct kvm_stock_vcpu) == 8, "shared with Rust");
_Static_assert(sizeof(struct kvm_stock_search) == 36, "shared with Rust");

void kvm_stock_window_defaults(struct kvm_stock_window_params *params,
			       enum kvm_stock_variant variant)
{
	params->base_cycles = KVM_STOCK_WINDOW_CYCLES;
	params->grow = KVM_STOCK_WINDOW_GROW;
	params->shrink = KVM_STOCK_WINDOW_SHRINK;
	params->max_cycles = variant == KVM_STOCK_3_19 ? S32_MAX_VALUE / KVM_STOCK_WINDOW_GROW :
							 0xffffffffu;
}

static pol_s64 as_int(pol_u32 value)
{
	return value < S32_MAX_VALUE ? value : S32_MAX_VALUE;
}

/*
 * 3.19 takes signed, so that a result below the minimum shows as such. It divides signed, too, but
 * no window is negative, and BPF has no such division.
 */
static pol_s64 shrink_signed(pol_s64 window, pol_s64 base, pol_s64 modifier)
{
	if (modifier < 1)
		return base;
	return modifier < base ? (pol_s64)((pol_u64)window / (pol_u64)modifier) : window - modifier;
}

/* Growing starts from one step below the maximum at most, so that it ends there. */
static pol_u32 grow_3_19(const struct kvm_stock_window_params *params, pol_u32 window_cycles)
{
	pol_s64 base = as_int(params->base_cycles);
	pol_s64 grow = as_int(params->grow);
	pol_s64 max = as_int(params->max_cycles);
	pol_s64 window = as_int(window_cycles);
	pol_s64 limit;

	if (grow < 1)
		return (pol_u32)base;
	limit = shrink_signed(max > base ? max : base, base, grow);
	if (window > limit)
		window = limit;
	return (pol_u32)(grow < base ? window * grow : window + grow);
}

pol_u32 kvm_stock_window_grow(const struct kvm_stock_window_params *params,
			      enum kvm_stock_variant variant, pol_u32 window_cycles)
{
	pol_u64 window = window_cycles;

	if (variant == KVM_STOCK_3_19)
		return grow_3_19(params, window_cycles);
	if (!params->grow)
		return params->base_cycles;
	window = params->grow < params->base_cycles ? window * params->grow :
						      window + params->grow;
	return pol_clamp_u32(window, 0, params->max_cycles);
}

pol_u32 kvm_stock_window_shrink(const struct kvm_stock_window_params *params,
				enum kvm_stock_variant variant, pol_u32 window_cycles)
{
	pol_u64 window;

	if (!params->shrink)
		return variant == KVM_STOCK_3_19 ? (pol_u32)as_int(params->base_cycles) :
						   params->base_cycles;

	if (variant == KVM_STOCK_3_19) {
		pol_s64 base = as_int(params->base_cycles);
		pol_s64 shrunk = shrink_signed(as_int(window_cycles), base, as_int(params->shrink));

		return (pol_u32)(shrunk > base ? shrunk : base);
	}

	if (params->shrink < params->base_cycles)
		window = window_cycles / params->shrink;
	else	/* wraps as 32 bits do, which is what these kernels compute */
		window = (((pol_u64)1 << 32) + window_cycles - params->shrink) & 0xffffffffu;
	return window > params->base_cycles ? (pol_u32)window : params->base_cycles;
}

static int is_two_pass(const struct kvm_stock_search *search)
{
	return search->variant == KVM_STOCK_3_19 || search->variant == KVM_STOCK_6_12;
}

/* Two passes start behind last_boosted, or at 0 if that is no vCPU. One pass wraps. */
static void circle_init(struct kvm_stock_search *search, pol_u32 last_boosted)
{
	pol_u32 count = search->count;

	search->first = 0;
	search->ahead = 0;
	if (is_two_pass(search)) {
		if (last_boosted < count) {
			search->first = last_boosted + 1;
			search->ahead = count - 1 - last_boosted;
		}
	} else if (count) {
		search->first = (pol_u32)(((pol_u64)last_boosted + 1) % count);
		search->ahead = count - search->first;
	}
}

void kvm_stock_search_init(struct kvm_stock_search *search, struct kvm_stock_vcpu *vcpus,
			   pol_u32 last_boosted)
{
	circle_init(search, last_boosted);
	search->step = 0;
	search->tries = KVM_STOCK_TRIES;
	search->yielded = 0;
	search->kernel_mode_only =
		search->kernel_mode_only && search->variant != KVM_STOCK_3_19;
	search->offered = 0;
	search->idle = !is_two_pass(search) && search->count < 2;
	search->done = search->idle;

	if (!search->idle && search->caller < search->count)
		vcpus[search->caller].in_spin_loop = 1;
}

/* Whether KVM would consider this vCPU at all: all conditions but the label "checked". */
static int may_yield_to(const struct kvm_stock_search *search, const struct kvm_stock_vcpu *vcpu)
{
	if (search->variant == KVM_STOCK_3_19 ? !vcpu->preempted : !vcpu->ready)
		return 0;
	if (vcpu->blocking && !vcpu->runnable)
		return 0;
	/* An interrupt to deliver counts as kernel mode: the spinner may await an IPI. */
	return !(vcpu->preempted && search->kernel_mode_only && !vcpu->interrupt_pending &&
		 !vcpu->in_kernel);
}

/* A spinning vCPU is passed over every other time it is checked. */
static int check_dy_eligible(struct kvm_stock_vcpu *vcpu)
{
	int eligible = !vcpu->in_spin_loop || vcpu->dy_eligible;

	if (vcpu->in_spin_loop)
		vcpu->dy_eligible = !vcpu->dy_eligible;
	return eligible;
}

pol_s32 kvm_stock_search_next(struct kvm_stock_search *search, struct kvm_stock_vcpu *vcpus)
{
	if (search->offered)
		return KVM_STOCK_PICK_NONE;

	while (!search->done && search->step < search->count) {
		pol_u32 step = search->step;
		pol_u32 index = step < search->ahead ? search->first + step :
						       step - search->ahead;

		/* The second pass begins only if the last yield did not fail outright. */
		if (step == search->ahead && is_two_pass(search) && search->yielded)
			break;

		search->step++;
		if (index == search->caller || !may_yield_to(search, &vcpus[index]) ||
		    !check_dy_eligible(&vcpus[index]))
			continue;
		search->offered = 1;
		return (pol_s32)index;
	}
	search->done = 1;
	return KVM_STOCK_PICK_NONE;
}

void kvm_stock_search_result(struct kvm_stock_search *search, pol_u32 *last_boosted,
			     pol_s32 yielded)
{
	pol_u32 step;

	if (!search->offered)
		return;
	search->offered = 0;
	search->yielded = yielded;
	step = search->step - 1;	/* the step that offered the candidate */

	if (yielded > 0) {
		search->done = 1;
		if (search->variant == KVM_STOCK_6_13_INDEX_BUG)
			*last_boosted = step;
		else
			*last_boosted = step < search->ahead ? search->first + step :
							       step - search->ahead;
	} else if (yielded < 0) {
		search->tries--;
		if (!search->tries)
			search->done = 1;
	}
}

void kvm_stock_search_deinit(struct kvm_stock_search *search, struct kvm_stock_vcpu *vcpus)
{
	search->done = 1;
	search->offered = 0;
	if (search->idle || search->caller >= search->count)
		return;
	vcpus[search->caller].in_spin_loop = 0;
	vcpus[search->caller].dy_eligible = 0;
}
