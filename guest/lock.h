/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One interface over the locks: a switch on the kind. Callers pass a constant, so that a program
 * specialised for a kind has the lock's own code inline and no dispatch at run time.
 *
 * A new lock is a header in locks/, a member of each union, and a case in each function.
 */
#ifndef UNSPIN_GUEST_LOCK_H
#define UNSPIN_GUEST_LOCK_H

#include <stdbool.h>
#include "cpu.h"

#define LOCK_ENV_HEADER "cpu.h"
#include "../locks/tas.h"
#include "../locks/ticket.h"
#include "../locks/mcs.h"

union guest_lock {
	struct tas_lock tas;
	struct ticket_lock ticket;
	struct mcs_lock mcs;
} __attribute__((aligned(LOCK_CACHELINE_BYTES)));

/* What one vCPU brings to one lock. */
union guest_lock_node {
	struct mcs_node mcs;
} __attribute__((aligned(LOCK_CACHELINE_BYTES)));

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE void guest_lock(enum guest_lock_kind kind, union guest_lock *lock,
				     union guest_lock_node *node)
{
	switch (kind) {
	case GUEST_LOCK_TAS:
		tas_lock(&lock->tas);
		break;
	case GUEST_LOCK_TICKET:
		ticket_lock(&lock->ticket);
		break;
	case GUEST_LOCK_MCS:
		mcs_lock(&lock->mcs, &node->mcs);
		break;
	case GUEST_LOCK_KINDS:
		__builtin_unreachable();
	}
}

static ALWAYS_INLINE void guest_unlock(enum guest_lock_kind kind, union guest_lock *lock,
				       union guest_lock_node *node)
{
	switch (kind) {
	case GUEST_LOCK_TAS:
		tas_unlock(&lock->tas);
		break;
	case GUEST_LOCK_TICKET:
		ticket_unlock(&lock->ticket);
		break;
	case GUEST_LOCK_MCS:
		mcs_unlock(&lock->mcs, &node->mcs);
		break;
	case GUEST_LOCK_KINDS:
		__builtin_unreachable();
	}
}

#endif
