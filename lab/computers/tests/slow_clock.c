// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * For guest/linux/runner.c, linked with --wrap=clock_gettime: a clock at a hundredth of its speed.
 * So the runner's short timeouts do not expire on a busy computer.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ll

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = syscall(SYS_clock_gettime, clock, now);
	long long slow_ns = (now->tv_sec * SECOND_NS + now->tv_nsec) / 100;

	now->tv_sec = slow_ns / SECOND_NS;
	now->tv_nsec = slow_ns % SECOND_NS;
	return result;
}
