/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads inside functions of the module that a hook sends them to. They may sleep there, and the
 * module's text must stay until the last has left. So each is counted where it is redirected, in the
 * callback of the hook, and not by what is known of its vCPU.
 */
#ifndef UNSPIN_REDIRECT_H
#define UNSPIN_REDIRECT_H

#include <linux/percpu.h>

enum unspin_redirect {
	UNSPIN_REDIRECT_SPIN,	/* to unspin_on_spin() */
	UNSPIN_REDIRECT_PARK,	/* to park.c */
	UNSPIN_REDIRECTS_COUNT
};

/* Any CPU's may be below 0: a thread leaves where it is then. The sum is what counts. */
struct unspin_redirected {
	long threads[UNSPIN_REDIRECTS_COUNT];
};
DECLARE_PER_CPU(struct unspin_redirected, unspin_redirected);

/* In the hook's callback, right before the thread is sent to the function. */
static __always_inline void unspin_redirect_begin(enum unspin_redirect to)
{
	this_cpu_inc(unspin_redirected.threads[to]);
}

/* Call at the end of such a function. */
static __always_inline void unspin_redirect_end(enum unspin_redirect to)
{
	barrier();
	this_cpu_dec(unspin_redirected.threads[to]);
}

/* The hook is off, so that no thread comes. Waits until all have left. May sleep. */
void unspin_redirect_wait(enum unspin_redirect to);

#endif
