/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether vCPUs spin in user space, which the processor does not report: an interrupt
 * looks where a vCPU is, its own thread reads the code there, policy/userspin.c decides.
 */
#ifndef UNSPIN_USER_SPIN_H
#define UNSPIN_USER_SPIN_H

#include "state.h"

/* Time between two looks at a CPU. */
#define UNSPIN_USER_LOOK_US 1000u

/* Before the first of the others, and after the last. May sleep. */
void unspin_user_begin(void);
void unspin_user_end(void);

/* Looks at the vCPUs of VMs that are "sampled" begin or end. Timer of turns. */
void unspin_user_looks(bool on);

/* Own thread on its way into the guest, where it may sleep: reads what the last look asked for. */
void unspin_user_code_read(struct unspin_slot *slot);

#endif
