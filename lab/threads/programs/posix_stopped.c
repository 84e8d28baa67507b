// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A thread that a signal handler stops while it waits for a mutex, as some garbage collectors do. With the C
 * library's mutexes it delays nobody. Under core/locks/interpose with UNSPIN_MUTEX=1 it may be the one that asks for
 * the mutex for all others.
 */
#include <semaphore.h>
#include <stdatomic.h>

#include "posix.h"

#define HELPERS 3
#define ROUNDS 200

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t stopped, go_on;
static atomic_bool asks;
static long counter;

static void stop(int signal)
{
	(void)signal;
	sem_post(&stopped);
	while (sem_wait(&go_on))
		;
}

static void *is_stopped(void *argument)
{
	atomic_store(&asks, true);
	EXPECT(!pthread_mutex_lock(&mutex));
	counter++;
	EXPECT(!pthread_mutex_unlock(&mutex));
	return argument;
}

static void *helps(void *argument)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		EXPECT(!pthread_mutex_lock(&mutex));
		counter++;
		usleep(50);
		EXPECT(!pthread_mutex_unlock(&mutex));
	}
	return argument;
}

static void a_stopped_waiter_delays_nobody(void)
{
	pthread_t waiter, helper[HELPERS];

	sem_init(&stopped, 0, 0);
	sem_init(&go_on, 0, 0);
	sigaction(SIGUSR1, &(struct sigaction) { .sa_handler = stop, .sa_flags = SA_RESTART }, NULL);
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_create(&waiter, NULL, is_stopped, NULL));
	while (!atomic_load(&asks))
		sleep_ms(1);
	sleep_ms(50);
	EXPECT(!pthread_kill(waiter, SIGUSR1));
	while (sem_wait(&stopped))
		;
	EXPECT(!pthread_mutex_unlock(&mutex));
	start(helper, HELPERS, helps, NULL);
	join(helper, HELPERS);
	EXPECT(!sem_post(&go_on));
	EXPECT(!pthread_join(waiter, NULL));
	EXPECT(counter == HELPERS * ROUNDS + 1);
}

TESTS(TEST(a_stopped_waiter_delays_nobody))
