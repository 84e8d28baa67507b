// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "gang_use.c"
#include "program.h"

struct {
	struct gang_use use;
	gang_s64 of_host;
	pol_u64 length;
	pol_u8 used;
} io;

PROGRAM(use)
{
	io.used = gang_use(&io.use, io.of_host, io.length);
	return 0;
}

PROGRAM(use_begin)
{
	gang_use_begin(&io.use, io.length);
	return 0;
}
