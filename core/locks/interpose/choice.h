/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the program is to be given: the lock the environment names, and what is counted.
 *
 *	UNSPIN_LOCK	a name of list.h, for spin locks where it fits them and for mutexes; any other
 *			name is said once on stderr, and nothing is taken over
 *	UNSPIN_MUTEX	1: pthread_mutex_*() as well
 *	UNSPIN_TAU_NS	tau of the preemptable locks
 *	UNSPIN_VERBOSE	1: a line of counts on stderr when the program exits
 *
 * A value that is none of these is said once on stderr, and ignored.
 */
#ifndef UNSPIN_LOCKS_INTERPOSE_CHOICE_H
#define UNSPIN_LOCKS_INTERPOSE_CHOICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define INTERPOSE_EXPORT __attribute__((visibility("default")))

/* The largest of ours. */
#define INTERPOSE_BYTES_MAX 8

/* A lock of ours on memory that is free when zero. The functions return what pthread_spin_*() do. */
struct interpose_lock {
	const char *name;
	bool fits_spin;	/* into a pthread_spinlock_t */
	int (*lock)(pthread_spinlock_t *word);
	int (*trylock)(pthread_spinlock_t *word);
	int (*unlock)(pthread_spinlock_t *word);
	bool (*is_locked)(pthread_spinlock_t *word);
};

struct interpose_choice {
	/* NULL: the C library's own. */
	const struct interpose_lock *spin;
	const struct interpose_lock *front;	/* of mutexes */
	bool verbose;
};

/* Calls of one kind; counted with UNSPIN_VERBOSE only. */
struct interpose_count {
	atomic_ulong taken;	/* over the lock chosen */
	atomic_ulong waited;	/* of these, those that found it taken */
	atomic_ulong left;	/* left to the C library */
};

extern struct interpose_count interpose_spins, interpose_mutexes;

/*
 * Times this process is a fork() away from the program's first one. What a thread leaves behind in a
 * lock is void in a child of another number: the thread is not there.
 */
extern atomic_uint interpose_forks;

/* The same each time, from any thread, before constructors as well. */
struct interpose_choice interpose_choose(void);

/* The C library's function of that name. It must exist. */
void *interpose_next(const char *name);

/*
 * Before the mutex's holder gives it up by other means than pthread_mutex_unlock(); of no effect where
 * mutexes are the C library's alone.
 */
void interpose_mutex_leave_front(pthread_mutex_t *mutex);

static inline void interpose_add(atomic_ulong *count)
{
	atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

#endif
