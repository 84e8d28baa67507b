/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns: a thread asks policy/gang_turn.c whose pCPUs are whose for the next few milliseconds, and
 * tells the CPUs (turn.h).
 */
#ifndef UNSPIN_TURNS_H
#define UNSPIN_TURNS_H

#include "state.h"

/* Turns are on if a VM wants them, else off. unspin_mutex held. Returns 0 or an error. */
int unspin_turns_update(void);
/* As if no VM wanted turns any more. unspin_mutex held. An error: its hook stays, without doing anything. */
int unspin_turns_stop(void);
/* The watchdog's look: everybody may run while the planner does not end a turn. unspin_mutex held. */
void unspin_turns_watch(void);

#endif
