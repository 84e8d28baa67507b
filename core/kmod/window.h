/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether windows can be controlled on this host, and how they are restored.
 */
#ifndef UNSPIN_WINDOW_H
#define UNSPIN_WINDOW_H

#include "state.h"
#include "window_ops.h"

extern const struct unspin_window_ops *unspin_window;	/* NULL: no control */
extern bool unspin_window_refused;	/* no new windows; those that were set are still restored */

/* "changed" is called whenever a vendor's module has been probed; both may sleep. */
int unspin_window_init(void (*changed)(void));
void unspin_window_deinit(void);
ssize_t unspin_window_describe(char *buf);

/* Checks a vCPU's window. Own thread, at kvm_entry. Returns whether the window may be set. */
bool unspin_window_checked(struct unspin_slot *slot);

/*
 * Call after window control ended for all VMs. Waits until each vCPU has restored KVM's window at
 * its own entry, then restores those of vCPUs that do not run. Probes are still attached.
 */
void unspin_windows_restore(void);

#endif
