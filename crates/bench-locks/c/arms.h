/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Locks of locks/ with a setting that is not their default: what VEE'13 gives twice. */
#ifndef UNSPIN_BENCH_LOCKS_ARMS_H
#define UNSPIN_BENCH_LOCKS_ARMS_H

#include "../../../locks/pv_preemptable.h"

static struct preemptable_class arm_tau_code = { PREEMPTABLE_TAU_CODE_NS };

#define ARM(name)									\
	struct arm_##name##_tau_code_lock { struct name##_lock lock; };			\
	static inline void arm_##name##_tau_code_lock(struct arm_##name##_tau_code_lock *lock)	\
	{										\
		name##_lock_class(&lock->lock, &arm_tau_code);				\
	}										\
	static inline void arm_##name##_tau_code_unlock(struct arm_##name##_tau_code_lock *lock) \
	{										\
		name##_unlock(&lock->lock);						\
	}

#ifdef ARM_PV
ARM(pv_preemptable)
#else
ARM(preemptable)
#endif

#endif
