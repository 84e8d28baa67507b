/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps a vCPU from running during another VM's turn: its own thread sleeps in kernel mode before
 * it enters the guest. Its class, priority and affinity stay as they are.
 */
#ifndef UNSPIN_PARK_H
#define UNSPIN_PARK_H

#include "state.h"

/* Call once while the module loads, and once while it unloads; nothing is attached. 0 or an error. */
int unspin_park_init(void);
void unspin_park_deinit(void);

/*
 * Redirects the threads that are about to enter their guests, or stops it. "got_on" is called for
 * each vCPU that is parked and did more than spin before. May sleep. 0, or an error that is logged.
 */
int unspin_park_attach(void (*got_on)(struct unspin_slot *slot));
int unspin_park_detach(void);

/* At an entry into the guest with work.park set: own thread, interrupts off. */
void unspin_park_at_entry(struct unspin_slot *slot);

#endif
