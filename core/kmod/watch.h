/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_WATCH_H
#define UNSPIN_WATCH_H

/* Creates the watchdog's thread, which sleeps until it has work. Returns 0 or an error. */
int unspin_watch_init(void);
/* Starts and stops the watchdog. unspin_mutex held. */
void unspin_watch_start(void);
void unspin_watch_stop(void);
/* Ends the thread, and waits for a running look. unspin_mutex not held. */
void unspin_watch_deinit(void);

#endif
