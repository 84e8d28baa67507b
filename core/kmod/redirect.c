// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>

#include "state.h"
#include "redirect.h"

#define WARN_AFTER_MS 10000u

DEFINE_PER_CPU(struct unspin_redirected, unspin_redirected);

/* No new thread enters, so the result is the number of threads that are left, or larger. */
static long redirected(enum unspin_redirect to)
{
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(unspin_redirected, cpu).threads[to]);
	return sum;
}

void unspin_redirect_wait(enum unspin_redirect to)
{
	u32 waited;

	for (waited = 0; redirected(to); waited++) {
		if (waited == WARN_AFTER_MS)
			pr_warn("still waiting for vCPU threads to leave the module\n");
		usleep_range(900, 1100);
	}
	/*
	 * Wait for threads that were counted as having left but still run their last instructions
	 * here.
	 */
	synchronize_rcu_tasks();
}
