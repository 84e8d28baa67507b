/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns: a thread lets policy/gang_turn.c choose the owner of each pCPU for the next few milliseconds,
 * and notifies the CPUs (turn.h).
 */
#ifndef UNSPIN_TURNS_H
#define UNSPIN_TURNS_H

#include "state.h"

/* Switches turns on if a VM wants them, else off. unspin_mutex held. Returns 0 or an error. */
int unspin_turns_update(void);
/* Switches turns off. unspin_mutex held. An error: the hook stays, and does nothing. */
int unspin_turns_stop(void);
/*
 * For the watchdog: lets all vCPUs run for as long as the planner ends no turn. unspin_mutex held.
 */
void unspin_turns_watch(void);

#endif
