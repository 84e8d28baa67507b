/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sends the command each decision and its input. Only a build with TRACED=1 does so: in others these calls are empty.
 */
#ifndef UNSPIN_SCHEDULE_TRACE_H
#define UNSPIN_SCHEDULE_TRACE_H

#include "state.h"

#if TRACED

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TRACE_BYTES);
} traced SEC(".maps");

u64 lost SEC(".data.lost");	/* decisions that found no room in the ring buffer */
struct decision on_cpu[CPUS_MAX];	/* of dispatch() for that CPU, under the run queue's lock */
struct decision in_plan;	/* the timer's */

static __always_inline void begin_decision(struct decision *d)
{
	d->count = 0;
}

static __always_inline void note_wish(struct decision *d, u64 vt, u32 id, u32 is_owed, u32 is_gang)
{
	u32 at = d->count;
	struct wish *wish;

	asm volatile("" : "+r"(at));
	wish = &d->wishes[at & (VMS_MAX - 1)];
	wish->vt = vt;
	wish->id = id;
	wish->flags = (is_owed ? WISH_OWED : 0) | (is_gang ? WISH_GANG : 0);
	d->count = at + 1;
}

/* Without candidates there was no decision. */
static __always_inline void tell(struct decision *d, u32 kind, u64 beside, u32 at, u32 who, u32 answer)
{
	u64 count = d->count;

	asm volatile("" : "+r"(count));
	if (!count || count > VMS_MAX)
		return;
	d->at_ns = bpf_ktime_get_ns();
	d->kind = kind;
	d->beside = beside;
	d->at = at;
	d->who = who;
	d->answer = answer;
	/* The command polls. */
	if (bpf_ringbuf_output(&traced, d, DECISION_HEAD + count * sizeof(struct wish), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

/* The choice among "count" slots of a vCPU that gets a CPU from the vCPU "id", which spins there. */
static __always_inline void tell_yield(u32 cpu, u32 id, u64 tried, u32 picked, const void *slots, u32 count, u32 flags)
{
	struct decision *d = &on_cpu[bound(cpu)];

	bpf_probe_read_kernel(d->slots, sizeof(d->slots), slots);
	d->count = count;
	d->flags = flags;
	tell(d, DECIDES_YIELD, tried, cpu, id, picked);
}

#else

#define begin_decision(...) ((void)0)
#define note_wish(...) ((void)0)
#define tell(...) ((void)0)
#define tell_yield(...) ((void)0)

#endif

#endif
