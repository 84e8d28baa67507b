// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * One lock under threads: each takes it, works inside, releases it, works outside. Work is counted in
 * loop iterations, not measured by a clock. bench.h lists the other workloads. Compiled once per lock,
 * as client.h of lab/threads/programs says, with -DBENCH=unspin_bench_NAME.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include LOCK_HEADER
#include "bench.h"

#ifdef WITH_NODE
#define NODE , &self->node
#else
#define NODE
#endif

/* What counts of waits need, with UNSPIN_LOCK_STATS alone. */
#ifdef UNSPIN_LOCK_STATS
#define STATS(code) code
#else
#define STATS(code)
#endif

/* A condition variable for any lock. Its threads sleep while `changes` keeps its value. */
struct condition {
	atomic_uint changes;
	unsigned int sleepers;	/* under the lock */
};

struct cell {
	struct LOCK(lock) lock __attribute__((aligned(128)));
	/* Under the lock. */
	unsigned long value __attribute__((aligned(128)));
	unsigned int filled;	/* places of the queue */
	struct condition not_full, not_empty;
} __attribute__((aligned(128)));

struct bench {
	struct cell *cells;
	atomic_bool stop __attribute__((aligned(128)));
	atomic_bool measure;
	pthread_barrier_t ready;
	const struct bench_config *config;
	/* The clocks' rate, for the open loop. */
	unsigned long long ticks_per_ms;
	STATS(struct unspin_lock_stats stats;)
};

struct worker {
	struct bench *bench;
	pthread_t thread;
	clockid_t cpu_time;
	unsigned int index, random;
	/* When the wait it is in began; 0: in none. */
	atomic_ullong waiting_since __attribute__((aligned(128)));
	unsigned long long unfinished_ticks;
	struct bench_thread mine;
#ifdef WITH_NODE
	struct LOCK(node) node;
#endif
} __attribute__((aligned(128)));

static inline void work(unsigned int iterations)
{
	while (iterations--)
		__asm__ volatile("" ::: "memory");
}

/* xorshift32; never 0. */
static inline unsigned int draw(struct worker *self)
{
	self->random ^= self->random << 13;
	self->random ^= self->random >> 17;
	self->random ^= self->random << 5;
	return self->random;
}

