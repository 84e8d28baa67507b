/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Shared by the files of policy/gang.h: checks of rows, and bounds of times.
 */
#ifndef UNSPIN_POLICY_GANG_ROWS_H
#define UNSPIN_POLICY_GANG_ROWS_H

#include "gang.h"

static inline pol_u64 limited(pol_u64 time)
{
	return time < GANG_TIME_MAX ? time : GANG_TIME_MAX;
}

static inline gang_s64 clamped(gang_s64 owed, pol_u64 clamp)
{
	gang_s64 bound = (gang_s64)limited(clamp);

	return owed > bound ? bound : owed < -bound ? -bound : owed;
}

/* Divides, rounding towards 0. BPF has no signed division. */
static inline gang_s64 divided(gang_s64 owed, pol_u64 by)
{
	return owed < 0 ? -(gang_s64)((pol_u64)-owed / by) : (gang_s64)((pol_u64)owed / by);
}

/* The end of a VM's vCPUs, within the table. */
static inline pol_u32 end_of(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 first = vm->first < host->vcpu_count ? vm->first : host->vcpu_count;
	pol_u32 left = host->vcpu_count - first;

	return first + (vm->count < left ? vm->count : left);
}

static inline pol_u8 is_there(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return vcpu->cpu < host->cpu_count;
}

static inline pol_u8 wants(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return vcpu->wants && !vcpu->held_back && is_there(host, vcpu);
}

#endif
