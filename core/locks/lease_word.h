/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Included by lease.h: the lock's words, and how they are read and changed. */
#ifndef UNSPIN_LOCKS_LEASE_WORD_H
#define UNSPIN_LOCKS_LEASE_WORD_H

#include "budget.h"

struct unspin_lease_lock {
	union {
		atomic_uint both;
		__extension__ struct {
			atomic_ushort uses;	/* odd: held; each lock and unlock adds 1 */
			atomic_ushort wish;	/* and the two bits beside it */
		};
	};
	atomic_uint line;	/* low half: the heir's number; high half: the next to be drawn */
};

#define UNSPIN_LEASE_LOCK_INIT { { 0 }, 0 }
#define UNSPIN_LEASE_NEXT_ONE 0x10000u

enum unspin_lease_wish {
	UNSPIN_LEASE_NO_WISH,
	UNSPIN_LEASE_WANTED,
	UNSPIN_LEASE_WANTED_ASLEEP,	/* a release must wake the heir */
};

#define UNSPIN_LEASE_WISH_MASK 3u
/* Beside the wish: a few threads use the lock at a time. */
#define UNSPIN_LEASE_SHARED 4u
/* Beside the wish: the heir holds the lock. Its release makes the next in line the heir. */
#define UNSPIN_LEASE_PASSING 8u

/* Whether the others must leave the lock alone: a thread wants it first, or the heir has it. */
static inline bool unspin_lease_is_wanted(struct unspin_lease_lock *lock)
{
	return atomic_load_explicit(&lock->wish, memory_order_relaxed) &
	       (UNSPIN_LEASE_WISH_MASK | UNSPIN_LEASE_PASSING);
}

/* 0 or UNSPIN_LEASE_SHARED. */
static inline unsigned int unspin_lease_sharing(struct unspin_lease_lock *lock)
{
	return atomic_load_explicit(&lock->wish, memory_order_relaxed) & UNSPIN_LEASE_SHARED;
}

static inline void unspin_lease_stop_sharing(struct unspin_lease_lock *lock)
{
	atomic_fetch_and_explicit(&lock->wish, (unsigned short)~UNSPIN_LEASE_SHARED, memory_order_relaxed);
}

/* Acquisitions between two counts of uses. */
static inline unsigned int unspin_lease_used(unsigned short from, unsigned short to)
{
	return (unsigned short)(to - from) / 2;
}

#endif
