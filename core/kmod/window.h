/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether windows can be controlled here, and how they are put back.
 */
#ifndef UNSPIN_WINDOW_H
#define UNSPIN_WINDOW_H

#include "state.h"
#include "window_ops.h"

extern const struct unspin_window_ops *unspin_window;	/* NULL: no control */
extern bool unspin_window_refused;	/* no new windows; those set are still put back */

/* "changed" is called whenever a vendor's module has been looked at; both may sleep. */
int unspin_window_init(void (*changed)(const struct unspin_window_ops *ops));
void unspin_window_deinit(void);
ssize_t unspin_window_describe(char *buf);

/* A vCPU's window is due for a look: own thread, at kvm_entry. Returns whether it may be set. */
bool unspin_window_checked(struct unspin_slot *slot);

/*
 * All VMs have left our windows: waits until each vCPU has put KVM's back at its
 * own entry, then does it for those that do not run. Probes are still attached.
 */
void unspin_windows_restore(void);

#endif
