/* SPDX-License-Identifier: GPL-2.0-only */
/* Plans one turn; called by the thread that turns.c creates. */
#ifndef UNSPIN_PLAN_H
#define UNSPIN_PLAN_H

#include "state.h"

#define UNSPIN_TURN_LEAST_US 1000u	/* no turn is shorter */

/* Call before the thread runs, and after it has ended; may sleep. 0 or -ENOMEM. */
int unspin_plan_begin(void);
void unspin_plan_end(void);

/* Ends a turn and begins the next. Returns its length in microseconds. */
u64 unspin_plan_turn(void);

#endif
