/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Broken locks, for tests of the checks that must find them. Scenarios cannot name them. */
#ifndef UNSPIN_THREADS_WRONG_LOCKS_H
#define UNSPIN_THREADS_WRONG_LOCKS_H

#include "../../../core/locks/env.h"

#define WRONG(name, wait)							\
	struct name##_lock { atomic_uint taken; };				\
	static inline void name##_lock(struct name##_lock *lock)		\
	{									\
		wait;								\
	}									\
	static inline void name##_unlock(struct name##_lock *lock)		\
	{									\
		(void)lock;							\
	}									\
	static inline bool name##_is_locked(struct name##_lock *lock)		\
	{									\
		(void)lock;							\
		return false;							\
	}

/* Lets every thread in. */
WRONG(wrong_open, (void)lock)
/* Lets one in, ever: the release is lost. */
WRONG(wrong_lost, while (atomic_exchange(&lock->taken, 1)) lock_wait(&lock->taken, 1, 0))

#endif
