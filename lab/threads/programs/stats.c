// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The counts of stats.h, played step by step: one thread plays several, without a lock, with
 * simulated time.
 */
#include <stdio.h>

#define UNSPIN_LOCK_ENV_HEADER "stats_env.h"
#define UNSPIN_LOCK_STATS
#include "env.h"

#define THREADS 4

unsigned long long played_now_us;

static struct unspin_lock_stats stats;
static int failures;

static void as(unsigned int thread)
{
	unspin_lock_stats_self = &stats.slots[thread];
}

static void ask(unsigned int thread)
{
	as(thread);
	unspin_lock_stats_ask();
}

static void turn(unsigned int thread)
{
	as(thread);
	unspin_cpu_relax();
}

static void get(unsigned int thread)
{
	as(thread);
	unspin_lock_stats_got();
}

static void release(unsigned int thread)
{
	as(thread);
	unspin_lock_stats_release();
}

static struct unspin_lock_stats_counts sum(void)
{
	struct unspin_lock_stats_counts counts;

	unspin_lock_stats_sum(&stats, &counts);
	return counts;
}

static void expect(const char *what, unsigned long is, unsigned long should_be)
{
	if (is == should_be)
		return;
	printf("%s: %lu, not %lu\n", what, is, should_be);
	failures++;
}

static void begin(void)
{
	unsigned int i;

	played_now_us += 1000;
	expect("so few threads fit", unspin_lock_stats_init(&stats, THREADS), true);
	for (i = 0; i < THREADS; i++)
		unspin_lock_stats_join(&stats, i);
}

static void play_stalls(void)
{
	begin();
	ask(0);
	get(0);
	ask(1);
	ask(2);
	turn(1);
	played_now_us += 1;
	turn(1);
	expect("1 us is no stall", sum().stalls_held, 0);
	played_now_us += 1;
	turn(1);
	turn(2);
	expect("one stall, seen by two", sum().stalls_held, 1);
	played_now_us += 5;
	turn(1);
	expect("still the same", sum().stalls_held, 1);
	release(0);
	turn(2);
	played_now_us += 2;
	turn(2);
	expect("a free lock stands still", sum().stalls_free, 1);
	expect("and is not held", sum().stalls_held, 1);
	get(1);
	release(1);
	turn(2);
	played_now_us += 50;
	turn(2);
	expect("who was away has not seen it stand still", sum().stalls_free, 1);
	get(2);
	expect("acquisitions", sum().acquisitions, 3);
}

static void play_overtakes(void)
{
	begin();
	ask(1);
	ask(0);
	get(0);		/* before 1, which runs */
	release(0);
	expect("nothing is known of a wait before it ends", sum().overtakes_running, 0);
	ask(2);
	ask(3);
	played_now_us += 30;	/* 1, 2 and 3 lose their CPUs */
	ask(0);
	get(0);		/* before all three */
	release(0);
	turn(1);
	expect("not yet", sum().returned, 0);
	ask(0);
	get(0);		/* before 1, which is back, and the others */
	release(0);
	get(1);
	release(1);
	expect("of one that ran", sum().overtakes_running, 1);
	expect("of one without a CPU", sum().overtakes_off, 1);
	expect("of one that is back", sum().overtakes_back, 1);
	expect("one was rescheduled", sum().returned, 1);
	expect("after one of three: up to 0.4", sum().by_share[4], 1);
	get(2);
	release(2);
	expect("2 asked after 1", sum().overtakes_off, 3);
	expect("rescheduled with the lock at hand", sum().by_share[0], 1);
	get(3);
	release(3);
	expect("violations, none", sum().violations[0], 3);
	expect("violations, two or three", sum().violations[2], 3);
}

int main(void)
{
	play_stalls();
	play_overtakes();
	return failures != 0;
}
