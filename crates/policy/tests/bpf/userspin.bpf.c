// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "userspin.c"
#include "program.h"

#define REGISTERS 16

struct {
	struct userspin_state state;
	struct userspin_params params;
	struct userspin_sample sample;
	struct userspin_verdict verdict;
	pol_u64 from, digest, registers[REGISTERS];
	pol_u32 bytes;
	int wrong;
	pol_u8 code[USERSPIN_CODE_MAX_BYTES], pauses;
} io;

PROGRAM(init)
{
	io.wrong = userspin_params_check(&io.params);
	userspin_init(&io.state);
	return 0;
}

PROGRAM(add)
{
	io.sample.registers = userspin_digest(io.registers, REGISTERS);
	userspin_add(&io.state, &io.sample);
	return 0;
}

PROGRAM(judge)
{
	struct userspin_params params = io.params;

	params.samples = USERSPIN_SAMPLES;
	userspin_judge(&io.state, &params, &io.verdict);
	return 0;
}

PROGRAM(code)
{
	io.bytes = userspin_code(&io.verdict, &io.from);
	return 0;
}

PROGRAM(pause)
{
	io.pauses = userspin_has_pause(io.code, USERSPIN_CODE_MAX_BYTES);
	return 0;
}
