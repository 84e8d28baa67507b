// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* A lock that is held for a second while three threads wait for it: they sleep, and seldom wake up. */
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

int main(void)
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
	return failures != 0;
}
