// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * answers THREADS SEED: threads sleep until a request comes, at a random time, and answer it by
 * computing. Requests come whether the thread is ready or not, as from outside. Requests that came
 * meanwhile are answered one after the other. The time of an answer counts from its request.
 *
 * One unit is one answer.
 */
#include <time.h>
#include "units.h"

#define BETWEEN_NS 8000000	/* the longest time between two requests of a thread; the mean is half of it */
#define STEPS 40000		/* of computing: about a quarter of a millisecond at 200 MHz */
#define THREADS_MAX 256
#define NS_PER_S 1000000000

static struct area *area;
static double ns_per_cycle;
static volatile uint32_t result;

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

/* Cycles and nanoseconds of the same span. */
static double cycles_measured(void)
{
	struct timespec span = { .tv_nsec = 20000000 };
	uint64_t begin = units_tsc();
	int64_t begin_ns = now_ns();

	nanosleep(&span, NULL);
	return (double)(now_ns() - begin_ns) / (double)(units_tsc() - begin);
}

static void sleep_until(int64_t ns)
{
	struct timespec at = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
		;
}

static void *answer(void *seed)
{
	uint64_t *slot = units_slot(area);
	unsigned short random[3] = { 0x330e, (uintptr_t)seed, (uintptr_t)seed >> 16 };
	int64_t request = now_ns();

	for (;;) {
		uint32_t state = 1;

		request += (int64_t)(BETWEEN_NS * erand48(random));
		sleep_until(request);
		for (int step = 0; step < STEPS; step++)
			state = state * 1103515245u + 12345u;
		result = state;
		units_respond(area, (uint64_t)((double)(now_ns() - request) / ns_per_cycle));
		units_count(slot);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int threads = count == 3 ? atoi(arguments[1]) : 0;

	if (threads < 1 || threads > THREADS_MAX)
		units_refuse("usage: answers THREADS SEED, with 1 to %d threads", THREADS_MAX);
	area = units_area();
	ns_per_cycle = cycles_measured();
	units_run_threads("answers", threads, answer, arguments[2], THREADS_MAX);
}
