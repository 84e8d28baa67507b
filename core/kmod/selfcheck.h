/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_SELFCHECK_H
#define UNSPIN_SELFCHECK_H

/* Checks on the module's own function that a hook sees arguments, redirects, passes through and is released. */
int unspin_selfcheck(void);

#endif
