// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * billing THREADS: as many threads as vCPUs compute, and one more checks the guest's accounting:
 * the time that its kernel says its vCPUs ran, were idle, or waited for the host (steal) must be
 * the time that passed. If it is not, the program ends and prints the difference.
 *
 * The kernel accounts at ticks, and a vCPU that does not run gets its ticks when it runs again. So
 * this much may be missing or too much, besides the allowed 1 %.
 *
 * One unit is 2,000 steps of computing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
#include "units.h"

#define STEPS 2000
#define THREADS_MAX 256
#define LOOK_EVERY_NS 200000000ull
/* A period of cpu.max, and a half. */
#define UNBOOKED_S 0.15
#define WRONG_PART 0.01

static struct area *area;

struct books {
	double passed_s;
	double run_s;
	double idle_s;
	double steal_s;
};

static void *computes(void *unused)
{
	volatile uint32_t state = 1;
	uint64_t *slot = units_slot(area);

	(void)unused;
	for (;;) {
		for (int step = 0; step < STEPS; step++)
			state = state * 1103515245u + 12345u;
		units_count(slot);
	}
	return NULL;
}

/* The kernel's accounting of all vCPUs since its start, and the time now. */
static struct books books_now(void)
{
	/* user nice system idle iowait irq softirq steal */
	unsigned long long t[8];
	double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
	FILE *stat = fopen("/proc/stat", "r");
	struct timespec now;
	int read;

	if (!stat)
		units_refuse("billing: /proc/stat: %s", strerror(errno));
	read = fscanf(stat, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
		      &t[4], &t[5], &t[6], &t[7]);
	fclose(stat);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (read != 8)
		units_refuse("billing: /proc/stat has %d of 8 times", read);
	return (struct books){
		.passed_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9,
		.run_s = (double)(t[0] + t[1] + t[2] + t[5] + t[6]) * tick_s,
		.idle_s = (double)(t[3] + t[4]) * tick_s,
		.steal_s = (double)t[7] * tick_s,
	};
}

static void check(const struct books *first, unsigned long vcpus)
{
	struct books now = books_now();
	double due = (now.passed_s - first->passed_s) * (double)vcpus;
	double run = now.run_s - first->run_s;
	double idle = now.idle_s - first->idle_s;
	double steal = now.steal_s - first->steal_s;
	double wrong = run + idle + steal - due;
	double allowed = WRONG_PART * due + UNBOOKED_S * (double)vcpus;

	if (wrong > allowed || wrong < -allowed)
		units_refuse("billing: %.2f s run + %.2f s idle + %.2f s steal are %.2f s, and %.2f s passed",
			     run, idle, steal, run + idle + steal, due);
}

int main(int argc, char **argv)
{
	unsigned long threads = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	struct timespec wait = { .tv_nsec = LOOK_EVERY_NS };
	struct books first;
	pthread_t thread;

	if (threads < 1 || threads > THREADS_MAX)
		units_refuse("usage: billing THREADS, 1 to %d", THREADS_MAX);
	area = units_area();
	first = books_now();
	for (unsigned long n = 0; n < threads; n++) {
		int error = pthread_create(&thread, NULL, computes, NULL);

		if (error)
			units_refuse("billing: thread %lu: %s", n, strerror(error));
	}
	for (;;) {
		nanosleep(&wait, NULL);
		check(&first, threads);
	}
}
