// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program with a spin lock of pthread: six threads take it, and read the clock between. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 6

static pthread_spinlock_t lock;
static unsigned long rounds;
static unsigned long long end_ns;

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static void *run(void *unused)
{
	while (now_ns() < end_ns) {
		pthread_spin_lock(&lock);
		rounds++;
		pthread_spin_unlock(&lock);
	}
	return unused;
}

/* Runs for @ms. Returns the rounds of all threads; ends the program if it cannot start them. */
unsigned long unspin_bench_spin_program(unsigned int ms)
{
	pthread_t threads[THREADS];
	int i;

	rounds = 0;
	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	end_ns = now_ns() + ms * 1000000ULL;
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			abort();
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return rounds;
}
