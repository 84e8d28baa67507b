// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "ipi.c"
#include "program.h"

#define SLOTS 8

struct {
	struct ipi_slot slots[SLOTS];
	pol_u64 excluded;
	pol_u32 caller;
	pol_s32 picked;
	pol_u32 reserved;
} io;

PROGRAM(pick)
{
	io.picked = ipi_pick(io.slots, SLOTS, io.caller, io.excluded);
	return 0;
}
