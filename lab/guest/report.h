/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The image that reports: when the wait for a lock is too long, it tells the host through the
 * hypercall of uapi/unspin_guest.h, with the time for which all vCPUs should run together.
 * policy/vcrd.c learns that time; the VM has one learner.
 *
 * A wait is checked while it lasts, every some turns of its loop, and when it is over: a vCPU that
 * was preempted in it may have the lock at its next turn. Each wait is reported once. If two vCPUs
 * report at the same time, one report counts for both.
 */
#ifndef UNSPIN_GUEST_REPORT_H
#define UNSPIN_GUEST_REPORT_H

#include <stdatomic.h>
#include "env.h"
#include "rng.h"
#include "../../core/policy/vcrd.h"
#include "../../core/uapi/unspin_guest.h"

static struct {
	atomic_uint busy;
	u32 begun;
	struct vcrd_params params;
	struct vcrd_state vcrd;
} learner __attribute__((aligned(64)));

static void learner_begin(void)
{
	learner.params = (struct vcrd_params)VCRD_PARAMS(config->report_log2_cycles);
	vcrd_init(&learner.vcrd, &learner.params);
	learner.begun = 1;
}

/* Whether a wait since then was too long; then it has been reported. */
static bool report_wait(u64 begun)
{
	u64 now = rdtsc(), us;

	if (now - begun <= 1ull << config->report_log2_cycles)
		return false;
	if (atomic_exchange_explicit(&learner.busy, 1, memory_order_acquire))
		return true;
	if (!learner.begun)
		learner_begin();
	us = vcrd_event(&learner.vcrd, &learner.params, now / config->tsc_ticks_per_us,
			splitmix64(now) >> 32);
	atomic_store_explicit(&learner.busy, 0, memory_order_release);
	hypercall(UNSPIN_GUEST_HYPERCALL, UNSPIN_GUEST_HIGH, us);
	return true;
}

#endif
