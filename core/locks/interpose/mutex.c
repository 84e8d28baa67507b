// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * pthread_mutex_lock() and _unlock() with a lock of list.h in front, if UNSPIN_MUTEX=1.
 *
 * The mutex stays that of the C library: its holder always holds the C library's mutex. A thread that
 * finds a mutex held takes the front lock first. So one waiter at a time asks for the mutex, in the
 * order of the front lock, and holds both until pthread_mutex_unlock(). A free mutex is taken by the
 * first thread that asks, as with the C library alone: it does not wait for a thread that has yet to
 * wake up. Condition variables, timed locks, trylock, cancellation and code that takes a mutex by the C
 * library's functions work as usual: they use only the mutex, and the holder of the front lock waits
 * for it. But a mutex that was taken by the functions below must be released by them: the C library's
 * pthread_mutex_unlock(), by a pointer into the C library, would leave the front lock taken.
 *
 * The thread that holds the front lock and asks for the mutex must run, or all others that find the mutex held
 * wait for it. So a program must not stop it in a signal handler, and the thread must not leave
 * pthread_mutex_lock() by siglongjmp() or pthread_exit() in one.
 *
 * A thread of a real-time class does not take the front lock. It asks for the mutex and sleeps there.
 *
 * The front lock uses the bytes that list robust and priority mutexes; plain and adaptive ones leave
 * them zero. All other kinds, and mutexes shared between processes, are left to the C library.
 *
 * Condition variables release the front lock before they wait. A thread that wakes up holds only the
 * mutex.
 *
 * The last access of an unlock is the C library's, so a mutex may be freed as soon as with the C library
 * alone.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "choice.h"
#include "realtime.h"

/* Bits of __kind to ignore: lock elision, which the front lock does not disturb. */
#define KIND_ELISION (256 | 512)

struct front {
	union {
		pthread_spinlock_t word;
		char bytes[INTERPOSE_BYTES_MAX];
	};
	/* The holder of the mutex also holds the front lock. Used only by the holder. */
	unsigned int held;
	/* interpose_forks of the last user of the above; with FRONT_CLEARING: of the one that clears it now. */
	atomic_uint forks;
};

#define FRONT_CLEARING 0x80000000u

_Static_assert(sizeof(struct front) <= sizeof(((pthread_mutex_t *)0)->__data.__list),
	       "it fits what plain mutexes leave unused");

typedef int mutex_fn(pthread_mutex_t *mutex);

static mutex_fn choose_and_lock, choose_and_unlock;

/* The first call chooses, because mutexes may be taken before constructors run. */
static _Atomic(mutex_fn *) lock_fn = choose_and_lock;
static _Atomic(mutex_fn *) unlock_fn = choose_and_unlock;

#define CALL(fn, ...) (atomic_load_explicit(&fn, memory_order_relaxed)(__VA_ARGS__))

/* The C library's functions, and the front lock. Written before the functions above. */
static struct {
	mutex_fn *lock, *trylock, *unlock;
	const struct interpose_lock *front;
	bool verbose;
} with;

static struct front *front_of(pthread_mutex_t *mutex)
{
	return (struct front *)(void *)&mutex->__data.__list;
}

static bool is_ours(pthread_mutex_t *mutex)
{
	int kind = __atomic_load_n(&mutex->__data.__kind, __ATOMIC_RELAXED) & ~KIND_ELISION;

	return kind == PTHREAD_MUTEX_TIMED_NP || kind == PTHREAD_MUTEX_ADAPTIVE_NP;
}

/*
 * In the child of a fork() no thread waits for the front lock and none holds it, whatever the word
 * says: those threads are in the parent.
 */
static void clear_after_fork(struct front *front)
{
	unsigned int now = interpose_process();
	unsigned int seen = atomic_load_explicit(&front->forks, memory_order_acquire);

	while (__builtin_expect(seen != now, 0)) {
		/* Wait only for a thread of this process. One of the parent does not exist here. */
		if (seen == (now | FRONT_CLEARING)) {
			unspin_cpu_relax();
			seen = atomic_load_explicit(&front->forks, memory_order_acquire);
		} else if (atomic_compare_exchange_weak_explicit(&front->forks, &seen,
								 now | FRONT_CLEARING,
								 memory_order_acquire,
								 memory_order_acquire)) {
			memset(front->bytes, 0, sizeof(front->bytes));
			front->held = 0;
			/* Pairs with the acquires above. */
			atomic_store_explicit(&front->forks, now, memory_order_release);
			return;
		}
	}
}

