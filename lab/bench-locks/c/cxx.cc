// SPDX-License-Identifier: MIT OR Apache-2.0
// Locks of C++ for peers.h: abseil's and the standard library's.
#include <absl/base/internal/spinlock.h>
#include <absl/synchronization/mutex.h>

#include <mutex>
#include <new>

#include "cxx.h"

// The functions of peers.h for a lock of this type.
#define PEER(name, type, call_lock, call_unlock)					\
	static_assert(sizeof(type) <= sizeof(cxx_lock), "cxx.h has room for it");	\
	static type *name##_of(cxx_lock *lock)						\
	{										\
		return std::launder(reinterpret_cast<type *>(lock->words));		\
	}										\
	extern "C" void unspin_peer_##name##_init(cxx_lock *lock)			\
	{										\
		new (lock->words) type;							\
	}										\
	extern "C" void unspin_peer_##name##_lock(cxx_lock *lock)			\
	{										\
		name##_of(lock)->call_lock();						\
	}										\
	extern "C" void unspin_peer_##name##_unlock(cxx_lock *lock)			\
	{										\
		name##_of(lock)->call_unlock();						\
	}

PEER(abseil, absl::base_internal::SpinLock, Lock, Unlock)
PEER(abseil_mutex, absl::Mutex, Lock, Unlock)
PEER(std_mutex, std::mutex, lock, unlock)