static void futex(atomic_uint *word, int operation, unsigned int value)
{
	syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static void sleep_until(unsigned long long ns)
{
	struct timespec until = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void sleep_ms(unsigned int ms)
{
	sleep_until(now_ns() + ms * 1000000ULL);
}

static inline bool stopped(struct bench *bench)
{
	return atomic_load_explicit(&bench->stop, memory_order_relaxed);
}

/* Takes the lock. The wait began at @since ticks; 0: waits are not timed. Returns its length. */
static inline unsigned long long take(struct worker *self, struct cell *cell,
				      unsigned long long since)
{
	unsigned long long now;

	atomic_store_explicit(&self->waiting_since, since, memory_order_relaxed);
	STATS(unspin_lock_stats_ask();)
	LOCK(lock)(&cell->lock NODE);
	STATS(unspin_lock_stats_got();)
	now = since ? bench_ticks() : 0;
	atomic_store_explicit(&self->waiting_since, 0, memory_order_relaxed);
	return now > since ? now - since : 0;
}

static inline void release(struct worker *self, struct cell *cell)
{
	(void)self;
	STATS(unspin_lock_stats_release();)
	LOCK(unlock)(&cell->lock NODE);
}

static inline void inside(struct cell *cell, unsigned int iterations)
{
	unsigned long value = cell->value;

	work(iterations);
	cell->value = value + 1;
}

static inline void count(struct worker *self, unsigned long long wait)
{
	self->mine.all++;
	if (atomic_load_explicit(&self->bench->measure, memory_order_relaxed)) {
		self->mine.acquisitions++;
		self->mine.wait_hist[bench_bucket(wait)]++;
	}
}

static void closed_loop(struct worker *self)
{
	struct bench *bench = self->bench;
	const struct bench_config config = *bench->config;
	struct cell *cell = bench->cells;

	while (!stopped(bench)) {
		unsigned long long wait;

		if (config.locks > 1)
			cell = &bench->cells[draw(self) % config.locks];
		wait = take(self, cell, config.waits ? bench_ticks() : 0);
		inside(cell, config.critical_iterations);
		release(self, cell);
		count(self, wait);
		work(config.outside_iterations);
	}
}

/* The gaps between requests are drawn evenly from 0 to twice their mean. */
static void open_loop(struct worker *self)
{
	struct bench *bench = self->bench;
	const struct bench_config config = *bench->config;
	unsigned long long gap_ns = config.gap_us * 1000ULL, due_ns = now_ns();

	for (;;) {
		unsigned long long now, late, wait;

		due_ns += draw(self) % (2 * gap_ns);
		/* The timer's slack is no part of a wait. 0: the default again, for the lock's own timers. */
		if (now_ns() < due_ns) {
			prctl(PR_SET_TIMERSLACK, 1);
			sleep_until(due_ns);
			prctl(PR_SET_TIMERSLACK, 0);
		}
		if (stopped(bench))
			return;
		now = now_ns();
		late = now > due_ns ? (now - due_ns) * bench->ticks_per_ms / 1000000 : 0;
		wait = take(self, bench->cells, bench_ticks() - late);
		inside(bench->cells, config.critical_iterations);
		release(self, bench->cells);
		count(self, wait);
	}
}

/* Sleeps without the lock until the condition may hold. Waits for the lock afterwards count. */
static unsigned long long await(struct worker *self, struct cell *cell, struct condition *condition)
{
	unsigned int seen = atomic_load(&condition->changes);
	unsigned long long wait;

	condition->sleepers++;
	release(self, cell);
	if (!atomic_load(&self->bench->stop))
		futex(&condition->changes, FUTEX_WAIT, seen);
	wait = take(self, cell, bench_ticks());
	condition->sleepers--;
	return wait;
}

/* A turn puts one thing into the queue, or takes one out. Its wait is the longest for the lock. */
static void queue_loop(struct worker *self)
{
	struct bench *bench = self->bench;
	const struct bench_config config = *bench->config;
	struct cell *cell = bench->cells;
	bool fills = self->index % 2 == 0;
	struct condition *need = fills ? &cell->not_full : &cell->not_empty;
	struct condition *give = fills ? &cell->not_empty : &cell->not_full;
	unsigned int stuck = fills ? config.places : 0;

	while (!stopped(bench)) {
		unsigned long long wait = take(self, cell, bench_ticks());
		bool wake;

		while (cell->filled == stuck && !stopped(bench)) {
			unsigned long long again = await(self, cell, need);

			wait = again > wait ? again : wait;
		}
		if (cell->filled != stuck)
			cell->filled += fills ? 1 : -1u;
		inside(cell, config.critical_iterations);
		wake = give->sleepers;
		if (wake)
			atomic_fetch_add(&give->changes, 1);
		release(self, cell);
		if (wake)
			futex(&give->changes, FUTEX_WAKE, 1);
		count(self, wait);
		work(config.outside_iterations);
	}
}

static void *run(void *argument)
{
	struct worker *self = argument;
	struct bench *bench = self->bench;

	STATS(unspin_lock_stats_join(&bench->stats, self->index);)
	pthread_barrier_wait(&bench->ready);
	if (bench->config->places)
		queue_loop(self);
	else if (bench->config->gap_us)
		open_loop(self);
	else
		closed_loop(self);
	return NULL;
}

/* A thread of other work that wants the CPU all the time. */
static void *run_busy(void *argument)
{
	struct worker *self = argument;

	pthread_barrier_wait(&self->bench->ready);
	while (!stopped(self->bench))
		work(1000);
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

/* The bench's own thread is above those that it measures, so that it can end a window. */
#define THREADS_PRIORITY 1
#define OWN_PRIORITY 2

static void set_class(int class, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	pthread_setschedparam(pthread_self(), class, &param);
}

static int start(struct worker *worker, void *(*body)(void *))
{
	const struct sched_param param = { .sched_priority = THREADS_PRIORITY };
	unsigned int on = worker->bench->config->cpus;
	pthread_attr_t attr;
	cpu_set_t cpus;
	int error;

	pthread_attr_init(&attr);
	if (on) {
		CPU_ZERO(&cpus);
		CPU_SET(allowed_cpu(worker->index % on), &cpus);
		pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	}
	if (worker->bench->config->realtime) {
		pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
		pthread_attr_setschedpolicy(&attr, SCHED_RR);
		pthread_attr_setschedparam(&attr, &param);
	}
	error = pthread_create(&worker->thread, &attr, body, worker);
	pthread_attr_destroy(&attr);
	return error ? error : pthread_getcpuclockid(worker->thread, &worker->cpu_time);
}

/* CPU time of the workers so far. */
static unsigned long long cpu_ns(const struct worker *workers, unsigned int threads)
{
	unsigned long long sum = 0;
	struct timespec used;
	unsigned int i;

	for (i = 0; i < threads; i++) {
		if (!clock_gettime(workers[i].cpu_time, &used))
			sum += (unsigned long long)used.tv_sec * 1000000000 +
			       (unsigned long long)used.tv_nsec;
	}
	return sum;
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
	unsigned int threads = bench->config->threads;
	unsigned long long used = cpu_ns(workers, threads);
	unsigned long long ns = now_ns(), ticks = bench_ticks();

	atomic_store(&bench->measure, true);
	sleep_ms(bench->config->window_ms);
	atomic_store(&bench->measure, false);
	window->ns = now_ns() - ns;
	window->ticks = bench_ticks() - ticks;
	window->cpu_ns = cpu_ns(workers, threads) - used;
	look_at_waits(workers, threads);
}

static void end(struct bench *bench, struct worker *workers, unsigned int all)
{
	struct cell *cell = bench->cells;
	unsigned int i;

	atomic_store(&bench->stop, true);
	atomic_fetch_add(&cell->not_full.changes, 1);
	atomic_fetch_add(&cell->not_empty.changes, 1);
	futex(&cell->not_full.changes, FUTEX_WAKE, INT_MAX);
	futex(&cell->not_empty.changes, FUTEX_WAKE, INT_MAX);
	for (i = 0; i < all; i++)
		pthread_join(workers[i].thread, NULL);
}

/* Copies what the workers counted. False: the lock let two threads in at a time. */
static bool sum_up(struct bench *bench, struct worker *workers, struct bench_thread *out)
{
	unsigned long taken = 0, made = 0;
	unsigned int i;

	for (i = 0; i < bench->config->threads; i++) {
		out[i] = workers[i].mine;
		taken += out[i].all;
		if (workers[i].unfinished_ticks) {
			out[i].unfinished = 1;
			out[i].wait_hist[bench_bucket(workers[i].unfinished_ticks)]++;
		}
	}
	for (i = 0; i < bench->config->locks; i++)
		made += bench->cells[i].value;
	return taken == made;
}

static unsigned long long ticks_per_ms(void)
{
	unsigned long long ns = now_ns(), ticks = bench_ticks();

	sleep_ms(5);
	return (bench_ticks() - ticks) * 1000000 / (now_ns() - ns);
}

/* Zeroed memory, aligned as its types are; NULL: there is none. */
static void *zeroed(size_t bytes)
{
	void *memory = aligned_alloc(128, bytes);

	return memory ? memset(memory, 0, bytes) : NULL;
}

/* Starts all threads and measures. An errno. */
static int run_all(struct bench *bench, struct worker *workers, struct bench_window *window)
{
	const struct bench_config *config = bench->config;
	unsigned int all = config->threads + config->busy, i;
	int error = 0;

	pthread_barrier_init(&bench->ready, NULL, all);
	for (i = 0; i < all && !error; i++) {
		workers[i].bench = bench;
		workers[i].index = i < config->threads ? i : i - config->threads;
		workers[i].random = 2463534242u + i;
		error = start(&workers[i], i < config->threads ? run : run_busy);
	}
	/* Threads that wait at a barrier that never opens cannot be ended: the caller must exit. */
	if (error)
		return error;
	sleep_ms(config->warmup_ms);
	measure(bench, workers, window);
	end(bench, workers, all);
	pthread_barrier_destroy(&bench->ready);
	return 0;
}

/* As bench.h says. */
int BENCH(const struct bench_config *config, struct bench_thread *out,
	  struct bench_window *window, struct unspin_lock_stats_counts *counts)
{
	struct bench *bench = zeroed(sizeof(*bench));
	struct worker *workers = zeroed((config->threads + config->busy) * sizeof(*workers));
	struct cell *cells = zeroed(config->locks * sizeof(*cells));
	unsigned int i;
	int error = ENOMEM;

	(void)counts;
	if (!bench || !workers || !cells)
		goto out;
	for (i = 0; i < config->locks; i++)
		BENCH_INIT(&cells[i].lock);
	bench->cells = cells;
	bench->config = config;
	bench->ticks_per_ms = config->gap_us ? ticks_per_ms() : 0;
	STATS(error = E2BIG;
	      if (!unspin_lock_stats_init(&bench->stats, config->threads))
		      goto out;)
	if (config->realtime)
		set_class(SCHED_RR, OWN_PRIORITY);
	error = run_all(bench, workers, window);
	if (config->realtime)
		set_class(SCHED_OTHER, 0);
	if (error)
		return error;
	if (!sum_up(bench, workers, out))
		error = EPROTO;
	STATS(unspin_lock_stats_sum(&bench->stats, counts);)
out:
	free(cells);
	free(workers);
	free(bench);
	return error;
}
