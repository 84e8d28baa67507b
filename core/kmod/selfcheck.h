/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_SELFCHECK_H
#define UNSPIN_SELFCHECK_H

/* Proves on a function of our own that the hook sees arguments, redirects, passes through and lets go. */
int unspin_selfcheck(void);

#endif
