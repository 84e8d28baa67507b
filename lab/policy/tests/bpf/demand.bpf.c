// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "demand.c"
#include "program.h"

#define VMS 8

struct {
	struct demand_host host;
	struct demand_vm vms[VMS];
	struct demand_params params;
	pol_u64 now_us;
	int wrong;
	pol_u8 holds;
} io;

PROGRAM(step)
{
	io.wrong = demand_params_check(&io.params);
	io.holds = demand_step(&io.host, io.vms, VMS, &io.params, io.now_us);
	return 0;
}
