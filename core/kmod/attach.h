/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Attaches and detaches the hot hook and the probes. unspin_mutex is held.
 */
#ifndef UNSPIN_ATTACH_H
#define UNSPIN_ATTACH_H

#include <linux/types.h>

/* Attaches or detaches, as the VMs' modes need. May sleep. 0 or an error. */
int unspin_attach_update(void);
/* Loading is done. Attaches what a mode written meanwhile needs; an error fails the load. */
int unspin_attach_open(void);
/* Detaches while a livepatch is being loaded (on), and attaches again. 0 or an error. */
int unspin_attach_aside(bool on);
/* Detaches for good; all VMs must be off. False: a hook could not be released. */
bool unspin_attach_close(void);

#endif
