// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Condition variables, with every kind of mutex they may be used with. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <threads.h>

#include "posix.h"

#define WAITERS 4

static const int kinds[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ADAPTIVE_NP,
			     PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* A queue of numbers with room for one; both may be shared between processes. */
struct queue {
	pthread_mutex_t mutex;
	pthread_cond_t changed, emptied;
	unsigned long number;	/* 0: none */
	unsigned long sum;
	int waiting;
	bool end;
};

static void make(struct queue *queue, int kind, int shared)
{
	pthread_mutexattr_t how;
	pthread_condattr_t cond;

	memset(queue, 0, sizeof(*queue));
	EXPECT(!pthread_mutexattr_init(&how));
	EXPECT(!pthread_mutexattr_settype(&how, kind));
	EXPECT(!pthread_mutexattr_setpshared(&how, shared));
	EXPECT(!pthread_mutex_init(&queue->mutex, &how));
	EXPECT(!pthread_condattr_init(&cond));
	EXPECT(!pthread_condattr_setpshared(&cond, shared));
	EXPECT(!pthread_cond_init(&queue->changed, &cond));
	EXPECT(!pthread_cond_init(&queue->emptied, &cond));
}

static void unmake(struct queue *queue)
{
	EXPECT(!pthread_cond_destroy(&queue->changed));
	EXPECT(!pthread_cond_destroy(&queue->emptied));
	EXPECT(!pthread_mutex_destroy(&queue->mutex));
}

static void *take(void *argument)
{
	struct queue *queue = argument;

	EXPECT(!pthread_mutex_lock(&queue->mutex));
	for (;;) {
		while (!queue->number && !queue->end)
			EXPECT(!pthread_cond_wait(&queue->changed, &queue->mutex));
		if (!queue->number)
			break;
		queue->sum += queue->number;
		queue->number = 0;
		EXPECT(!pthread_cond_signal(&queue->emptied));
		/* Release the mutex for a moment, so that all kinds of turns occur. */
		EXPECT(!pthread_mutex_unlock(&queue->mutex));
		EXPECT(!pthread_mutex_lock(&queue->mutex));
	}
	EXPECT(!pthread_mutex_unlock(&queue->mutex));
	return NULL;
}

/* A lost signal would hang the program. */
static void give(struct queue *queue)
{
	long long until_ns = now_ns(CLOCK_MONOTONIC) + CONTENTION_NS / 2;
	unsigned long number = 0, sum = 0;

	do {
		EXPECT(!pthread_mutex_lock(&queue->mutex));
		while (queue->number)
			EXPECT(!pthread_cond_wait(&queue->emptied, &queue->mutex));
		queue->number = ++number;
		sum += number;
		EXPECT(!pthread_cond_signal(&queue->changed));
		EXPECT(!pthread_mutex_unlock(&queue->mutex));
	} while (now_ns(CLOCK_MONOTONIC) < until_ns);
	EXPECT(!pthread_mutex_lock(&queue->mutex));
	while (queue->number)
		EXPECT(!pthread_cond_wait(&queue->emptied, &queue->mutex));
	queue->end = true;
	EXPECT(!pthread_cond_broadcast(&queue->changed));
	EXPECT(queue->sum == sum);
	EXPECT(!pthread_mutex_unlock(&queue->mutex));
}

static void no_signal_is_lost(void)
{
	pthread_t thread[WAITERS];
	struct queue queue;
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++) {
		make(&queue, kinds[kind], PTHREAD_PROCESS_PRIVATE);
		start(thread, WAITERS, take, &queue);
		give(&queue);
		join(thread, WAITERS);
		unmake(&queue);
	}
}

static void no_signal_is_lost_between_processes(void)
{
	struct queue *queue = shared_memory(sizeof(*queue));
	pid_t child[WAITERS];
	int i;

	make(queue, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED);
	for (i = 0; i < WAITERS; i++) {
		child[i] = fork();
		EXPECT(child[i] >= 0);
		if (!child[i]) {
			take(queue);
			_exit(0);
		}
	}
	give(queue);
	for (i = 0; i < WAITERS; i++)
		reap(child[i]);
	unmake(queue);
}

static void *wait_for_end(void *argument)
{
	struct queue *queue = argument;

	EXPECT(!pthread_mutex_lock(&queue->mutex));
	queue->waiting++;
	while (!queue->end)
		EXPECT(!pthread_cond_wait(&queue->changed, &queue->mutex));
	queue->waiting--;
	EXPECT(!pthread_mutex_unlock(&queue->mutex));
	return NULL;
}

