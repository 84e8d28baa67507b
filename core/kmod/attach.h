/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When the hot hook and the probes are on, and how they are let go. unspin_mutex is held.
 */
#ifndef UNSPIN_ATTACH_H
#define UNSPIN_ATTACH_H

#include <linux/types.h>

/* Attaches or lets go as the VMs' modes want it. May sleep. 0 or an error. */
int unspin_attach_update(void);
/* Loading is done. A mode may have been written before: its error is the module's. */
int unspin_attach_open(void);
/* A livepatch is loaded, or was: nothing is attached meanwhile. 0 or an error. */
int unspin_attach_aside(bool on);
/* For good: VMs have been set to off. False: a hook could not be taken off. */
bool unspin_attach_close(void);

#endif
