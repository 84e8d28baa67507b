/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Gives the CPU up in every turn of a wait: first-come locks make progress on few CPUs. */
#include <sched.h>

static inline void cpu_relax(void)
{
	sched_yield();
}
