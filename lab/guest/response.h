/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* How long after its time a pass of the program ended. */
#ifndef UNSPIN_GUEST_RESPONSE_H
#define UNSPIN_GUEST_RESPONSE_H

#include "cpu.h"
#include "env.h"

/* A pass that was to begin then has ended. */
static __attribute__((noinline)) void note_response(struct guest_counters *counters, u64 due)
{
	u64 now = rdtsc(), cycles;

	/* This CPU's clock may be behind that of the CPU on which the timer was set. */
	cycles = now > due ? now - due : 0;
	counters->responses++;
	counters->response_cycles += cycles;
	counters->response_hist[response_bucket(cycles)]++;
}

#endif
