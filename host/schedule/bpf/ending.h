/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Why the kernel ended a scheduler; src/ext.rs has the same. */
#ifndef UNSPIN_SCHEDULE_ENDING_H
#define UNSPIN_SCHEDULE_ENDING_H

#include "kernel.h"

#define REASON_BYTES 128

struct ending {
	int kind;	/* 0: it goes on */
	char reason[REASON_BYTES];
	char message[REASON_BYTES];
};

static __always_inline void note_ending(struct ending *ending, struct scx_exit_info *info)
{
	ending->kind = info->kind;
	bpf_probe_read_kernel_str(ending->reason, REASON_BYTES, info->reason);
	bpf_probe_read_kernel_str(ending->message, REASON_BYTES, info->msg);
}

#endif
