/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Livepatches that are loaded while the module is loaded: they take precedence. Both functions may sleep;
 * unspin_mutex is not held.
 */
#ifndef UNSPIN_LIVEPATCH_H
#define UNSPIN_LIVEPATCH_H

int unspin_livepatch_init(void);
void unspin_livepatch_deinit(void);

#endif
