/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The pages that guest and VMM share. The Rust mirror is crates/vmm/src/abi.rs;
 * a test holds the two to the same sizes and offsets.
 */
#ifndef UNSPIN_GUEST_ABI_H
#define UNSPIN_GUEST_ABI_H

#define GUEST_ABI_MAGIC 0x4e495053u	/* "SPIN" */
#define GUEST_ABI_VERSION 1u
#define GUEST_VCPUS_MAX 64u
#define GUEST_STEPS_MAX 32u
#define GUEST_LOCKS_MAX 16u
#define GUEST_WAIT_BUCKETS 40u		/* bucket b: waits of [2^b, 2^(b+1)) TSC cycles */

/* One pass over the steps is one unit of work. */
enum guest_op {
	GUEST_OP_COMPUTE = 1,	/* think: iterations drawn from the distribution */
	GUEST_OP_LOCK = 2,
	GUEST_OP_CRITICAL = 3,	/* as compute, inside the lock (kept apart for reports) */
	GUEST_OP_UNLOCK = 4,
	GUEST_OP_BARRIER = 5,	/* all vCPUs of the VM */
	GUEST_OP_BLOCK = 6,	/* HLT until a wake or until `iterations` timer cycles passed */
	GUEST_OP_WAKE = 7,	/* wake the next vCPU (index + 1) if it is blocked */
	GUEST_OP_SPIN_BARRIER = 8,	/* barrier waited for with PAUSE */
};

enum guest_dist {
	GUEST_DIST_CONST = 0,	/* a */
	GUEST_DIST_UNIFORM = 1,	/* a..=b */
	GUEST_DIST_EXP = 2,	/* mean a, cut off at b (0: at 16 a) */
};

struct guest_step {
	unsigned int op;
	unsigned int dist;
	unsigned int a;
	unsigned int b;
	unsigned int lock;	/* which lock: 0..GUEST_LOCKS_MAX */
	unsigned int permille;	/* chance that the step is taken; 1000 = always. A LOCK that
				 * is skipped skips to after its UNLOCK */
};

enum guest_lock_kind {
	GUEST_LOCK_TAS = 0,
	GUEST_LOCK_TICKET = 1,
	GUEST_LOCK_MCS = 2,
};

#endif
