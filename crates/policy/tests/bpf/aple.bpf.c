// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "aple.c"
#include "program.h"

struct {
	struct aple_state state;
	struct aple_params params;
	struct aple_epoch epoch;
	pol_u64 inefficiency_ppm;
	pol_u32 window_cycles;
	int wrong;
} io;

PROGRAM(init)
{
	io.wrong = aple_params_check(&io.params);
	aple_init(&io.state, &io.params);
	return 0;
}

PROGRAM(epoch)
{
	io.inefficiency_ppm = aple_inefficiency_ppm(&io.epoch);
	io.window_cycles = aple_epoch_end(&io.state, &io.params, &io.epoch);
	return 0;
}

PROGRAM(complete)
{
	io.window_cycles = aple_window_complete(&io.params, io.window_cycles);
	return 0;
}
