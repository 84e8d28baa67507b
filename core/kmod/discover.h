/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_DISCOVER_H
#define UNSPIN_DISCOVER_H

/*
 * Finds VMs older than the module through the processes that hold them open. A VM whose
 * descriptor was closed is found at its first entry while a mode is on. With any number of VMs,
 * no lock is held for longer than a piece of one process' descriptors takes. May sleep.
 */
void unspin_discover(void);

#endif
