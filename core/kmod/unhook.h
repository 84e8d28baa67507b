/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_UNHOOK_H
#define UNSPIN_UNHOOK_H

#include <linux/compiler.h>

struct ftrace_ops;

/* Puts a hook on that redirects a function. An error, after a line in the log. */
int unspin_redirect(struct ftrace_ops *ops, const char *function);

/*
 * Takes a hook off and waits for callbacks under way. An error, after a line in the log,
 * where the kernel does not take it off: the hook's code must then stay.
 */
int unspin_unhook(struct ftrace_ops *ops);

/*
 * Sleeps until the machine is started anew, instead of an end of this module's loading or
 * unloading: code that a hook still points to must not be freed. No lock held.
 */
void __noreturn unspin_stay(void);

/* For good, in loading and unloading: the filter goes with the hook, or nothing goes ever. */
void unspin_unhook_or_stay(struct ftrace_ops *ops);

#endif