/* Called by the holder of the mutex, which also holds the front lock: releases that one. */
static __attribute__((noinline)) void leave_front(struct front *front)
{
	clear_after_fork(front);
	if (front->held) {
		front->held = 0;
		with.front->unlock(&front->word);
	}
}

/* The mutex is held: takes the front lock first. */
static __attribute__((noinline)) int lock_in_turn(pthread_mutex_t *mutex)
{
	struct front *front = front_of(mutex);
	int error;

	if (with.verbose)
		interpose_add(&interpose_mutexes.waited);
	if (interpose_was_realtime())
		return with.lock(mutex);
	clear_after_fork(front);
	with.front->lock(&front->word);
	error = with.lock(mutex);
	if (error)
		with.front->unlock(&front->word);
	else
		front->held = 1;
	return error;
}

static inline int lock(pthread_mutex_t *mutex)
{
	bool ours = is_ours(mutex);

	if (with.verbose)
		interpose_add(ours ? &interpose_mutexes.taken : &interpose_mutexes.left);
	if (!ours)
		return with.lock(mutex);
	return with.trylock(mutex) ? lock_in_turn(mutex) : 0;
}

static inline int unlock(pthread_mutex_t *mutex)
{
	if (is_ours(mutex) && __builtin_expect(front_of(mutex)->held, 0))
		leave_front(front_of(mutex));
	return with.unlock(mutex);
}

void interpose_mutex_leave_front(pthread_mutex_t *mutex)
{
	if (atomic_load_explicit(&unlock_fn, memory_order_relaxed) == unlock && is_ours(mutex) &&
	    front_of(mutex)->held)
		leave_front(front_of(mutex));
}

/*
 * Whether the C library's mutexes have the layout that this file expects. They do not if they are those of
 * another copy of this library, which comes next: then that copy alone replaces them.
 */
static bool library_is_as_known(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_t before;
	bool known = is_ours(&mutex);

	memset(&mutex.__data.__list, 0x5a, sizeof(mutex.__data.__list));
	before = mutex;
	known &= !with.trylock(&mutex) && with.trylock(&mutex) == EBUSY;
	known &= is_ours(&mutex) && mutex.__data.__lock == 1;
	known &= !memcmp(&mutex.__data.__list, &before.__data.__list, sizeof(before.__data.__list));
	known &= !with.unlock(&mutex) && mutex.__data.__lock == 0;
	known &= !memcmp(&mutex.__data.__list, &before.__data.__list, sizeof(before.__data.__list));
	return known;
}

/* May run in several threads at a time; all store the same values. */
static void choose(void)
{
	struct interpose_choice choice = interpose_choose();

	with.lock = (mutex_fn *)interpose_next("pthread_mutex_lock");
	with.trylock = (mutex_fn *)interpose_next("pthread_mutex_trylock");
	with.unlock = (mutex_fn *)interpose_next("pthread_mutex_unlock");
	with.front = choice.front;
	with.verbose = choice.verbose;
	if (choice.front && library_is_as_known()) {
		atomic_store(&unlock_fn, unlock);
		atomic_store(&lock_fn, lock);
	} else {
		atomic_store(&unlock_fn, with.unlock);
		atomic_store(&lock_fn, with.lock);
	}
}

static int choose_and_lock(pthread_mutex_t *mutex)
{
	choose();
	return CALL(lock_fn, mutex);
}

static int choose_and_unlock(pthread_mutex_t *mutex)
{
	choose();
	return CALL(unlock_fn, mutex);
}

__attribute__((constructor)) static void start(void)
{
	choose();
}

/* The usual function is inline, because most locks are free and cost little. */
INTERPOSE_EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	mutex_fn *fn = atomic_load_explicit(&lock_fn, memory_order_relaxed);

	return fn == lock ? lock(mutex) : fn(mutex);
}

INTERPOSE_EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	mutex_fn *fn = atomic_load_explicit(&unlock_fn, memory_order_relaxed);

	return fn == unlock ? unlock(mutex) : fn(mutex);
}
