/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Broken locks, for tests of the checks that must find them. Scenarios cannot name them. */
#ifndef UNSPIN_THREADS_WRONG_LOCKS_H
#define UNSPIN_THREADS_WRONG_LOCKS_H

#include "../../../core/locks/env.h"

#define WRONG(name, wait)							\
	struct unspin_##name##_lock { atomic_uint taken; };				\
	static inline void unspin_##name##_lock(struct unspin_##name##_lock *lock)		\
	{									\
		wait;								\
	}									\
	static inline void unspin_##name##_unlock(struct unspin_##name##_lock *lock)		\
	{									\
		(void)lock;							\
	}									\
	static inline bool unspin_##name##_is_locked(struct unspin_##name##_lock *lock)		\
	{									\
		(void)lock;							\
		return false;							\
	}

/* Lets every thread in. */
WRONG(wrong_open, (void)lock)
/* Lets one in, ever: the release is lost. */
WRONG(wrong_lost, while (atomic_exchange(&lock->taken, 1)) unspin_lock_wait(&lock->taken, 1, 0))

#endif
