// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The environment of a Linux program, with a time-stamp counter that steps once, and a clock_gettime() of
 * the program's own. Prints what is wrong. With -DSHARED the futexes are shared between processes, with
 * -DFILTERED the kernel refuses clock_gettime().
 */
#define _GNU_SOURCE
#include <pthread.h>

#define unspin_lock_cpu_ticks real_ticks
#include "env_cpu.h"
#undef unspin_lock_cpu_ticks

static unsigned long long step_at, readings;
static long long step_ticks;

static inline unsigned long long unspin_lock_cpu_ticks(void)
{
	unsigned long long ticks = real_ticks();

	return ++readings > step_at ? ticks + (unsigned long long)step_ticks : ticks;
}

#ifdef SHARED
#define UNSPIN_LOCK_LINUX_FUTEX 0
#endif
#define UNSPIN_LOCK_ONE_OBJECT
#include "env.h"
#include "expect.h"

static unsigned int rate_with(long long step)
{
	readings = 0;
	step_ticks = step;
	atomic_store(&unspin_lock_linux_ticks_per_us, 0);
	return unspin_lock_ticks_per_us();
}

/* The counter steps between the first two pairs of readings, which are 20 us apart. */
static void the_clock(void)
{
	unsigned int rate = rate_with(0);
	long long steps[] = { -(1LL << 30), -15LL * rate, -5LL * rate, 5LL * rate, 100LL * rate };

	step_at = 8;
	for (unsigned int i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		unsigned int stepped = rate_with(steps[i]);

		expect(stepped > rate - rate / 8 && stepped < rate + rate / 8, "a step of the counter spoils its rate");
	}
}

#define NAP_MS 50ULL

static void a_nap(void)
{
	static atomic_uint word;
	unsigned long long began_ns = unspin_lock_linux_clock_ns(), took_ms;

	unspin_lock_wait_for(&word, 0, 0, NAP_MS * 1000000);
	took_ms = (unspin_lock_linux_clock_ns() - began_ns) / 1000000;
	expect(took_ms >= NAP_MS - 1, "a nap ends too early");
	expect(took_ms < 20 * NAP_MS, "a nap ends too late");
	/* A word that has changed. */
	began_ns = unspin_lock_linux_clock_ns();
	unspin_lock_wait_for(&word, 1, 40, NAP_MS * 1000000);
	expect(unspin_lock_linux_clock_ns() - began_ns < NAP_MS * 1000000, "it naps anyway");
}

#ifdef FILTERED
#include <linux/filter.h>
#include <linux/seccomp.h>

static void a_clock_of_its_own(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };
	unsigned int measured, rate = rate_with(0);

	expect(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter),
	       "no filter");
	alarm(10);
	errno = 0;
	measured = rate_with(0);
	expect(measured > rate - rate / 8 && measured < rate + rate / 8, "a filter spoils the rate");
	a_nap();
	expect(!errno, "a filter's errno is seen");
	alarm(60);
}
#else
/* What libfaketime does. */
static long ahead_s;
static bool stands_still;

#ifdef __LP64__
int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (stands_still) {
		*now = (struct timespec) { 1000, 0 };
		return 0;
	}
	if (syscall(SYS_clock_gettime, clock, now))
		return -1;
	now->tv_sec += ahead_s;
	return 0;
}
#endif

static void a_clock_of_its_own(void)
{
	const struct {
		long ahead_s;
		bool stands_still;
	} clocks[] = { { -60, false }, { -86400, false }, { 86400, false }, { 0, true } };
	unsigned int rate = rate_with(0);

	alarm(10);
	for (unsigned int i = 0; i < sizeof(clocks) / sizeof(*clocks) && !failures; i++) {
		unsigned long long began_ticks;
		unsigned int measured;

		ahead_s = clocks[i].ahead_s;
		stands_still = clocks[i].stands_still;
		measured = rate_with(0);
		expect(measured > rate - rate / 8 && measured < rate + rate / 8, "the program's clock spoils the rate");
		began_ticks = unspin_lock_now();
		a_nap();
		expect((unspin_lock_now() - began_ticks) / 1000 >= (NAP_MS - 1) * rate,
		       "the program's clock ends a nap");
	}
	stands_still = false;
	ahead_s = 0;
	alarm(60);
}
#endif

/* A thread's timer slack is as before, also one that an int cannot hold. */
static void the_slack(void)
{
	static atomic_uint word;
	const unsigned long slack_ns = sizeof(long) > 4 ? 5000000000ul : 3000000000ul;

	prctl(PR_SET_TIMERSLACK, slack_ns);
	unspin_lock_wait_for(&word, 0, 0, 1000000);
	expect((unsigned long)syscall(SYS_prctl, PR_GET_TIMERSLACK) == slack_ns, "a nap changes the timer slack");
	prctl(PR_SET_TIMERSLACK, 0ul);
}

#define SLEEPERS 1000
#define WOKEN 500u

static atomic_uint line, asleep, returns;
static atomic_bool over;

static void *sleeper(void *argument)
{
	unsigned int key = (unsigned int)(unsigned long)argument;

	atomic_fetch_add(&asleep, 1);
	while (!atomic_load(&over)) {
		unspin_lock_wait(&line, 0, key);
		atomic_fetch_add(&returns, 1);
		if (key == WOKEN)
			break;
	}
	return NULL;
}

/* Of 1,000 sleepers one is woken. Few others return, too; all do if the word is changed. */
static void many_sleepers(void)
{
	static pthread_t thread[SLEEPERS];
	pthread_attr_t small;
	unsigned long i;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	for (i = 0; i < SLEEPERS; i++)
		if (pthread_create(&thread[i], &small, sleeper, (void *)i)) {
			perror("pthread_create");
			failures++;
			return;
		}
	while (atomic_load(&asleep) < SLEEPERS)
		usleep(1000);
	usleep(300000);
	unspin_lock_wake(&line, WOKEN);
	pthread_join(thread[WOKEN], NULL);
	usleep(100000);
#ifndef SHARED
	expect(atomic_load(&returns) <= 4, "a wake-up ends the sleep of many");
#endif
	atomic_store(&over, true);
	atomic_store(&line, 1);
	for (i = 0; i < SLEEPERS; i++) {
		if (i == WOKEN)
			continue;
		unspin_lock_wake(&line, (unsigned int)i);
		pthread_join(thread[i], NULL);
	}
}

int main(void)
{
	alarm(60);
	the_clock();
	a_nap();
	a_clock_of_its_own();
	the_slack();
	many_sleepers();
	return failures != 0;
}
