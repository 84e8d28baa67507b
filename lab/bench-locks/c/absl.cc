// SPDX-License-Identifier: MIT OR Apache-2.0
// abseil's SpinLock for peers.h.
#include <absl/base/internal/spinlock.h>

#include <new>

using absl::base_internal::SpinLock;

static_assert(sizeof(SpinLock) == sizeof(unsigned int), "peers.h keeps it in an unsigned int");

static SpinLock *lock_of(unsigned int *word)
{
	return reinterpret_cast<SpinLock *>(word);
}

extern "C" {
void unspin_peer_abseil_init(unsigned int *word)
{
	new (word) SpinLock;
}

void unspin_peer_abseil_lock(unsigned int *word)
{
	lock_of(word)->Lock();
}

void unspin_peer_abseil_unlock(unsigned int *word)
{
	lock_of(word)->Unlock();
}
}
