/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_HRTIMER_H
#define UNSPIN_COMPAT_HRTIMER_H

#include <linux/hrtimer.h>

/* From 6.13 on one call sets the function, too. Earlier kernels need an assignment. */
static inline void compat_hrtimer_setup(struct hrtimer *timer,
					enum hrtimer_restart (*function)(struct hrtimer *),
					clockid_t clock, enum hrtimer_mode mode)
{
#ifdef UNSPIN_HAVE_HRTIMER_SETUP
	hrtimer_setup(timer, function, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = function;
#endif
}

#endif
