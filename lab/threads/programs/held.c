// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A lock that is held for a second while three threads wait for it: they sleep, and seldom wake up. Then the same
 * with one thread that waits, beside one that gives up each millisecond: the first still sleeps.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "lease.h"
#include "expect.h"

#define WAITERS 3

static struct unspin_lease_lock lock = UNSPIN_LEASE_LOCK_INIT;

static void *waits(void *argument)
{
	unspin_lease_lock(&lock);
	unspin_lease_unlock(&lock);
	return argument;
}

static void few_wake_ups(void)
{
	pthread_t thread[WAITERS];
	struct rusage usage;
	unsigned int i;

	unspin_lease_lock(&lock);
	for (i = 0; i < WAITERS; i++)
		pthread_create(&thread[i], NULL, waits, NULL);
	sleep(1);
	getrusage(RUSAGE_SELF, &usage);
	unspin_lease_unlock(&lock);
	for (i = 0; i < WAITERS; i++)
		pthread_join(thread[i], NULL);
	expect(usage.ru_nvcsw < 1000, "lease: waiters wake up again and again while the lock is held");
}

static void *gives_up(void *argument)
{
	while (!unspin_lease_lock_for(&lock, 1000000))
		;
	unspin_lease_unlock(&lock);
	return argument;
}

static void sleeps_beside_one_that_gives_up(void)
{
	pthread_t waiter, other;
	struct timespec used;
	clockid_t clock;

	unspin_lease_lock(&lock);
	pthread_create(&waiter, NULL, waits, NULL);
	usleep(50000);
	pthread_create(&other, NULL, gives_up, NULL);
	sleep(1);
	pthread_getcpuclockid(waiter, &clock);
	clock_gettime(clock, &used);
	unspin_lease_unlock(&lock);
	pthread_join(waiter, NULL);
	pthread_join(other, NULL);
	expect(!used.tv_sec && used.tv_nsec < 120000000, "lease: a waiter spins beside one that gives up");
}

int main(void)
{
	few_wake_ups();
	sleeps_beside_one_that_gives_up();
	return failures != 0;
}
