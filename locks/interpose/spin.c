// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The pthread_spin_*() functions over the preemptable ticket lock, for LD_PRELOAD:
 *
 *	cc -O2 -shared -fPIC -I locks -o libunspin-spin.so locks/interpose/spin.c
 *	LD_PRELOAD=./libunspin-spin.so program
 *
 * A pthread_spinlock_t is 4 bytes, the size of the lock, and spinning alone needs no other memory: locks
 * shared between processes work, and one that is held at a fork() is held in the child, as POSIX has it.
 * UNSPIN_TAU_NS sets tau (a number of nanoseconds); anything else leaves it as it is. Prints nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "preemptable.h"

_Static_assert(sizeof(pthread_spinlock_t) == sizeof(struct preemptable_lock),
	       "a pthread_spinlock_t has the size of the lock");

#define EXPORT __attribute__((visibility("default")))

static struct preemptable_lock *ours(pthread_spinlock_t *spin)
{
	return (struct preemptable_lock *)(void *)spin;
}

__attribute__((constructor)) static void read_settings(void)
{
	const char *text = getenv("UNSPIN_TAU_NS");
	char *end;
	unsigned long long tau_ns;

	if (!text || *text < '0' || *text > '9')
		return;
	tau_ns = strtoull(text, &end, 10);
	if (!*end)
		atomic_store(&preemptable_default.tau_ns, tau_ns);
}

EXPORT int pthread_spin_init(pthread_spinlock_t *spin, int shared)
{
	(void)shared;
	atomic_store_explicit(&ours(spin)->both, 0, memory_order_relaxed);
	return 0;
}

EXPORT int pthread_spin_destroy(pthread_spinlock_t *spin)
{
	(void)spin;
	return 0;
}

EXPORT int pthread_spin_lock(pthread_spinlock_t *spin)
{
	preemptable_lock(ours(spin));
	return 0;
}

EXPORT int pthread_spin_trylock(pthread_spinlock_t *spin)
{
	return preemptable_trylock(ours(spin)) ? 0 : EBUSY;
}

EXPORT int pthread_spin_unlock(pthread_spinlock_t *spin)
{
	preemptable_unlock(ours(spin));
	return 0;
}
