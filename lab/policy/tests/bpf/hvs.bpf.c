// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "hvs.c"
#define KERNEL_LOOPS
#include "program.h"

#define SLOTS HVS_SLOTS_MAX

struct {
	struct hvs_slot slots[SLOTS];
	pol_u64 excluded;
	pol_u32 caller, flags;
	pol_s32 picked;
	pol_u8 in_ple_exit, displaced, mark, category;
} io;

PROGRAM(pick)
{
	io.picked = hvs_pick(io.slots, SLOTS, io.caller, io.excluded, io.flags);
	return 0;
}

PROGRAM(category)
{
	io.category = hvs_category_on_preempt(io.in_ple_exit, io.displaced, &io.mark, io.flags);
	return 0;
}
