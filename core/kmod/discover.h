/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_DISCOVER_H
#define UNSPIN_DISCOVER_H

/*
 * Finds VMs that are older than the module, by the descriptors of processes. A VM whose descriptor
 * was closed is found at its first entry while a mode is on. Locks are held only for one piece of
 * one process' descriptors, however many VMs there are. May sleep.
 */
void unspin_discover(void);

#endif
