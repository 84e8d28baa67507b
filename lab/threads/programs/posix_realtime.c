// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Threads of the class SCHED_FIFO on one CPU: a waiter must leave the CPU to the mutex's holder,
 * which has a lower priority.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>

#include "posix.h"

#define LOW 1
#define HIGH 2
#define ROUNDS 20
#define HELD_MS 5

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool held, low_done;
static atomic_int waiter_tid;

static int class_flags;

static int set_class(pid_t tid, int priority)
{
	return sched_setscheduler(tid, SCHED_FIFO | class_flags, &(struct sched_param) { priority });
}

/* The last CPU this process may run on. */
static void go_to_the_cpu(void)
{
	cpu_set_t allowed, one;
	int cpu = CPU_SETSIZE - 1;

	EXPECT(!sched_getaffinity(0, sizeof(allowed), &allowed));
	while (!CPU_ISSET(cpu, &allowed))
		cpu--;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	EXPECT(!sched_setaffinity(0, sizeof(one), &one));
}

static void hold_once(void)
{
	EXPECT(!pthread_mutex_lock(&mutex));
	atomic_store(&held, true);
	sleep_ms(HELD_MS);
	atomic_store(&held, false);
	EXPECT(!pthread_mutex_unlock(&mutex));
}

static void *low(void *unused)
{
	int round;

	(void)unused;
	go_to_the_cpu();
	EXPECT(!set_class(0, LOW));
	for (round = 0; round < ROUNDS; round++) {
		hold_once();
		sleep_ms(1);
	}
	atomic_store(&low_done, true);
	return NULL;
}

static void *high(void *unused)
{
	(void)unused;
	go_to_the_cpu();
	EXPECT(!set_class(0, HIGH));
	while (!atomic_load(&low_done)) {
		EXPECT(!pthread_mutex_lock(&mutex));
		EXPECT(!pthread_mutex_unlock(&mutex));
		sleep_ms(1);
	}
	return NULL;
}

/*
 * Threads of high priority find the mutex held by one of low priority, which sleeps, and then needs
 * the CPU on which they wait.
 */
static void who_waits_leaves_the_cpu(void)
{
	pthread_t thread[3];

	start(thread, 1, low, NULL);
	start(thread + 1, 2, high, NULL);
	join(thread, 3);
}

/* A class that the thread's children do not have is one all the same, as rtkit and PipeWire set it. */
static void who_waits_in_a_class_of_its_own_leaves_the_cpu(void)
{
	class_flags = SCHED_RESET_ON_FORK;
	atomic_store(&low_done, false);
	who_waits_leaves_the_cpu();
	class_flags = 0;
}

static void *wait_once(void *unused)
{
	(void)unused;
	go_to_the_cpu();
	atomic_store(&waiter_tid, gettid());
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_mutex_unlock(&mutex));
	return NULL;
}

static void *hold_long(void *unused)
{
	(void)unused;
	go_to_the_cpu();
	EXPECT(!set_class(0, LOW));
	EXPECT(!pthread_mutex_lock(&mutex));
	atomic_store(&held, true);
	sleep_ms(300);
	EXPECT(!pthread_mutex_unlock(&mutex));
	return NULL;
}

/*
 * Two threads wait, so one of them is in the queue of the front lock. Then they get a class that
 * keeps the CPU.
 */
static void a_class_may_come_while_one_waits(void)
{
	pthread_t holder, waiter[2];
	int i;

	atomic_store(&held, false);
	EXPECT(!pthread_create(&holder, NULL, hold_long, NULL));
	while (!atomic_load(&held))
		sleep_ms(1);
	for (i = 0; i < 2; i++) {
		atomic_store(&waiter_tid, 0);
		EXPECT(!pthread_create(&waiter[i], NULL, wait_once, NULL));
		while (!atomic_load(&waiter_tid))
			sleep_ms(1);
		sleep_ms(20);
		EXPECT(!set_class(atomic_load(&waiter_tid), HIGH));
	}
	EXPECT(!pthread_join(holder, NULL));
	join(waiter, 2);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(who_waits_leaves_the_cpu),
		TEST(who_waits_in_a_class_of_its_own_leaves_the_cpu),
		TEST(a_class_may_come_while_one_waits),
		{ NULL, NULL },
	};
	struct sched_param normal = { 0 };

	if (set_class(0, LOW)) {
		puts("SKIPPED: this user may not have threads of SCHED_FIFO");
		return 0;
	}
	EXPECT(!sched_setscheduler(0, SCHED_OTHER, &normal));
	return run_tests(tests, argc, argv);
}
