/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_UNHOOK_H
#define UNSPIN_UNHOOK_H

#include <linux/compiler.h>

struct ftrace_ops;

/* Attaches a hook that redirects a function. Returns 0, or an error that is logged. */
int unspin_redirect(struct ftrace_ops *ops, const char *function);

/*
 * Releases a hook and waits for running callbacks. An error is logged. Then the kernel has not
 * released it, and the hook's code must stay.
 */
int unspin_unhook(struct ftrace_ops *ops);

/*
 * Sleeps until the next boot, so that the module's loading or unloading does not end: code that
 * a hook still points to must not be freed. No lock held.
 */
void __noreturn unspin_stay(void);

/* While loading and unloading: releases the hook and frees its filter, or never returns. */
void unspin_unhook_or_stay(struct ftrace_ops *ops);

#endif
