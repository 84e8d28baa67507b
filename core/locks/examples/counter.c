/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Two threads count to 200,000: cc -std=gnu11 -pthread counter.c */
#include <pthread.h>
#include <stdio.h>
#include <unspin/lease.h>

static struct unspin_lease_lock lock = UNSPIN_LEASE_LOCK_INIT;
static long counter;

static void *count(void *unused)
{
	for (int i = 0; i < 100000; i++) {
		unspin_lease_lock(&lock);
		counter++;
		unspin_lease_unlock(&lock);
	}
	return unused;
}

int main(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, count, NULL))
		return 1;
	count(NULL);
	pthread_join(other, NULL);
	printf("%ld\n", counter);
	return 0;
}
