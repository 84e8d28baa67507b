// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * slices with|without ITERATIONS CPUS THREADS WINDOW_MS: threads that take one lock (slices.h) and do as much
 * work inside as outside, with extended time slices or without. Prints one line, and ends with 1 if the
 * kernel does not extend slices.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slices.h"
#include "../../bench-locks/c/bench.h"

struct slices_counts slices_counts = { .usual_ticks = ~0ULL };

static unsigned long waits[BENCH_BUCKETS];

/* One of the kernel's counts of all threads, as "sgrant:". 0: it does not count. */
static unsigned long kernels(const char *name)
{
	FILE *file = fopen("/sys/kernel/debug/rseq/stats", "r");
	char found[16];
	unsigned long value, of_name = 0;

	while (file && fscanf(file, "%15s %lu", found, &value) == 2)
		of_name = strcmp(found, name) ? of_name : value;
	if (file)
		fclose(file);
	return of_name;
}

static double us(unsigned long long ticks, const struct bench_window *window)
{
	return (double)ticks * (double)window->ns / (double)window->ticks / 1000;
}

/* The longest wait of the shortest @share, us; at most a sixteenth too long. */
static double wait_us(double share, unsigned long all, const struct bench_window *window)
{
	unsigned int bucket = 0, octave;
	unsigned long seen = waits[0];

	while (bucket < BENCH_BUCKETS - 1 && (double)seen < share * (double)all)
		seen += waits[++bucket];
	octave = bucket / BENCH_SUB;
	if (!octave)
		return us(bucket, window);
	return us(((BENCH_SUB + bucket % BENCH_SUB + 1ULL) << (octave - 1)) - 1, window);
}

static unsigned int number(const char *text)
{
	return (unsigned int)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "sgrant:", "syield:", "sexpir:", "srevok:", "sabort:" };
	struct bench_config config = { .waits = 1, .locks = 1 };
	struct bench_window window;
	struct bench_thread *threads;
	unsigned long before[5], acquisitions = 0, all = 0;
	unsigned int i, bucket;

	if (argc != 6)
		return 2;
	config.critical_iterations = config.outside_iterations = number(argv[2]);
	config.cpus = number(argv[3]);
	config.threads = number(argv[4]);
	config.window_ms = number(argv[5]);
	threads = calloc(config.threads, sizeof(*threads));
	if (!unspin_slice_area() || !threads)
		return 1;
	if (!strcmp(argv[1], "without"))
		atomic_store(&unspin_slice_state, UNSPIN_SLICE_NONE);
	for (i = 0; i < 5; i++)
		before[i] = kernels(names[i]);
	if (BENCH(&config, threads, &window))
		return 1;
	for (i = 0; i < config.threads; i++) {
		acquisitions += threads[i].acquisitions;
		for (bucket = 0; bucket < BENCH_BUCKETS; bucket++) {
			waits[bucket] += threads[i].wait_hist[bucket];
			all += threads[i].wait_hist[bucket];
		}
	}
	printf("per_s=%.0f p99_us=%.0f p999_us=%.0f longest_us=%.0f lost=%lu lost_us=%.0f section_us=%.1f",
	       (double)acquisitions * 1e9 / (double)window.ns, wait_us(0.99, all, &window),
	       wait_us(0.999, all, &window), wait_us(1, all, &window), slices_counts.lost,
	       us(slices_counts.lost_ticks, &window), us(slices_counts.usual_ticks, &window));
	for (i = 0; i < 5; i++)
		printf(" %.6s=%lu", names[i], kernels(names[i]) - before[i]);
	printf("\n");
	return !strcmp(argv[1], "with") && unspin_slice_now() != UNSPIN_SLICE_EXTENDED;
}
