/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer asks policy/gang.c whose pCPUs are whose for the next few milliseconds, and
 * tells the CPUs. Whoever is in another's turn then goes to sleep by park.c.
 */
#ifndef UNSPIN_TURNS_H
#define UNSPIN_TURNS_H

#include "state.h"

/* Turns begin or end as the VMs' settings want it. unspin_mutex held; may sleep. 0 or an error. */
int unspin_turns_update(void);
/* For good, or until the next update: everybody may run. The same. */
int unspin_turns_stop(void);

/* A VM ends: nothing here knows it any longer. Any context; unspin_lock may be held. */
void unspin_turns_forget(const struct unspin_vm *vm);

/* A vCPU goes to sleep and none follows, its run queue locked: one of another VM may fill the hole. */
void unspin_turns_idle(const struct unspin_slot *out);
/* A vCPU that fills spins, own thread, preemption off: it would burn the time it was lent. */
void unspin_turns_filler_spins(struct unspin_slot *slot);

/* The watchdog's look: turns that do not change are ended. */
void unspin_turns_watch(void);

#endif
