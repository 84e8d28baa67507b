// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Programs that spin in user space, and programs that compute in loops as short: `programs NAME`
 * runs one of them until it is killed.
 */
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIDE 512
#define BYTES (64ul << 20)
#define KEEP(x) __asm__ volatile("" : "+r"(x) : : "memory")

static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
static uint64_t words[BYTES / 8];
static volatile uint64_t sink;
static volatile int flag;
static pthread_spinlock_t lock;

static void nap(long ns)
{
	struct timespec time = { 0, ns };

	nanosleep(&time, NULL);
}

static uint64_t random_numbers(long count)
{
	uint64_t x = (uint64_t)count;

	while (count--) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		KEEP(x);
	}
	return x;
}

/* --- those that spin --- */

static void flag_wait(void)
{
	while (!flag)
		;
}

static void flag_pause(void)
{
	while (!flag)
		__builtin_ia32_pause();
}

static void *take_turns(void *unused)
{
	for (;;) {
		pthread_spin_lock(&lock);
		pthread_spin_unlock(&lock);
	}
	return unused;
}

/* One holds the lock and sleeps, two wait for it. */
static void spin_lock(void)
{
	pthread_t thread;
	int i;

	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	for (i = 0; i < 2; i++)
		pthread_create(&thread, NULL, take_turns, NULL);
	for (;;) {
		pthread_spin_lock(&lock);
		nap(30000000);
		pthread_spin_unlock(&lock);
		nap(100000);
	}
}

/* Regions in which the first thread has so much to do, and the others a share of that. */
static void regions(long most, long percent)
{
	for (;;) {
#pragma omp parallel
		{
			long count = omp_get_thread_num() ? most * percent / 100 : most;

			sink = random_numbers(count);
		}
	}
}

static void omp_long(void) { regions(60000000, 0); }
static void omp_short(void) { regions(200000, 50); }
static void omp_equal(void) { regions(60000000, 100); }

/* --- those that compute --- */

static void multiply_rows(int first, int last)
{
	for (int i = first; i < last; i++)
		for (int j = 0; j < SIDE; j++) {
			double sum = 0;

			for (int k = 0; k < SIDE; k++)
				sum += a[i][k] * b[k][j];
			c[i][j] = sum;
		}
}

static void matrix(void)
{
	for (;;) {
		multiply_rows(0, SIDE);
		sink = (uint64_t)c[3][4];
	}
}

static void matrix_by_rows(void)
{
	for (;;) {
		for (int i = 0; i < SIDE; i++)
			for (int k = 0; k < SIDE; k++)
				for (int j = 0; j < SIDE; j++)
					c[i][j] += a[i][k] * b[k][j];
		sink = (uint64_t)c[3][4];
	}
}

static void omp_matrix(void)
{
	for (;;) {
#pragma omp parallel for
		for (int i = 0; i < SIDE; i++)
			multiply_rows(i, i + 1);
		sink = (uint64_t)c[3][4];
	}
}

static void sum(void)
{
	for (;;) {
		uint64_t total = 0;

		for (size_t i = 0; i < BYTES / 8; i++)
			total += words[i];
		sink = total;
	}
}

static void set(size_t bytes)
{
	for (int i = 0;; i++) {
		memset(words, i, bytes);
		__asm__ volatile("" : : : "memory");
	}
}

static void set_64m(void) { set(BYTES); }
static void set_4k(void) { set(4096); }

static void generator(void)
{
	for (;;)
		sink = random_numbers(1l << 40);
}

static void count(void)
{
	for (uint64_t x = 0;; x++)
		KEEP(x);
}

static void chase(void)
{
	uint32_t *next = (uint32_t *)words;
	uint32_t entries = BYTES / 4, at = 0;

	for (uint32_t i = 0; i < entries; i++)
		next[i] = (i * 2654435761u + 12345) % entries;
	for (;;) {
		at = next[at];
		KEEP(at);
	}
}

static void bodies(void)
{
	static double place[64][3], speed[64][3];

	for (int i = 0; i < 64; i++)
		for (int d = 0; d < 3; d++)
			place[i][d] = i * 3 + d;
	for (;;) {
		for (int i = 0; i < 64; i++)
			for (int j = 0; j < 64; j++) {
				double r = 1;

				for (int d = 0; d < 3; d++)
					r += (place[i][d] - place[j][d]) * (place[i][d] - place[j][d]);
				for (int d = 0; d < 3; d++)
					speed[i][d] += (place[j][d] - place[i][d]) / r;
			}
		for (int i = 0; i < 64; i++)
			for (int d = 0; d < 3; d++)
				place[i][d] += speed[i][d] * 1e-9;
		sink = (uint64_t)place[5][1];
	}
}

static void mandelbrot(void)
{
	for (double y = -1;; y = y > 1 ? -1 : y + 1e-7) {
		double re = 0, im = 0;
		int n = 0;

		while (re * re + im * im < 4 && n < 1000) {
			double next = re * re - im * im - 0.5;

			im = 2 * re * im + y;
			re = next;
			n++;
		}
		sink = (uint64_t)n;
	}
}

static void clock_loop(void)
{
	struct timespec time;

	for (;;)
		clock_gettime(CLOCK_MONOTONIC, &time);
}

/* No register but the vector unit's moves. */
static void vector_only(void)
{
	double x = 0;

	for (;;) {
		x = x * 0.99999 + 1e-9;
		__asm__ volatile("" : "+x"(x));
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} programs[] = {
	{ "flag", flag_wait }, { "flag-pause", flag_pause }, { "spin-lock", spin_lock },
	{ "omp-long", omp_long }, { "omp-short", omp_short }, { "omp-equal", omp_equal },
	{ "matrix", matrix }, { "matrix-by-rows", matrix_by_rows }, { "omp-matrix", omp_matrix },
	{ "sum", sum }, { "memset-64m", set_64m }, { "memset-4k", set_4k },
	{ "generator", generator }, { "count", count }, { "chase", chase }, { "bodies", bodies },
	{ "mandelbrot", mandelbrot }, { "clock", clock_loop }, { "vector-only", vector_only },
};

int main(int argc, char **argv)
{
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			a[i][j] = i + j;
			b[i][j] = i - j;
		}
	for (size_t i = 0; argc == 2 && i < sizeof(programs) / sizeof(programs[0]); i++)
		if (!strcmp(argv[1], programs[i].name))
			programs[i].run();
	fprintf(stderr, "usage: programs NAME\n");
	return 2;
}
