/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Detects vCPUs that spin in user space, which the processor does not report. An interrupt notes
 * where a vCPU is, the vCPU's own thread reads the code there, and policy/userspin.c decides.
 */
#ifndef UNSPIN_USER_SPIN_H
#define UNSPIN_USER_SPIN_H

#include "state.h"

/* Time between two looks at a CPU. */
#define UNSPIN_USER_LOOK_US 1000u

/* Call before and after all other functions. May sleep. */
void unspin_user_begin(void);
void unspin_user_end(void);

/* Starts or stops looking at the vCPUs of VMs that are "sampled". */
void unspin_user_looks(bool on);

/* Reads the code that the last look asked for. Own thread before it enters the guest; may sleep. */
void unspin_user_code_read(struct unspin_slot *slot);

#endif