static int waiting(struct queue *queue)
{
	int now;

	EXPECT(!pthread_mutex_lock(&queue->mutex));
	now = queue->waiting;
	EXPECT(!pthread_mutex_unlock(&queue->mutex));
	return now;
}

static void a_broadcast_wakes_all(void)
{
	pthread_t thread[WAITERS];
	struct queue queue;
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++) {
		make(&queue, kinds[kind], PTHREAD_PROCESS_PRIVATE);
		start(thread, WAITERS, wait_for_end, &queue);
		while (waiting(&queue) < WAITERS)
			sleep_ms(1);
		EXPECT(!pthread_mutex_lock(&queue.mutex));
		queue.end = true;
		EXPECT(!pthread_cond_broadcast(&queue.changed));
		EXPECT(!pthread_mutex_unlock(&queue.mutex));
		join(thread, WAITERS);
		EXPECT(!queue.waiting);
		unmake(&queue);
	}
}

static void *end_all(void *argument)
{
	struct queue *queue = argument;

	EXPECT(!pthread_mutex_lock(&queue->mutex));
	queue->end = true;
	EXPECT(!pthread_cond_broadcast(&queue->changed));
	EXPECT(!pthread_mutex_unlock(&queue->mutex));
	return NULL;
}

/*
 * A thread that waited for the mutex waits for a condition next. Then another one does, while a third
 * waits for the mutex: it gets the mutex although nobody has unlocked it by name.
 */
static void a_wait_after_a_wait_for_the_mutex(void)
{
	struct queue queue;
	unsigned int kind;
	pthread_t waiter, third;

	for (kind = 0; kind < KINDS; kind++) {
		make(&queue, kinds[kind], PTHREAD_PROCESS_PRIVATE);
		EXPECT(!pthread_mutex_lock(&queue.mutex));
		EXPECT(!pthread_create(&waiter, NULL, wait_for_end, &queue));
		sleep_ms(30);
		EXPECT(!pthread_mutex_unlock(&queue.mutex));
		while (!__atomic_load_n(&queue.waiting, __ATOMIC_RELAXED))
			sleep_ms(1);
		sleep_ms(10);
		EXPECT(!pthread_mutex_lock(&queue.mutex));
		EXPECT(!pthread_create(&third, NULL, end_all, &queue));
		sleep_ms(30);
		while (!queue.end)
			EXPECT(!pthread_cond_wait(&queue.changed, &queue.mutex));
		EXPECT(!pthread_mutex_unlock(&queue.mutex));
		EXPECT(!pthread_join(waiter, NULL));
		EXPECT(!pthread_join(third, NULL));
		unmake(&queue);
	}
}

static void *try(void *mutex)
{
	int error = pthread_mutex_trylock(mutex);

	if (!error)
		EXPECT(!pthread_mutex_unlock(mutex));
	return (void *)(long)error;
}

static void is_held(pthread_mutex_t *mutex)
{
	pthread_t thread;
	void *error;

	EXPECT(!pthread_create(&thread, NULL, try, mutex));
	EXPECT(!pthread_join(thread, &error));
	EXPECT((long)error == EBUSY);
}

/* Whatever a wait returns, the mutex is held then. */
static void timed_waits_end(void)
{
	struct timespec never = { 0, 1000000000 }, until;
	struct queue queue;
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++) {
		pthread_mutex_t *mutex = &queue.mutex;
		pthread_cond_t *cond = &queue.changed;

		make(&queue, kinds[kind], PTHREAD_PROCESS_PRIVATE);
		EXPECT(!pthread_mutex_lock(mutex));
		until = in_ns(CLOCK_REALTIME, 2000000);
		EXPECT(pthread_cond_timedwait(cond, mutex, &until) == ETIMEDOUT);
		is_held(mutex);
		EXPECT(pthread_cond_timedwait(cond, mutex, &until) == ETIMEDOUT);
		EXPECT(pthread_cond_timedwait(cond, mutex, &never) == EINVAL);
		is_held(mutex);
		until = in_ns(CLOCK_MONOTONIC, 2000000);
		EXPECT(pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
		is_held(mutex);
		EXPECT(pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &never) == EINVAL);
		EXPECT(pthread_cond_clockwait(cond, mutex, CLOCK_PROCESS_CPUTIME_ID, &until) == EINVAL);
		is_held(mutex);
		EXPECT(!pthread_mutex_unlock(mutex));
		EXPECT(!pthread_mutex_lock(mutex));
		EXPECT(!pthread_mutex_unlock(mutex));
		unmake(&queue);
	}
}

