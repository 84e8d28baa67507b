// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decides which VMs are HIGH, that is, whose vCPUs should run together: policy/demand.c by what
 * they waste, or their guest by its reports (guest_report.c). HIGH is a value of VCRD, a term of
 * ASMan (Weng, Liu, Yu, Li, HPDC 2011).
 */
#include "../uapi/unspin_guest.h"
#include "testing.h"
#include "user_spin.h"
#include "wanted.h"

/*
 * Each look takes a vCPU out of its guest. So a VM that does not spin in user space is looked at
 * only for a tenth of the time: it must not pay for VMs that do.
 */
#define SAMPLE_US 100000u
#define SAMPLE_PAUSE_US (9 * SAMPLE_US)

UNSPIN_TEST_PARAM(bool, look_always, 0400, "look for spinning in user space without pause, also in turns");

static struct demand_vm demands[UNSPIN_WANTED_VMS_MAX];
static u64 user_spins[UNSPIN_WANTED_VMS_MAX];
static struct demand_host host;
static const struct demand_params params = {
	.threshold_ppm = DEMAND_THRESHOLD_PPM,
	.look_us = DEMAND_LOOK_US,
	.hold_us = DEMAND_HOLD_US,
	.hold_max_us = DEMAND_HOLD_MAX_US,
};

/* Whether its waste of this kind is to be judged. */
static bool asks_for(const struct unspin_vm *vm, enum unspin_coscheduling kind)
{
	enum unspin_coscheduling set = vm->set.coscheduling;

	return vm->judged && READ_ONCE(vm->gang_asked) && (set == kind || set == UNSPIN_COSCHEDULING_VCRD_BOTH);
}

static bool asks_for_ple(const struct unspin_vm *vm)
{
	return asks_for(vm, UNSPIN_COSCHEDULING_VCRD_PLE);
}

static bool asks_for_user(const struct unspin_vm *vm)
{
	return asks_for(vm, UNSPIN_COSCHEDULING_VCRD_USER);
}

void unspin_wanted_vm(const struct unspin_vm *vm, u32 at)
{
	struct demand_vm *demand = &demands[at];

	*demand = vm->demand;
	demand->wasted = demand->cpu = 0;
	user_spins[at] = 0;
	demand->asks = asks_for_ple(vm) || asks_for_user(vm);
}

/* Each look that finds spinning in user space counts for the time between two looks. */
void unspin_wanted_vcpu(const struct unspin_slot *slot, u32 at)
{
	struct demand_vm *to = &demands[at];

	to->cpu += slot->turn.seen_cycles;
	if (asks_for_ple(slot->vm))
		to->wasted += READ_ONCE(slot->count[UNSPIN_C_SPIN_CYCLES]) +
			      READ_ONCE(slot->count[UNSPIN_C_SWITCH_CYCLES]);
	if (asks_for_user(slot->vm)) {
		u64 spins = READ_ONCE(slot->count[UNSPIN_C_USER_SPINS]);

		user_spins[at] += spins;
		to->wasted += spins * tsc_khz * UNSPIN_USER_LOOK_US / USEC_PER_MSEC;
	}
}

/*
 * Whether to look at a VM's vCPUs now. A VM whose vCPUs run together usually does not spin, so it is
 * skipped, unless "look_always" is set.
 */
static bool to_sample(struct unspin_vm *vm, u64 spins, bool high, u64 now_us)
{
	if (!asks_for_user(vm) || (high && !look_always)) {
		vm->sample_until_us = 0;	/* look at once when that has changed */
		return false;
	}
	if (look_always)
		return true;
	if (vm->sampled && spins != vm->sample_spins) {
		vm->sample_until_us = now_us + SAMPLE_US;
	} else if (now_us >= vm->sample_until_us) {
		vm->sample_until_us = now_us + (vm->sampled ? SAMPLE_PAUSE_US : SAMPLE_US);
		vm->sample_spins = spins;
		return !vm->sampled;
	}
	vm->sample_spins = spins;
	return vm->sampled;
}

void unspin_wanted_judge(struct unspin_vm **vms, u32 count)
{
	u64 now_us = ktime_to_us(ktime_get());
	bool any_sampled = false;
	u64 now = unspin_now();
	u64 high_most = 2 * (u64)UNSPIN_GUEST_HIGH_MAX_US * tsc_khz / USEC_PER_MSEC;
	u32 i;

	demand_step(&host, demands, count, &params, now_us);
	for (i = 0; i < count; i++) {
		struct unspin_vm *vm = vms[i];

		vm->demand = demands[i];
		if (demands[i].asks)
			WRITE_ONCE(vm->gang_wanted, demands[i].high);
		else if (READ_ONCE(vm->hears_guest))
			WRITE_ONCE(vm->gang_wanted,
				   !!unspin_time_left(READ_ONCE(vm->high_until_tsc), now, high_most));
		else if (vm->set.coscheduling != UNSPIN_COSCHEDULING_CON)
			WRITE_ONCE(vm->gang_wanted, false);	/* it is no longer judged */
		WRITE_ONCE(vm->sampled, to_sample(vm, user_spins[i], demands[i].high, now_us));
		any_sampled |= vm->sampled;
	}
	unspin_user_looks(any_sampled);
}
