// SPDX-License-Identifier: GPL-2.0-only
/*
 * Handles what a guest reports of itself (uapi/unspin_guest.h): HIGH, its vCPUs should run
 * together for a given time, or LOW. wanted.c uses it when a turn ends.
 *
 * The tracepoint fires before KVM checks the privilege level, so it is checked here: reports of
 * the guest's user space are ignored. A guest gains nothing by a false report: its vCPUs run
 * together, but its share of CPU time stays the same (policy/gang_account.c).
 */
#include <linux/minmax.h>
#include <linux/sched.h>

#include "../uapi/unspin_guest.h"
#include "guest_report.h"
#include "window.h"
#include "window_ops.h"

/*
 * This many reports may come at the same time, for example from all vCPUs that waited for one lock.
 */
#define TOGETHER 64u

/* Whether the guest's kernel made the call, as far as it can be seen. */
static bool is_kernels(const struct unspin_slot *slot)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	struct unspin_where where;

	/* The vCPU is loaded on this CPU, and the call did not come from a nested guest. */
	return ops && !READ_ONCE(unspin_window_refused) &&
	       current->preempt_notifiers.first == &slot->vcpu->preempt_notifier.link &&
	       !compat_is_protected(slot->vcpu) && !compat_is_guest_mode(slot->vcpu) &&
	       ops->where(slot->vcpu, &where) && !where.cpl;
}

/*
 * Each report uses up an equal part of a second, after those of earlier reports. A VM that is ahead of
 * the clock by more than TOGETHER parts reports too often.
 */
static bool too_often(struct unspin_vm *vm, u64 now)
{
	u64 part = (u64)tsc_khz * MSEC_PER_SEC / UNSPIN_GUEST_REPORTS_PER_S;
	s64 before = atomic64_read(&vm->report_tsc);
	u64 ahead = unspin_time_left(before, now, 2 * TOGETHER * part) + part;

	return ahead > TOGETHER * part || atomic64_cmpxchg(&vm->report_tsc, before, now + ahead) != before;
}

void unspin_guest_report(struct unspin_slot *slot, unsigned long level, unsigned long us)
{
	struct unspin_vm *vm = slot->vm;
	u64 now = unspin_now();

	if (level > UNSPIN_GUEST_HIGH || !is_kernels(slot) || too_often(vm, now)) {
		unspin_count(slot, UNSPIN_C_REPORTS_IGNORED, 1);
		return;
	}
	us = min_t(unsigned long, us, UNSPIN_GUEST_HIGH_MAX_US);
	WRITE_ONCE(vm->high_until_tsc, level == UNSPIN_GUEST_HIGH ?
					       now + (u64)us * tsc_khz / USEC_PER_MSEC : 0);
	unspin_count(slot, UNSPIN_C_REPORTS, 1);
}
