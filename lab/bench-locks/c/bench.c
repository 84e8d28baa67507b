// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * One lock under threads that are pinned to CPUs in turn: each takes it, works inside, releases it,
 * works outside. Work is counted in loop iterations, not measured by a clock. Compiled once per
 * lock, as client.h of lab/threads/programs says, with -DBENCH=unspin_bench_NAME.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include LOCK_HEADER
#include "bench.h"

#ifdef WITH_NODE
#define NODE , &node
#define DECLARE_NODE struct LOCK(node) node
#else
#define NODE
#define DECLARE_NODE struct no_node
#endif

/* What counts of waits need, with UNSPIN_LOCK_STATS alone. */
#ifdef UNSPIN_LOCK_STATS
#define STATS(code) code
#else
#define STATS(code)
#endif

struct bench {
	struct LOCK(lock) lock __attribute__((aligned(128)));
	unsigned long value __attribute__((aligned(128)));	/* under the lock */
	atomic_bool stop __attribute__((aligned(128)));
	atomic_bool measure;
	pthread_barrier_t ready;
	const struct bench_config *config;
	STATS(struct unspin_lock_stats stats;)
};

struct worker {
	struct bench *bench;
	struct bench_thread *out;
	pthread_t thread;
	unsigned int index;
	/* When the wait it is in began; 0: in none. */
	atomic_ullong waiting_since __attribute__((aligned(128)));
	unsigned long long unfinished_ticks;
} __attribute__((aligned(128)));

static void work(unsigned int iterations)
{
	while (iterations--)
		__asm__ volatile("" ::: "memory");
}

static void *run(void *argument)
{
	struct worker *self = argument;
	struct bench *bench = self->bench;
	const struct bench_config config = *bench->config;
	struct bench_thread mine = { 0 };
	DECLARE_NODE;

	STATS(unspin_lock_stats_join(&bench->stats, self->index);)
	pthread_barrier_wait(&bench->ready);
	while (!atomic_load_explicit(&bench->stop, memory_order_relaxed)) {
		unsigned long long wait = config.waits ? bench_ticks() : 0;
		unsigned long value;

		atomic_store_explicit(&self->waiting_since, wait, memory_order_relaxed);
		STATS(unspin_lock_stats_ask();)
		LOCK(lock)(&bench->lock NODE);
		STATS(unspin_lock_stats_got();)
		wait = config.waits ? bench_ticks() - wait : 0;
		atomic_store_explicit(&self->waiting_since, 0, memory_order_relaxed);
		value = bench->value;
		work(config.critical_iterations);
		bench->value = value + 1;
		STATS(unspin_lock_stats_release();)
		LOCK(unlock)(&bench->lock NODE);
		mine.all++;
		if (atomic_load_explicit(&bench->measure, memory_order_relaxed)) {
			mine.acquisitions++;
			mine.wait_hist[bench_bucket(wait)]++;
		}
		work(config.outside_iterations);
	}
	*self->out = mine;
	return NULL;
}

/* The n-th CPU that this process may run on. */
static int allowed_cpu(unsigned int n)
{
	cpu_set_t allowed;

	if (!sched_getaffinity(0, sizeof(allowed), &allowed)) {
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			if (CPU_ISSET(cpu, &allowed) && !n--)
				return cpu;
		}
	}
	return 0;
}

static int start(struct worker *worker)
{
	pthread_attr_t attr;
	cpu_set_t cpus;
	int error;

	CPU_ZERO(&cpus);
	CPU_SET(allowed_cpu(worker->index % worker->bench->config->cpus), &cpus);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	error = pthread_create(&worker->thread, &attr, run, worker);
	pthread_attr_destroy(&attr);
	return error;
}

static void sleep_ms(unsigned int ms)
{
	struct timespec left = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

/* Waits that the window ends before they do: without them the longest would be the ones not seen. */
static void look_at_waits(struct worker *workers, unsigned int threads)
{
	unsigned long long now = bench_ticks();
	unsigned int i;

	for (i = 0; i < threads; i++) {
		unsigned long long since = atomic_load(&workers[i].waiting_since);

		workers[i].unfinished_ticks = since && since < now ? now - since : 0;
	}
}

static void measure(struct bench *bench, struct worker *workers, struct bench_window *window)
{
	unsigned long long ns = now_ns(), ticks = bench_ticks();

	atomic_store(&bench->measure, true);
	sleep_ms(bench->config->window_ms);
	atomic_store(&bench->measure, false);
	window->ns = now_ns() - ns;
	window->ticks = bench_ticks() - ticks;
	look_at_waits(workers, bench->config->threads);
}

/* As bench.h says. */
int BENCH(const struct bench_config *config, struct bench_thread *out,
	  struct bench_window *window BENCH_COUNTS)
{
	struct bench *bench = aligned_alloc(128, sizeof(*bench));
	struct worker *workers = aligned_alloc(128, config->threads * sizeof(*workers));
	unsigned long total = 0;
	unsigned int i;
	int error = 0;

	if (!bench || !workers) {
		free(bench);
		free(workers);
		return ENOMEM;
	}
	memset(bench, 0, sizeof(*bench));
	BENCH_INIT(&bench->lock);
	bench->config = config;
	STATS(if (!unspin_lock_stats_init(&bench->stats, config->threads)) {
		free(bench);
		free(workers);
		return E2BIG;
	})
	pthread_barrier_init(&bench->ready, NULL, config->threads);
	for (i = 0; i < config->threads && !error; i++) {
		workers[i] = (struct worker){ .bench = bench, .out = &out[i], .index = i };
		error = start(&workers[i]);
	}
	/* Threads that wait at a barrier that never opens cannot be ended: the caller must exit. */
	if (error)
		return error;
	sleep_ms(config->warmup_ms);
	measure(bench, workers, window);
	atomic_store(&bench->stop, true);
	for (i = 0; i < config->threads; i++) {
		pthread_join(workers[i].thread, NULL);
		total += out[i].all;
		if (workers[i].unfinished_ticks) {
			out[i].unfinished = 1;
			out[i].wait_hist[bench_bucket(workers[i].unfinished_ticks)]++;
		}
	}
	STATS(unspin_lock_stats_sum(&bench->stats, counts);)
	if (total != bench->value)
		error = EPROTO;
	pthread_barrier_destroy(&bench->ready);
	free(workers);
	free(bench);
	return error;
}
