// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "vcrd.c"
#include "program.h"

struct {
	struct vcrd_state state;
	struct vcrd_params params;
	pol_u64 now_us, high_us, waited_cycles;
	pol_u32 draw;
	int wrong;
	pol_u8 high, over;
} io;

PROGRAM(init)
{
	io.wrong = vcrd_params_check(&io.params);
	vcrd_init(&io.state, &io.params);
	return 0;
}

PROGRAM(event)
{
	const struct vcrd_params defaults = VCRD_PARAMS(VCRD_THRESHOLD_LOG2_CYCLES);
	struct vcrd_params params = io.params;

	params.values = defaults.values;
	io.over = vcrd_is_over_threshold(&params, io.waited_cycles);
	io.high_us = vcrd_event(&io.state, &params, io.now_us, io.draw);
	io.high = vcrd_is_high(&io.state, io.now_us);
	return 0;
}
