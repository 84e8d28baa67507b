// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Waits for condition variables with UNSPIN_MUTEX=1. The C library releases the mutex by itself there,
 * so the lock in front of it is released before. The mutex is held meanwhile, so that no signal of its
 * next holder is missed.
 */
#include <time.h>

#include "choice.h"

typedef int wait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex);
typedef int timedwait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
typedef int clockwait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
			 const struct timespec *until);

/* From any thread, also before constructors; all store the same value. */
static void *once(_Atomic(void *) *found, const char *name)
{
	void *fn = atomic_load_explicit(found, memory_order_relaxed);

	if (!fn) {
		fn = interpose_next(name);
		atomic_store_explicit(found, fn, memory_order_relaxed);
	}
	return fn;
}

INTERPOSE_EXPORT int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	static _Atomic(void *) found;
	wait_fn *wait = (wait_fn *)once(&found, __func__);

	interpose_mutex_leave_front(mutex);
	return wait(cond, mutex);
}

INTERPOSE_EXPORT int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
					    const struct timespec *until)
{
	static _Atomic(void *) found;
	timedwait_fn *wait = (timedwait_fn *)once(&found, __func__);

	interpose_mutex_leave_front(mutex);
	return wait(cond, mutex, until);
}

INTERPOSE_EXPORT int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
					    clockid_t clock, const struct timespec *until)
{
	static _Atomic(void *) found;
	clockwait_fn *wait = (clockwait_fn *)once(&found, __func__);

	interpose_mutex_leave_front(mutex);
	return wait(cond, mutex, clock, until);
}
