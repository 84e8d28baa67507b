/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A lock for bench.c whose holders ask for extended time slices, and that counts the sections in which a
 * holder lost its CPU. SLICES_TAS: a test-and-set lock with the calls that lease.h makes itself.
 *
 * The kernel tells of each loss: it takes back the address of a restartable sequence when it lets another
 * thread run, unless the thread is in that sequence. This one has no instructions.
 */
#ifndef UNSPIN_SLICES_H
#define UNSPIN_SLICES_H

#ifdef SLICES_TAS
#include "../../../core/locks/tas.h"

struct slices_inner {
	struct unspin_tas_lock lock;
};

static inline void slices_inner_lock(struct slices_inner *inner)
{
	unspin_tas_lock(&inner->lock);
	unspin_lock_hold();
}

static inline void slices_inner_unlock(struct slices_inner *inner)
{
	unspin_tas_unlock(&inner->lock);
	unspin_lock_let_go();
}
#else
#include "../../../core/locks/lease.h"

struct slices_inner {
	struct unspin_lease_lock lock;
};

static inline void slices_inner_lock(struct slices_inner *inner)
{
	unspin_lease_lock(&inner->lock);
}

static inline void slices_inner_unlock(struct slices_inner *inner)
{
	unspin_lease_unlock(&inner->lock);
}
#endif

struct slices_counts {
	atomic_ulong lost;		/* sections in which the holder lost its CPU */
	atomic_ullong lost_ticks;	/* how long those took */
	atomic_ullong usual_ticks;	/* the shortest section of all */
};

extern struct slices_counts slices_counts;

struct slices_lock {
	struct slices_inner inner;
	unsigned long long since_ticks;	/* of the holder */
};

static inline void slices_lock(struct slices_lock *lock)
{
	/* Where it would go on has RSEQ_SIG before it, as the kernel wants. */
	static const unsigned int nowhere[] = { 0x53053053, 0 };
	static const struct {
		unsigned long long version_flags, start, length;
		const void *abort;
	} sequence __attribute__((aligned(32))) = { .abort = &nowhere[1] };
	volatile unsigned long long *at;

	slices_inner_lock(&lock->inner);
	lock->since_ticks = unspin_lock_now();
	at = &unspin_slice_area()->critical_section;
	*at = (uintptr_t)&sequence;
}

static inline void slices_unlock(struct slices_lock *lock)
{
	volatile unsigned long long *at = &unspin_slice_area()->critical_section;
	bool lost = !*at;
	unsigned long long took = unspin_lock_now() - lock->since_ticks;

	*at = 0;
	slices_inner_unlock(&lock->inner);
	if (lost) {
		atomic_fetch_add_explicit(&slices_counts.lost, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&slices_counts.lost_ticks, took, memory_order_relaxed);
	}
	if (took < atomic_load_explicit(&slices_counts.usual_ticks, memory_order_relaxed))
		atomic_store_explicit(&slices_counts.usual_ticks, took, memory_order_relaxed);
}

#endif
