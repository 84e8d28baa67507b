// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * One client for every lock: threads add to a plain counter under it. Run natively, and under
 * ThreadSanitizer, which reports a missing acquire or release as a data race. See client.h for the
 * build.
 *
 * usage: stress THREADS ROUNDS [START [DISTURB]]
 *
 * Each thread stops after ROUNDS, or once MS_ENOUGH ms have passed and it has made one. The time
 * limit is for busy computers, on which a first-come lock waits some ms for each next thread that
 * gave its CPU up. More threads than CPUs preempt holders and waiters. START is the initial value
 * of the lock's counters. DISTURB is the number of times that a signal handler, which sleeps for 1
 * ms, delays a thread at an arbitrary point, holder or waiter. A lost wake-up ends the program by
 * SIGALRM. With PROGRESS_S the program prints its progress, once per that many seconds.
 */
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#ifndef SECONDS_MAX
#define SECONDS_MAX 600
#endif
#ifndef MS_ENOUGH
#define MS_ENOUGH 3000
#endif
/* A holder yields its CPU once in this many rounds, in addition to being preempted. */
#ifndef YIELD_EVERY
#define YIELD_EVERY 64
#endif

static struct LOCK(lock) lock;
static unsigned long counter, rounds;
static atomic_bool denied, enough;
static atomic_ulong finished, made;
static pthread_barrier_t start;

static void sleep_ms(void)
{
	struct timespec ms = { 0, 1000000 };

	nanosleep(&ms, NULL);
}

static void nap(int signal)
{
	(void)signal;
	sleep_ms();
}

static void *add(void *unused)
{
	DECLARE_NODE;
	unsigned long round;

	(void)unused;
	/* A fast lock would finish a thread's rounds before the next thread starts. */
	pthread_barrier_wait(&start);
	/* Relaxed order: a stronger one would hide from ThreadSanitizer that a lock has none. */
	for (round = 0; round < rounds &&
	     !(round && atomic_load_explicit(&enough, memory_order_relaxed)); round++) {
		/* A quarter of the acquisitions try first, so that both entry points are tested. */
		if (round % 4 || !LOCK(trylock)(&lock NODE))
			LOCK(lock)(&lock NODE);
		counter++;
		/* The others wait, time out and halt. */
		if (round % YIELD_EVERY == 0)
			sched_yield();
		if (!LOCK(is_locked)(&lock))
			atomic_store(&denied, true);
		LOCK(unlock)(&lock NODE);
	}
	atomic_fetch_add(&made, round);
	atomic_fetch_add(&finished, 1);
	return NULL;
}

static void disturb(const pthread_t *thread, unsigned long threads, unsigned long times)
{
	struct timespec pause = { 0, 300000 };
	unsigned long i;

	for (i = 0; i < times && atomic_load(&finished) < threads; i++) {
		pthread_kill(thread[i % threads], SIGUSR1);
		nanosleep(&pause, NULL);
	}
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void wait_until_enough(unsigned long threads, long long began_ms)
{
	while (atomic_load(&finished) < threads && now_ms() - began_ms < MS_ENOUGH)
		sleep_ms();
	atomic_store(&enough, true);
}

#ifdef PROGRESS_S
static void show_progress(unsigned long threads)
{
	time_t began = time(NULL);

	while (atomic_load(&finished) < threads) {
		sleep(PROGRESS_S);
		/* Read while it changes: a hint for people. */
		printf("%lu of %lu after %ld s\n", *(volatile unsigned long *)&counter,
		       threads * rounds, (long)(time(NULL) - began));
		fflush(stdout);
	}
}
#endif

/* A free lock can be tried, a held one cannot, and a released one is free. */
static const char *check_alone(void)
{
	DECLARE_NODE;

	if (LOCK(is_locked)(&lock) || !LOCK(trylock)(&lock NODE) || !LOCK(is_locked)(&lock))
		return "the lock is not free after all have released it";
	{
		DECLARE_NODE;

		if (LOCK(trylock)(&lock NODE))
			return "trylock got a lock that is held";
	}
	LOCK(unlock)(&lock NODE);
	return LOCK(is_locked)(&lock) ? "a released lock is locked" : NULL;
}

int main(int argc, char **argv)
{
	unsigned long threads = argc > 1 ? number(argv[1]) : 4, i;
	pthread_t *thread = calloc(threads, sizeof(*thread));
	struct sigaction action = { .sa_handler = nap };
	long long began_ms = now_ms();
	const char *wrong;

	rounds = argc > 2 ? number(argv[2]) : 10000;
	start_lock(&lock, argc > 3 ? (unsigned int)number(argv[3]) : 0);
	sigaction(SIGUSR1, &action, NULL);
	alarm(SECONDS_MAX);
	pthread_barrier_init(&start, NULL, (unsigned int)threads);
	for (i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, add, NULL))
			return 2;
	if (argc > 4)
		disturb(thread, threads, number(argv[4]));
#ifdef PROGRESS_S
	show_progress(threads);
#endif
	wait_until_enough(threads, began_ms);
	for (i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	free(thread);
	if (counter != made || denied) {
		printf("%lu of %lu increments%s\n", counter, atomic_load(&made),
		       denied ? ", is_locked denied a holder" : "");
		return 1;
	}
	wrong = check_alone();
	if (wrong)
		printf("%s\n", wrong);
	return wrong != NULL;
}
