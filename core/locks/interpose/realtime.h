/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Threads of a real-time class must sleep instead of spinning: a spinning one never gives up its CPU,
 * and the lock's holder may need that CPU.
 */
#ifndef UNSPIN_LOCKS_INTERPOSE_REALTIME_H
#define UNSPIN_LOCKS_INTERPOSE_REALTIME_H

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A pthread_spinlock_t may be shared between processes, so no futex is private. */
#define UNSPIN_LOCK_LINUX_FUTEX 0

/* The probes of env_linux.h, where their header is: NOPs on the ways of threads that wait. */
#if !defined(UNSPIN_LOCK_USDT) && __has_include(<sys/sdt.h>)
#define UNSPIN_LOCK_USDT
#endif

#include "budget.h"

/* Turns of a waiting loop between checks: some milliseconds, about a time slice. */
#define INTERPOSE_TURNS_PER_LOOK (1u << 16)
#define INTERPOSE_SLEEP_NS 100000
#define INTERPOSE_KNOWN_NS 10000000

/* Whether the calling thread has such a class now: a system call. */
static inline bool interpose_is_realtime(void)
{
	int errno_before = errno, policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;

	errno = errno_before;
	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

/*
 * The same, as it was within the last 10 ms. A class that comes meanwhile is seen by
 * interpose_relax() while the thread spins.
 */
static inline bool interpose_was_realtime(void)
{
	static _Thread_local struct unspin_lock_budget known;
	static _Thread_local bool realtime;

	if (!known.limit_ticks || unspin_lock_budget_spent(&known)) {
		known = unspin_lock_budget(INTERPOSE_KNOWN_NS, 1);
		realtime = interpose_is_realtime();
	}
	return realtime;
}

/* One turn of a waiting loop, for the locks of list.h. The class may change while a thread waits. */
static inline void interpose_relax(void)
{
	static _Thread_local unsigned int turns;
	int errno_before;

	unspin_lock_cpu_pause();
	if (++turns % INTERPOSE_TURNS_PER_LOOK || !interpose_is_realtime())
		return;
	errno_before = errno;
	/* Not the C library's nanosleep(), because a lock must not be a cancellation point. */
	syscall(SYS_nanosleep, &(struct timespec) { 0, INTERPOSE_SLEEP_NS }, NULL);
	errno = errno_before;
}

#endif
