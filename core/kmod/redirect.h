/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the threads inside functions of the module that a hook redirects them to. They may sleep
 * there, and the module's text must stay until the last one has left. The callback of the hook counts
 * them, because it sees every redirected thread, whether its vCPU is known or not.
 */
#ifndef UNSPIN_REDIRECT_H
#define UNSPIN_REDIRECT_H

#include <linux/percpu.h>

enum unspin_redirect {
	UNSPIN_REDIRECT_SPIN,	/* to unspin_on_spin() */
	UNSPIN_REDIRECT_PARK,	/* to park.c */
	UNSPIN_REDIRECTS_COUNT
};

/* Only the sum over all CPUs counts. One CPU's may be negative: a thread may leave on another CPU. */
struct unspin_redirected {
	long threads[UNSPIN_REDIRECTS_COUNT];
};
DECLARE_PER_CPU(struct unspin_redirected, unspin_redirected);

/* Call in the hook's callback, right before it redirects the thread. */
static __always_inline void unspin_redirect_begin(enum unspin_redirect to)
{
	this_cpu_inc(unspin_redirected.threads[to]);
}

/* Call at the end of the function that the thread was redirected to. */
static __always_inline void unspin_redirect_end(enum unspin_redirect to)
{
	barrier();
	this_cpu_dec(unspin_redirected.threads[to]);
}

/* Waits until all threads have left; the hook must be off, so that no thread enters. May sleep. */
void unspin_redirect_wait(enum unspin_redirect to);

#endif
