/* SPDX-License-Identifier: GPL-2.0-only */
/* One turn is planned, by the thread that turns.c makes. */
#ifndef UNSPIN_PLAN_H
#define UNSPIN_PLAN_H

#include "state.h"

#define UNSPIN_TURN_LEAST_US 1000u	/* no turn is shorter */

/* Before the thread runs, and when it has ended; may sleep. 0 or -ENOMEM. */
int unspin_plan_begin(void);
void unspin_plan_end(void);

/* A turn ends, and the next begins: for how many microseconds. */
u64 unspin_plan_turn(void);

#endif
