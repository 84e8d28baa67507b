/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose a CPU is in this turn, and how it gets another owner. turns.c calls; one call at a time.
 */
#ifndef UNSPIN_OWNERS_H
#define UNSPIN_OWNERS_H

#include "state.h"

/* Before turns begin. */
void unspin_owners_begin(void);

/* A VM, unspin_turn_of_others, or NULL for nobody. It counts from the next switch on. */
void unspin_owner_set(u32 cpu, const void *owner);
/* Any context with interrupts off; under RCU. Other CPUs have done it when they have taken an interrupt. */
void unspin_owners_switch(void);

/* All have done it. May sleep. */
void unspin_owners_wait(void);

#endif
