// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Waits for condition variables with UNSPIN_MUTEX=1. The C library releases the mutex by itself there,
 * so the lock in front of it is released before. The mutex is held meanwhile, so that no signal of its
 * next holder is missed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#include "choice.h"

/* glibc's own. Other C libraries have no versions. */
#pragma weak dlvsym

typedef int wait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex);
typedef int timedwait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
typedef int clockwait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
			 const struct timespec *until);

/* A function of the C library. */
struct next {
	const char *name;
	const char *version;	/* NULL: the one that programs get today */
	_Atomic(void *) fn;
};

static struct next next_wait = { "pthread_cond_wait", NULL, NULL };
static struct next next_timedwait = { "pthread_cond_timedwait", NULL, NULL };
static struct next next_clockwait = { "pthread_cond_clockwait", NULL, NULL };

static void *find(const struct next *next)
{
	if (next->version && dlvsym)
		return dlvsym(RTLD_NEXT, next->name, next->version);
	return dlsym(RTLD_NEXT, next->name);
}

/* From any thread, also before constructors; all store the same value. */
static void *once(struct next *next)
{
	void *fn = atomic_load_explicit(&next->fn, memory_order_relaxed);

	if (!fn) {
		fn = find(next);
		if (!fn)
			fn = interpose_next(next->name);
		atomic_store_explicit(&next->fn, fn, memory_order_relaxed);
	}
	return fn;
}

static int wait_by(struct next *next, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	wait_fn *wait = (wait_fn *)once(next);

	interpose_mutex_leave_front(mutex);
	return wait(cond, mutex);
}

static int timedwait_by(struct next *next, pthread_cond_t *cond, pthread_mutex_t *mutex,
			const struct timespec *until)
{
	timedwait_fn *wait = (timedwait_fn *)once(next);

	interpose_mutex_leave_front(mutex);
	return wait(cond, mutex, until);
}

INTERPOSE_EXPORT int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return wait_by(&next_wait, cond, mutex);
}

INTERPOSE_EXPORT int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
					    const struct timespec *until)
{
	return timedwait_by(&next_timedwait, cond, mutex, until);
}

INTERPOSE_EXPORT int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
					    clockid_t clock, const struct timespec *until)
{
	clockwait_fn *wait = (clockwait_fn *)once(&next_clockwait);

	interpose_mutex_leave_front(mutex);
	return wait(cond, mutex, clock, until);
}

#ifdef __x86_64__
/*
 * Programs from before glibc 2.3.2 have conditions of another layout, and call other functions of the same
 * names. versions.map keeps the names below inside the library.
 */
static struct next next_old_wait = { "pthread_cond_wait", "GLIBC_2.2.5", NULL };
static struct next next_old_timedwait = { "pthread_cond_timedwait", "GLIBC_2.2.5", NULL };

wait_fn old_cond_wait;
timedwait_fn old_cond_timedwait;

__asm__(".symver old_cond_wait, pthread_cond_wait@GLIBC_2.2.5");
__asm__(".symver old_cond_timedwait, pthread_cond_timedwait@GLIBC_2.2.5");

INTERPOSE_EXPORT int old_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return wait_by(&next_old_wait, cond, mutex);
}

INTERPOSE_EXPORT int old_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
					const struct timespec *until)
{
	return timedwait_by(&next_old_timedwait, cond, mutex, until);
}
#endif

/* A call of dlsym() makes dlerror() forget, so none is left to the program's waits if possible. */
__attribute__((constructor)) static void start(void)
{
	static struct next *const all[] = {
		&next_wait, &next_timedwait, &next_clockwait,
#ifdef __x86_64__
		&next_old_wait, &next_old_timedwait,
#endif
	};
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		void *fn = find(all[i]);

		/* A C library may lack one, which its programs do not call. */
		if (fn)
			atomic_store_explicit(&all[i]->fn, fn, memory_order_relaxed);
		else
			dlerror();
	}
}
