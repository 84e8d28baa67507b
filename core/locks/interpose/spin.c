// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The pthread_spin_*() functions with a lock of list.h, for LD_PRELOAD:
 *
 *	cd core/locks/interpose
 *	cc -O2 -shared -fPIC -fvisibility=hidden -ftls-model=initial-exec -I .. \
 *	   -Wl,--version-script=versions.map -o libunspin-locks.so *.c
 *	LD_PRELOAD=./libunspin-locks.so program
 *
 * Only the replaced functions are visible, so that several copies of the library may be in one process. The
 * library needs no function of glibc's dynamic linker, so that processes of another C library start, too.
 *
 * The lock is in the pthread_spinlock_t; if it is too large for that, the C library's lock is used. So
 * locks shared between processes work, and a lock that is held at a fork() is held in the child, as
 * POSIX requires. A waiter that dies (in a killed process; all threads but one at a fork()) keeps its
 * place in the line of a preemptable lock, and is overtaken.
 *
 * pthread_spin_destroy() of the C library is kept, because it has nothing to do.
 */
#include "choice.h"

typedef int spin_fn(pthread_spinlock_t *spin);

static spin_fn choose_and_lock, choose_and_trylock, choose_and_unlock;
static int choose_and_init(pthread_spinlock_t *spin, int shared);

/* The first call chooses, because locks may be taken before constructors run. */
static _Atomic(spin_fn *) lock_fn = choose_and_lock;
static _Atomic(spin_fn *) trylock_fn = choose_and_trylock;
static _Atomic(spin_fn *) unlock_fn = choose_and_unlock;
static _Atomic(int (*)(pthread_spinlock_t *, int)) init_fn = choose_and_init;

#define CALL(fn, ...) (atomic_load_explicit(&fn, memory_order_relaxed)(__VA_ARGS__))

static _Atomic(const struct interpose_lock *) counted;

static int counted_lock(pthread_spinlock_t *spin)
{
	const struct interpose_lock *lock = atomic_load_explicit(&counted, memory_order_relaxed);

	interpose_add(&interpose_spins.taken);
	if (!lock->trylock(spin))
		return 0;
	interpose_add(&interpose_spins.waited);
	return lock->lock(spin);
}

static int counted_trylock(pthread_spinlock_t *spin)
{
	const struct interpose_lock *lock = atomic_load_explicit(&counted, memory_order_relaxed);
	int error = lock->trylock(spin);

	if (!error)
		interpose_add(&interpose_spins.taken);
	return error;
}

static int init(pthread_spinlock_t *spin, int shared)
{
	(void)shared;
	*spin = 0;
	return 0;
}

/* May run in several threads at a time; all store the same values. */
static void choose(void)
{
	struct interpose_choice choice = interpose_choose();

	if (!choice.spin) {
		atomic_store(&init_fn, (int (*)(pthread_spinlock_t *, int))
				       interpose_next("pthread_spin_init"));
		atomic_store(&lock_fn, (spin_fn *)interpose_next("pthread_spin_lock"));
		atomic_store(&trylock_fn, (spin_fn *)interpose_next("pthread_spin_trylock"));
		atomic_store(&unlock_fn, (spin_fn *)interpose_next("pthread_spin_unlock"));
		return;
	}
	atomic_store(&counted, choice.spin);
	atomic_store(&init_fn, init);
	atomic_store(&lock_fn, choice.verbose ? counted_lock : choice.spin->lock);
	atomic_store(&trylock_fn, choice.verbose ? counted_trylock : choice.spin->trylock);
	atomic_store(&unlock_fn, choice.spin->unlock);
}

static int choose_and_init(pthread_spinlock_t *spin, int shared)
{
	choose();
	return CALL(init_fn, spin, shared);
}

static int choose_and_lock(pthread_spinlock_t *spin)
{
	choose();
	return CALL(lock_fn, spin);
}

static int choose_and_trylock(pthread_spinlock_t *spin)
{
	choose();
	return CALL(trylock_fn, spin);
}

static int choose_and_unlock(pthread_spinlock_t *spin)
{
	choose();
	return CALL(unlock_fn, spin);
}

__attribute__((constructor)) static void start(void)
{
	choose();
}

INTERPOSE_EXPORT int pthread_spin_init(pthread_spinlock_t *spin, int shared)
{
	return CALL(init_fn, spin, shared);
}

INTERPOSE_EXPORT int pthread_spin_lock(pthread_spinlock_t *spin)
{
	return CALL(lock_fn, spin);
}

INTERPOSE_EXPORT int pthread_spin_trylock(pthread_spinlock_t *spin)
{
	return CALL(trylock_fn, spin);
}

INTERPOSE_EXPORT int pthread_spin_unlock(pthread_spinlock_t *spin)
{
	return CALL(unlock_fn, spin);
}
