/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Locks of core/locks/ with a time that is not their default. tau_code is that of VEE'13's code (4.2 gives
 * another), tau_short is one for critical sections as short as the bench's. pv_ticket_2048 halts after as
 * many iterations as pv_preemptable, which is VEE'13's comparison (5.2).
 */
#ifndef UNSPIN_BENCH_LOCKS_ARMS_H
#define UNSPIN_BENCH_LOCKS_ARMS_H

#include "../../../core/locks/pv_preemptable.h"
#include "../../../core/locks/pv_ticket.h"

#define ARM_TAU_SHORT_NS 250ULL

#ifdef ARM_TICKET
struct arm_pv_ticket_lock { struct unspin_pv_ticket_lock lock; };

static inline void arm_pv_ticket_lock(struct arm_pv_ticket_lock *lock)
{
	unspin_pv_ticket_lock_with(&lock->lock, UNSPIN_PV_PREEMPTABLE_HALT_NS);
}

static inline void arm_pv_ticket_unlock(struct arm_pv_ticket_lock *lock)
{
	unspin_pv_ticket_unlock(&lock->lock);
}
#else
static struct unspin_preemptable_class arm_class = { ARM_TAU_NS };

#define ARM(name)									\
	struct arm_##name##_lock { struct unspin_##name##_lock lock; };				\
	static inline void arm_##name##_lock(struct arm_##name##_lock *lock)		\
	{										\
		unspin_##name##_lock_class(&lock->lock, &arm_class);				\
	}										\
	static inline void arm_##name##_unlock(struct arm_##name##_lock *lock)		\
	{										\
		unspin_##name##_unlock(&lock->lock);						\
	}

#ifdef ARM_PV
ARM(pv_preemptable)
#else
ARM(preemptable)
#endif
#endif

#endif
