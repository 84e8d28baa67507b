/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The inline functions of the headers, for lib.rs. */
#include "lease.h"
#include "preemptable.h"
#include "tas_nap.h"

#define FUNCTIONS(name, bytes)								\
	_Static_assert(sizeof(struct unspin_##name##_lock) == (bytes), "as in lib.rs");	\
	void unspin_rust_##name##_lock(struct unspin_##name##_lock *lock)		\
	{										\
		unspin_##name##_lock(lock);						\
	}										\
	bool unspin_rust_##name##_trylock(struct unspin_##name##_lock *lock)		\
	{										\
		return unspin_##name##_trylock(lock);					\
	}										\
	void unspin_rust_##name##_unlock(struct unspin_##name##_lock *lock)		\
	{										\
		unspin_##name##_unlock(lock);						\
	}										\
	bool unspin_rust_##name##_is_locked(struct unspin_##name##_lock *lock)		\
	{										\
		return unspin_##name##_is_locked(lock);					\
	}

FUNCTIONS(lease, 8)
FUNCTIONS(preemptable, 4)
FUNCTIONS(tas_nap, 4)

#define TIMED(name)									\
	bool unspin_rust_##name##_lock_for(struct unspin_##name##_lock *lock, unsigned long long ns)	\
	{										\
		return unspin_##name##_lock_for(lock, ns);				\
	}

TIMED(lease)
TIMED(tas_nap)
