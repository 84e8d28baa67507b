/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the environment chooses for the program: its locks, and what is counted.
 *
 *	UNSPIN_LOCK	a name of list.h: the lock for mutexes, and for spin locks if it fits into them.
 *			Any other name is reported once on stderr, and no lock is replaced
 *	UNSPIN_MUTEX	1: replace pthread_mutex_*(), too
 *	UNSPIN_TAU_NS	tau of the preemptable locks
 *	UNSPIN_VERBOSE	1: print a line of counts on stderr when the program exits, unless it has replaced stderr
 *
 * Any other value is reported once on stderr, and ignored.
 */
#ifndef UNSPIN_LOCKS_INTERPOSE_CHOICE_H
#define UNSPIN_LOCKS_INTERPOSE_CHOICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define INTERPOSE_EXPORT __attribute__((visibility("default")))

/* Size of the largest lock of list.h. */
#define INTERPOSE_BYTES_MAX 8

/* A lock of list.h on memory, free if zero. The functions return what pthread_spin_*() return. */
struct interpose_lock {
	const char *name;
	bool fits_spin;	/* it fits into a pthread_spinlock_t */
	int (*lock)(pthread_spinlock_t *word);
	int (*trylock)(pthread_spinlock_t *word);
	int (*unlock)(pthread_spinlock_t *word);
};

struct interpose_choice {
	/* NULL: spin locks stay those of the C library. */
	const struct interpose_lock *spin;
	const struct interpose_lock *front;	/* the lock in front of mutexes */
	bool verbose;
};

/* Calls of one kind; counted only with UNSPIN_VERBOSE. */
struct interpose_count {
	atomic_ulong taken;	/* through the chosen lock */
	atomic_ulong waited;	/* those that found it taken */
	atomic_ulong left;	/* left to the C library */
};

extern struct interpose_count interpose_spins, interpose_mutexes;

/*
 * Whether this process has counted itself in interpose_forks. It is on a page that the kernel clears in
 * the child of a fork(), so that the first lock of the child counts it, also in a handler of fork().
 */
enum { INTERPOSE_UNCOUNTED = 0, INTERPOSE_COUNTING, INTERPOSE_COUNTED };
extern _Atomic(atomic_uint *) interpose_counted;
extern atomic_uint interpose_forks;
void interpose_count_process(void);

/*
 * Number of fork() calls between this process and the program's first one. A process with another
 * number ignores what threads left in a lock, because these threads do not exist in it.
 */
static inline unsigned int interpose_process(void)
{
	atomic_uint *counted = atomic_load_explicit(&interpose_counted, memory_order_relaxed);

	if (__builtin_expect(atomic_load_explicit(counted, memory_order_acquire) != INTERPOSE_COUNTED, 0))
		interpose_count_process();
	return atomic_load_explicit(&interpose_forks, memory_order_relaxed);
}

/* Returns the same each time. From any thread, also before constructors. */
struct interpose_choice interpose_choose(void);

/* The C library's function of that name. It must exist. */
void *interpose_next(const char *name);

/*
 * Call before the mutex's holder releases it in another way than by pthread_mutex_unlock(). Without
 * effect if mutexes are not replaced.
 */
void interpose_mutex_leave_front(pthread_mutex_t *mutex);

static inline void interpose_add(atomic_ulong *count)
{
	atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

#endif