static void a_clock_can_be_chosen(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_condattr_t how;
	pthread_cond_t cond;
	struct timespec until;

	EXPECT(!pthread_condattr_init(&how));
	EXPECT(!pthread_condattr_setclock(&how, CLOCK_MONOTONIC));
	EXPECT(!pthread_cond_init(&cond, &how));
	EXPECT(!pthread_mutex_lock(&mutex));
	until = in_ns(CLOCK_MONOTONIC, 5000000);
	EXPECT(pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT);
	EXPECT(now_ns(CLOCK_MONOTONIC) >= until.tv_sec * 1000000000LL + until.tv_nsec);
	EXPECT(!pthread_mutex_unlock(&mutex));
}

static void waits_check_the_owner(void)
{
	struct queue queue;

	make(&queue, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PROCESS_PRIVATE);
	EXPECT(pthread_cond_wait(&queue.changed, &queue.mutex) == EPERM);
	unmake(&queue);
}

static void unlock_after(void *mutex)
{
	is_held(mutex);
	EXPECT(!pthread_mutex_unlock(mutex));
}

static void *be_cancelled(void *argument)
{
	struct queue *queue = argument;

	EXPECT(!pthread_mutex_lock(&queue->mutex));
	queue->waiting++;
	pthread_cleanup_push(unlock_after, &queue->mutex);
	while (!queue->end)
		EXPECT(!pthread_cond_wait(&queue->changed, &queue->mutex));
	pthread_cleanup_pop(1);
	return NULL;
}

static void a_cancelled_wait_holds_the_mutex(void)
{
	struct queue queue;
	pthread_t thread;
	void *returned;
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++) {
		make(&queue, kinds[kind], PTHREAD_PROCESS_PRIVATE);
		EXPECT(!pthread_create(&thread, NULL, be_cancelled, &queue));
		while (!waiting(&queue))
			sleep_ms(1);
		EXPECT(!pthread_cancel(thread));
		EXPECT(!pthread_join(thread, &returned) && returned == PTHREAD_CANCELED);
		EXPECT(!pthread_mutex_lock(&queue.mutex));
		EXPECT(!pthread_mutex_unlock(&queue.mutex));
		unmake(&queue);
	}
}

/* A waiter and a child of its process do not affect each other. */
static void fork_while_waiting(void)
{
	struct queue queue;
	pthread_t thread;
	pid_t child;

	make(&queue, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_PRIVATE);
	EXPECT(!pthread_create(&thread, NULL, wait_for_end, &queue));
	while (!waiting(&queue))
		sleep_ms(1);
	EXPECT(!pthread_mutex_lock(&queue.mutex));
	child = fork();
	EXPECT(child >= 0);
	queue.end = true;
	EXPECT(!pthread_cond_signal(&queue.changed));
	EXPECT(!pthread_mutex_unlock(&queue.mutex));
	if (!child) {
		EXPECT(!pthread_mutex_lock(&queue.mutex));
		EXPECT(!pthread_mutex_unlock(&queue.mutex));
		_exit(0);
	}
	EXPECT(!pthread_join(thread, NULL));
	reap(child);
}

static mtx_t c11_mutex;
static cnd_t c11_cond;
static int c11_turn;

static int take_turns(void *mine)
{
	int turn;

	for (turn = (int)(long)mine; turn < 200; turn += 2) {
		EXPECT(mtx_lock(&c11_mutex) == thrd_success);
		while (c11_turn != turn)
			EXPECT(cnd_wait(&c11_cond, &c11_mutex) == thrd_success);
		c11_turn++;
		EXPECT(cnd_broadcast(&c11_cond) == thrd_success);
		EXPECT(mtx_unlock(&c11_mutex) == thrd_success);
	}
	return 0;
}

/* C11's functions always use the C library's mutexes: they do not call pthread_*() by name. */
static void threads_of_c11(void)
{
	thrd_t other;

	EXPECT(mtx_init(&c11_mutex, mtx_plain) == thrd_success);
	EXPECT(cnd_init(&c11_cond) == thrd_success);
	EXPECT(thrd_create(&other, take_turns, (void *)1L) == thrd_success);
	take_turns((void *)0L);
	EXPECT(thrd_join(other, NULL) == thrd_success);
	EXPECT(c11_turn == 200);
}

TESTS(TEST(no_signal_is_lost), TEST(no_signal_is_lost_between_processes), TEST(a_broadcast_wakes_all),
      TEST(a_wait_after_a_wait_for_the_mutex), TEST(timed_waits_end),
      TEST(a_clock_can_be_chosen), TEST(waits_check_the_owner), TEST(a_cancelled_wait_holds_the_mutex), TEST(fork_while_waiting), TEST(threads_of_c11))
