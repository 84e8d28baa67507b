/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* An environment whose time is set by stats.c: a tick is 1 us. */
extern unsigned long long played_now_us;

static inline void unspin_cpu_relax(void)
{
}

static inline unsigned long long unspin_lock_now(void)
{
	return played_now_us;
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return 1;
}
