// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * IPI-aware directed yield; see ipi.h.
 */
#include "ipi.h"

_Static_assert(sizeof(struct ipi_slot) == 16, "shared with Rust");

static int may_answer(const struct ipi_slot *slots, pol_u32 i, pol_u32 caller, pol_u64 excluded)
{
	return i != caller && slots[i].ready && slots[i].owes_answer && !(excluded >> i & 1);
}

pol_s32 ipi_pick(const struct ipi_slot *slots, pol_u32 count, pol_u32 caller, pol_u64 excluded)
{
	pol_s32 best = IPI_PICK_NONE;
	pol_u32 step, start = caller < count ? caller + 1 : 0;

	if (count > IPI_SLOTS_MAX)
		return IPI_PICK_NONE;

	for (step = 0; step < count; step++) {
		pol_u32 i = start + step < count ? start + step : start + step - count;

		if (!may_answer(slots, i, caller, excluded))
			continue;
		if (best < 0 || slots[i].preempted_at < slots[best].preempted_at)
			best = (pol_s32)i;
	}
	return best;
}
