// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * One client for every lock: threads add to a plain counter under it. Built once a lock, with
 * -DLOCK_HEADER="../NAME.h" -DLOCK(op)=NAME_##op, and -DWITH_NODE for locks that take a node. Run
 * natively, and under ThreadSanitizer, which sees a missing acquire or release as a data race.
 *
 * usage: stress THREADS ROUNDS; more threads than CPUs preempt holders and waiters.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef YIELDING
#include <sched.h>
#define LOCK_ENV_HEADER "test/yield_env.h"
#endif
#include LOCK_HEADER

#ifdef WITH_NODE
#define NODE , &node
#else
#define NODE
#endif

static struct LOCK(lock) lock;
static unsigned long counter, rounds;

static void *add(void *failed)
{
#ifdef WITH_NODE
	struct LOCK(node) node;
#endif
	unsigned long round, tried = 0;

	for (round = 0; round < rounds; round++) {
		/* Every fourth tries first, so that both ways in are taken. */
		if (round % 4 || !LOCK(trylock)(&lock NODE))
			LOCK(lock)(&lock NODE);
		else
			tried++;
		counter++;
		if (!LOCK(is_locked)(&lock))
			*(atomic_bool *)failed = true;
		LOCK(unlock)(&lock NODE);
	}
	return (void *)tried;
}

static unsigned long number(const char *text)
{
	return strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	unsigned long threads = argc > 1 ? number(argv[1]) : 4, i;
	atomic_bool failed = false;
	pthread_t *thread = calloc(threads, sizeof(*thread));
#ifdef WITH_NODE
	struct LOCK(node) node;
#endif

	rounds = argc > 2 ? number(argv[2]) : 10000;
	for (i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, add, &failed))
			return 2;
	for (i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	free(thread);
	if (counter != threads * rounds || failed) {
		printf("%lu of %lu increments%s\n", counter, threads * rounds,
		       failed ? ", is_locked denied a holder" : "");
		return 1;
	}
	/* A free lock can be tried, a held one cannot, and a released one is free. */
	if (LOCK(is_locked)(&lock) || !LOCK(trylock)(&lock NODE) || !LOCK(is_locked)(&lock)) {
		printf("the lock is not free after all have released it\n");
		return 1;
	}
	{
#ifdef WITH_NODE
		struct LOCK(node) node;
#endif
		if (LOCK(trylock)(&lock NODE)) {
			printf("trylock got a lock that is held\n");
			return 1;
		}
	}
	LOCK(unlock)(&lock NODE);
	return LOCK(is_locked)(&lock);
}
