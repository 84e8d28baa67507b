// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "demand.h"

int demand_params_check(const struct demand_params *params)
{
	if (!params->threshold_ppm || params->threshold_ppm > DEMAND_PPM)
		return 1;
	if (!params->look_us)
		return 2;
	if (!params->hold_us)
		return 3;
	return params->hold_max_us < params->hold_us ? 4 : 0;
}

static void look_begin(struct demand_vm *vm, pol_u64 now_us)
{
	vm->wasted_base = vm->wasted;
	vm->cpu_base = vm->cpu;
	vm->look_started_us = now_us;
	vm->known = 1;
}

static pol_u64 since(pol_u64 sum, pol_u64 base)
{
	return sum > base ? sum - base : 0;
}

/* Whether it wasted enough over its look, which ends now. */
static pol_u8 wastes(const struct demand_vm *vm, const struct demand_params *params)
{
	pol_u32 threshold = vm->was_high ? params->threshold_ppm / 2 : params->threshold_ppm;
	pol_u64 wasted = since(vm->wasted, vm->wasted_base), cpu = since(vm->cpu, vm->cpu_base);

	return vm->asks && wasted && pol_mul_div(wasted, DEMAND_PPM, cpu) >= threshold;
}

/* Whether it is HIGH from now on, at the end of its look. wasted_before lasts through a hold. */
static pol_u8 is_high(struct demand_vm *vm, const struct demand_params *params)
{
	pol_u8 before = vm->wasted_before;

	vm->wasted_before = wastes(vm, params);
	return before && vm->wasted_before;
}

static pol_u8 look_is_over(const struct demand_vm *vm, const struct demand_params *params,
			   pol_u64 now_us)
{
	return since(now_us, vm->look_started_us) >= params->look_us;
}

/* Ends a look at all VMs: decides which are HIGH, and for how long. */
static void judge_all(struct demand_host *host, struct demand_vm *vms, pol_u32 count,
		      const struct demand_params *params, pol_u64 now_us)
{
	pol_u64 held = pol_sat_mul(host->held_us, 2);
	pol_u8 any = 0, same = 1;
	pol_u32 i;

	for (i = 0; i < count; i++) {
		vms[i].high = vms[i].known && is_high(&vms[i], params);
		any |= vms[i].high;
		same &= vms[i].high == vms[i].was_high;
		vms[i].was_high = vms[i].high;
		look_begin(&vms[i], now_us);
	}
	host->holds = any;
	host->held_us = any && same && held ? pol_clamp_u32(held, params->hold_us, params->hold_max_us) :
					      params->hold_us;
	host->until_us = pol_sat_add(now_us, any ? host->held_us : params->look_us);
}

/* In a hold: a VM that is LOW may become HIGH. */
static void judge_low(struct demand_vm *vm, const struct demand_params *params, pol_u64 now_us)
{
	if (!vm->known) {
		look_begin(vm, now_us);
	} else if (look_is_over(vm, params, now_us)) {
		vm->high = is_high(vm, params);
		vm->was_high = vm->high;
		look_begin(vm, now_us);
	}
}

pol_u8 demand_step(struct demand_host *host, struct demand_vm *vms, pol_u32 count,
		   const struct demand_params *params, pol_u64 now_us)
{
	pol_u32 i;

	if (!host->holds && host->until_us && now_us >= host->until_us) {
		judge_all(host, vms, count, params, now_us);
		return host->holds;
	}
	if (host->holds && now_us < host->until_us) {
		for (i = 0; i < count; i++) {
			vms[i].high &= vms[i].asks;
			if (!vms[i].high)
				judge_low(&vms[i], params, now_us);
		}
		return 1;
	}
	/* A look begins or continues; for new VMs it begins now. */
	for (i = 0; i < count; i++) {
		if (host->holds || !host->until_us || !vms[i].known)
			look_begin(&vms[i], now_us);
		vms[i].high = 0;
	}
	if (host->holds || !host->until_us)
		host->until_us = pol_sat_add(now_us, params->look_us);
	host->holds = 0;
	return 0;
}
