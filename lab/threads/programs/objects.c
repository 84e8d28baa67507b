// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A program and a shared library that it opens (this file with -DLIBRARY) use the same locks, with more waiters
 * than bits of a futex's mask. A lost wake-up ends it by SIGALRM.
 */
#define _GNU_SOURCE
#include "lease.h"
#include "pv_ticket.h"

struct shared {
	struct unspin_lease_lock lease;
	struct unspin_pv_ticket_lock ticket;
	unsigned long counts[2];
};

void use(struct shared *shared, unsigned int turn);

/* Now and then a holder sleeps, so that waiters halt. */
__attribute__((visibility("default"))) void use(struct shared *shared, unsigned int turn)
{
	const struct timespec held = { 0, turn % 64 ? 0 : 60000 };

	unspin_lease_lock(&shared->lease);
	shared->counts[0]++;
	if (held.tv_nsec)
		nanosleep(&held, NULL);
	unspin_lease_unlock(&shared->lease);
	unspin_pv_ticket_lock(&shared->ticket);
	shared->counts[1]++;
	if (held.tv_nsec)
		nanosleep(&held, NULL);
	unspin_pv_ticket_unlock(&shared->ticket);
}

#ifndef LIBRARY
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 40
#define TURNS 400u

static struct shared shared;
static void (*use_in_library)(struct shared *, unsigned int);

static void *run(void *argument)
{
	void (*const how)(struct shared *, unsigned int) = argument ? use_in_library : use;
	unsigned int turn;

	for (turn = 0; turn < TURNS; turn++)
		how(&shared, turn);
	return NULL;
}

int main(int count, char **arguments)
{
	void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	pthread_t threads[THREADS];
	unsigned long i;

	if (!library) {
		puts("the library cannot be opened");
		return 2;
	}
	*(void **)&use_in_library = dlsym(library, "use");
	alarm(20);
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, i % 2 ? &shared : NULL);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu %lu\n", shared.counts[0], shared.counts[1]);
	return shared.counts[0] != THREADS * TURNS || shared.counts[1] != THREADS * TURNS;
}
#endif
