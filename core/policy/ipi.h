/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * IPI-aware directed yield: a vCPU that spins for answers to its interrupts yields to who owes one.
 * Where a guest shows its lock queues, the same serves for those: the owner of the lock, or the next in
 * line, owes the spinning vCPU the lock (APSys 2015, section 6).
 *
 * Ours, after the idea of the kernel list's "semantics-aware yield" (2025, unmerged): the VMM sees who
 * interrupts whom, so where the spinning vCPU has sent interrupts that nobody has taken yet (a TLB
 * shoot-down, a call on all CPUs), it waits for their receivers and for nobody else. A receiver
 * without a pCPU cannot answer; all must, so the one longest without a pCPU comes first. Where
 * nobody owes an answer the caller's other selector decides, and before that where it says that
 * the caller gives way (HVS_QUORUM).
 */
#ifndef UNSPIN_POLICY_IPI_H
#define UNSPIN_POLICY_IPI_H

#include "types.h"

#define IPI_SLOTS_MAX 64u	/* larger VMs have none */
#define IPI_PICK_NONE (-1)

/* One vCPU as the spinning one sees it. */
struct ipi_slot {
	pol_u64 preempted_at;	/* any clock that never runs back within a VM */
	pol_u8 ready;		/* wants a pCPU and has none */
	pol_u8 owes_answer;	/* the caller waits for it: it has not taken an interrupt, or has the lock */
	pol_u8 pad[6];
};

/*
 * The vCPU to yield to: ready, owes the caller an answer, not the caller, not in excluded (bit i: slot
 * i); of several the one preempted longest ago, of those preempted at once the next after the caller,
 * cyclically. IPI_PICK_NONE where there is none or above IPI_SLOTS_MAX slots. A caller outside
 * [0, count) stands for none of them.
 */
pol_s32 ipi_pick(const struct ipi_slot *slots, pol_u32 count, pol_u32 caller, pol_u64 excluded);

#endif
