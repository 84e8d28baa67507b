/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_WATCH_H
#define UNSPIN_WATCH_H

/* Starts its thread, which sleeps until it has work. Returns 0, or an error without memory. */
int unspin_watch_init(void);
/* The watchdog looks from now on, or no longer. unspin_mutex held. */
void unspin_watch_start(void);
void unspin_watch_stop(void);
/* The mutex not held: ends the thread, and waits for a look under way. */
void unspin_watch_deinit(void);

#endif
