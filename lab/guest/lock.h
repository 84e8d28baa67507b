/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One interface over the locks: a switch on the kind. Callers pass a constant, so that a program
 * specialised for a kind has the lock's own code inline and no dispatch at run time.
 *
 * A new lock is a header in core/locks/, a line in GUEST_LOCKS, and a kind in abi.h.
 */
#ifndef UNSPIN_GUEST_LOCK_H
#define UNSPIN_GUEST_LOCK_H

#include <stdbool.h>
#include "cpu.h"

#define UNSPIN_LOCK_ENV_HEADER "../../lab/guest/env.h"
#include "../../core/locks/tas.h"
#include "../../core/locks/ticket.h"
#include "../../core/locks/mcs.h"
#include "../../core/locks/preemptable.h"
#include "../../core/locks/pv_ticket.h"
#include "../../core/locks/pv_preemptable.h"
#include "../../core/locks/oticket.h"
#include "../../core/locks/pv_queued.h"
#include "../../core/locks/lease.h"

/* Kind and prefix of the functions; mcs, which takes a node, stands apart. */
#define GUEST_LOCKS(X)                                                                             \
	X(TAS, tas) \
	X(TICKET, ticket) \
	X(PREEMPTABLE, preemptable) \
	X(PV_TICKET, pv_ticket) \
	X(PV_PREEMPTABLE, pv_preemptable) \
	X(OTICKET, oticket) \
	X(OTICKET_SPIN, oticket_spin) \
	X(OTICKET_WAKE, oticket_wake) \
	X(ITICKET, iticket) \
	X(LONG_TICKET, long_ticket) \
	X(PV_QUEUED, pv_queued)                                                                    \
	X(LEASE, lease)

#define GUEST_LOCK_MEMBER(kind, name) struct unspin_##name##_lock name;

union guest_lock {
	GUEST_LOCKS(GUEST_LOCK_MEMBER)
	struct unspin_mcs_lock mcs;
} __attribute__((aligned(UNSPIN_LOCK_CACHELINE_BYTES)));

/* What one vCPU brings to one lock. */
union guest_lock_node {
	struct unspin_mcs_node mcs;
} __attribute__((aligned(UNSPIN_LOCK_CACHELINE_BYTES)));

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* How long a waiter of pv_ticket spins before it halts. */
static _Atomic(unsigned long long) pv_ticket_spin_ns = UNSPIN_PV_TICKET_SPIN_NS;

/* Takes the locks' times from the configuration. Every vCPU writes the same, before it takes a lock. */
static inline void guest_lock_times_set(void)
{
	if (config->features & GUEST_FEATURE_TAU)
		atomic_store_explicit(&unspin_preemptable_default.tau_ns, config->lock_tau_ns,
				      memory_order_relaxed);
	if (config->features & GUEST_FEATURE_SPIN)
		atomic_store_explicit(&pv_ticket_spin_ns, config->lock_spin_ns, memory_order_relaxed);
}

static ALWAYS_INLINE void guest_lock(enum guest_lock_kind kind, union guest_lock *lock,
				     union guest_lock_node *node)
{
	if (kind == GUEST_LOCK_PV_TICKET) {
		unspin_pv_ticket_lock_with(&lock->pv_ticket, atomic_load_explicit(&pv_ticket_spin_ns,
										  memory_order_relaxed));
		return;
	}
	switch (kind) {
#define GUEST_LOCK_CASE(kind, name)                                                                \
	case GUEST_LOCK_##kind:                                                                    \
		unspin_##name##_lock(&lock->name);                                                          \
		break;
	GUEST_LOCKS(GUEST_LOCK_CASE)
	case GUEST_LOCK_MCS:
		unspin_mcs_lock(&lock->mcs, &node->mcs);
		break;
	case GUEST_LOCK_KINDS:
		__builtin_unreachable();
	}
}

static ALWAYS_INLINE void guest_unlock(enum guest_lock_kind kind, union guest_lock *lock,
				       union guest_lock_node *node)
{
	switch (kind) {
#define GUEST_UNLOCK_CASE(kind, name)                                                              \
	case GUEST_LOCK_##kind:                                                                    \
		unspin_##name##_unlock(&lock->name);                                                        \
		break;
	GUEST_LOCKS(GUEST_UNLOCK_CASE)
	case GUEST_LOCK_MCS:
		unspin_mcs_unlock(&lock->mcs, &node->mcs);
		break;
	case GUEST_LOCK_KINDS:
		__builtin_unreachable();
	}
}

#endif
