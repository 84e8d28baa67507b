// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Counts the acquisitions of other threads while one thread is stopped. See client.h for the build.
 *
 * usage: stopped holder|waiter [WAIT_MS]
 *
 * A signal whose handler waits stops one thread at an arbitrary point: while it holds the lock, or
 * while it waits behind a holder that then releases. Four other threads contend. The program prints
 * how many acquisitions they made while the thread was stopped (it waits up to WAIT_MS, 200, for
 * some), and how many after it continued. It exits with 1 if they entered a held lock. If a lock
 * hangs, SIGALRM ends the program.
 */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define OTHERS 4
#define SECONDS_MAX 300
/* CPU time after which a waiter has certainly reached its loop. */
#define WAITS_CPU_NS 5000000

static struct LOCK(lock) lock;
static atomic_bool is_stopped, go_on, waits, held, release, enough;
static atomic_ulong made;

static void sleep_ms(long ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&left, NULL);
}

/* Waits until the others have more than @than acquisitions, or for @ms. Returns their number. */
static unsigned long made_more(unsigned long than, long ms)
{
	for (; ms > 0 && atomic_load(&made) <= than; ms -= 10)
		sleep_ms(10);
	return atomic_load(&made);
}

static void stand_still(int signal)
{
	(void)signal;
	atomic_store(&is_stopped, true);
	while (!atomic_load(&go_on))
		sleep_ms(1);
}

static void *take_once(void *unused)
{
	DECLARE_NODE;

	(void)unused;
	atomic_store(&waits, true);
	LOCK(lock)(&lock NODE);
	atomic_store(&held, true);
	while (!atomic_load(&release))
		sleep_ms(1);
	atomic_store(&held, false);
	LOCK(unlock)(&lock NODE);
	return NULL;
}

static void *take_often(void *unused)
{
	DECLARE_NODE;

	(void)unused;
	while (!atomic_load(&enough)) {
		LOCK(lock)(&lock NODE);
		atomic_fetch_add(&made, 1);
		LOCK(unlock)(&lock NODE);
	}
	return NULL;
}

/*
 * Waits until a waiter for the held lock is in its line: the lock's bytes differ from @alone, or,
 * if waiters leave no trace there, it has spun.
 */
static void wait_until_in_line(pthread_t waiter, const struct LOCK(lock) *alone)
{
	struct timespec spent = { 0 };
	clockid_t clock;

	pthread_getcpuclockid(waiter, &clock);
	while (!memcmp((const void *)&lock, alone, sizeof(lock)) && !spent.tv_sec &&
	       spent.tv_nsec < WAITS_CPU_NS) {
		sleep_ms(1);
		clock_gettime(clock, &spent);
	}
}

static void start(pthread_t *thread, void *(*run)(void *))
{
	if (pthread_create(thread, NULL, run, NULL))
		exit(2);
}

static void stop(pthread_t thread)
{
	pthread_kill(thread, SIGUSR1);
	while (!atomic_load(&is_stopped))
		sleep_ms(1);
}

int main(int argc, char **argv)
{
	bool holder = argc > 1 && !strcmp(argv[1], "holder");
	long wait_ms = argc > 2 ? (long)number(argv[2]) : 200;
	struct sigaction action = { .sa_handler = stand_still };
	pthread_t stopped, others[OTHERS];
	unsigned long meanwhile, after;
	struct LOCK(lock) alone;
	DECLARE_NODE;
	int i;

	sigaction(SIGUSR1, &action, NULL);
	alarm(SECONDS_MAX);
	if (!holder)
		LOCK(lock)(&lock NODE);
	memcpy(&alone, (const void *)&lock, sizeof(alone));
	start(&stopped, take_once);
	while (!atomic_load(holder ? &held : &waits))
		sleep_ms(1);
	if (!holder)
		wait_until_in_line(stopped, &alone);
	/* Long enough to time out and to halt. */
	sleep_ms(20);
	stop(stopped);
	if (!holder)
		LOCK(unlock)(&lock NODE);
	for (i = 0; i < OTHERS; i++)
		start(&others[i], take_often);
	meanwhile = made_more(0, wait_ms);
	atomic_store(&release, true);
	atomic_store(&go_on, true);
	after = made_more(meanwhile, SECONDS_MAX * 1000L) - meanwhile;
	atomic_store(&enough, true);
	pthread_join(stopped, NULL);
	for (i = 0; i < OTHERS; i++)
		pthread_join(others[i], NULL);
	printf("%lu meanwhile, %lu after\n", meanwhile, after);
	return holder && meanwhile;
}
