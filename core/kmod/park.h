/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeping a vCPU from running while it is another's turn: its own thread sleeps, in kernel
 * mode, on its way into the guest. Its class, priority and affinity are never touched.
 */
#ifndef UNSPIN_PARK_H
#define UNSPIN_PARK_H

#include "state.h"

/* Once, while the module loads, and once at its end, nothing attached. 0 or an error. */
int unspin_park_init(void);
void unspin_park_deinit(void);

/*
 * Redirects the threads' way into guests, or no longer. "got_on" is told of each vCPU that is
 * parked and did not just spin before. May sleep. Returns 0, or an error that is logged.
 */
int unspin_park_attach(void (*got_on)(struct unspin_slot *slot));
int unspin_park_detach(void);

/* At an entry into the guest with work.park set: own thread, interrupts off. */
void unspin_park_at_entry(struct unspin_slot *slot);

#endif
