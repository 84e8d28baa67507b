/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes of tracepoints, and callbacks of hooked functions.
 */
#ifndef UNSPIN_HOOKS_H
#define UNSPIN_HOOKS_H

#include <linux/ftrace.h>
#include <linux/types.h>

/* Hooks KVM's spin handler; off until registered. */
extern struct ftrace_ops unspin_on_spin_ops;

/* Attaches the two hooks that stay while the module is loaded, and sets the filter of the hot one. */
int unspin_hooks_init(void);
void unspin_hooks_deinit(void);

/* Attaches the probes of all tracepoints, or of none. May sleep. */
int unspin_probes_attach(void);
void unspin_probes_detach(void);

#endif
