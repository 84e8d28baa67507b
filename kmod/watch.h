/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_WATCH_H
#define UNSPIN_WATCH_H

/* The watchdog looks from now on, or no longer. unspin_mutex held. */
void unspin_watch_start(void);
void unspin_watch_stop(void);
/* Stopped, and the mutex not held: waits for a look under way. */
void unspin_watch_deinit(void);

#endif
