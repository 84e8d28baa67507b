/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Detects whether a vCPU spins in user space, which processors do not report.
 *
 * The caller samples where a vCPU's guest executes, at the host's tick or when the vCPU is preempted.
 * A spin loop is short, so samples of a spinning vCPU are close together. But so are those of a
 * program that computes in a short loop: a matrix product, a sum, memset(). Addresses alone cannot
 * tell the two apart. Nor can the fact that most vCPUs of the VM are in the same loop: an OpenMP
 * program computes in one, too. So after a loop was found, one of two more checks decides:
 *
 *  - PAUSE in the loop's code. Locks and runtimes that spin contain it, code that computes does
 *    not. The caller reads the code that userspin_code() names and calls userspin_has_pause().
 *  - Registers that stand still. A thread that waits for a flag changes no register. A thread that
 *    computes changes a counter or a pointer, but not in a loop of vector instructions only. A
 *    waiter that counts its rounds, as libgomp's does, changes a register, too. (Li, Lebeck, Sorin,
 *    "Spin Detection Hardware", TPDS 2006: a spinning thread returns to a branch with the same state.)
 *
 * The example userspin of lab/policy measures on real programs how often each check is wrong.
 * docs/userspin.md has the results, and says how they determined the parameters.
 *
 * One state per vCPU. Nothing here locks, allocates or reads a clock. Call userspin_init() when the
 * vCPU halts, because then it does not spin, and old samples would still count.
 */
#ifndef UNSPIN_POLICY_USERSPIN_H
#define UNSPIN_POLICY_USERSPIN_H

#include "types.h"

#define USERSPIN_SAMPLES_MAX 16u	/* samples of a vCPU that are kept */
#define USERSPIN_RANGE_MAX_BYTES 256u

/* Parameters. */
struct userspin_params {
	pol_u32 samples;	/* number of last samples that are judged, 1-USERSPIN_SAMPLES_MAX */
	pol_u32 threshold;	/* samples close together that make a loop, 1-samples */
	pol_u32 still;		/* samples with the same registers that stand still, 1-samples */
	pol_u32 range_bytes;	/* size of a range that is close together, 1-USERSPIN_RANGE_MAX_BYTES */
};

/* 32 ms at 250 ticks per second: soon enough for a decision that lasts for some turns. */
#define USERSPIN_SAMPLES 8u
/* Half of the vCPU's time. Less is not worth a turn; more would miss threads that also compute. */
#define USERSPIN_THRESHOLD 4u
/* All but one, which may fall into a tick of the guest. With half of them, some stood still by chance. */
#define USERSPIN_STILL 7u
/* The measured loops have their samples within 16 bytes; longer loops do more per round. */
#define USERSPIN_RANGE_BYTES 64u
/* Largest distance of the PAUSE from a sample; most interrupts are taken right behind it. */
#define USERSPIN_MARGIN_BYTES 16u
#define USERSPIN_CODE_MAX_BYTES (USERSPIN_RANGE_MAX_BYTES + 2u * USERSPIN_MARGIN_BYTES)

struct userspin_sample {
	pol_u64 address;	/* the instruction pointer */
	pol_u64 registers;	/* userspin_digest() of the others; 0: unknown */
	pol_u8 user;		/* at CPL 3 */
	pol_u8 pad[7];
};

struct userspin_state {
	struct userspin_sample samples[USERSPIN_SAMPLES_MAX];
	pol_u32 next;		/* where the next one goes */
	pol_u32 count;		/* how many there are */
};

/* What a vCPU does in user space. */
#define USERSPIN_NO 0u		/* no loop, or too few samples yet */
#define USERSPIN_LOOP 1u	/* a short loop, which computes or spins: PAUSE decides */
#define USERSPIN_STILL_LOOP 2u	/* a short loop in which no register moves: it spins */

struct userspin_verdict {
	pol_u64 low;		/* the lowest and the highest sampled address of the loop */
	pol_u64 high;
	pol_u32 in_range;	/* samples in the loop, for any verdict */
	pol_u32 kind;
};

/*
 * Returns 0 if the parameters are valid, or the number (1-4) of the first wrong field of struct
 * userspin_params. userspin_judge() is safe without this check.
 */
int userspin_params_check(const struct userspin_params *params);

void userspin_init(struct userspin_state *state);

void userspin_add(struct userspin_state *state, const struct userspin_sample *sample);

/*
 * Judges the last samples. Of several ranges with as many samples, it takes the lowest. With fewer
 * than params->samples samples the verdict is USERSPIN_NO.
 */
void userspin_judge(const struct userspin_state *state, const struct userspin_params *params,
		    struct userspin_verdict *verdict);

/*
 * The code in which a loop's PAUSE would be: sets *from, and returns the number of bytes, at most
 * USERSPIN_CODE_MAX_BYTES. 0 if the verdict is USERSPIN_NO.
 */
pol_u32 userspin_code(const struct userspin_verdict *verdict, pol_u64 *from);

/*
 * Whether these bytes contain PAUSE, TPAUSE or UMWAIT. They are not decoded, so bytes of other
 * instructions may match by chance.
 */
pol_u8 userspin_has_pause(const pol_u8 *code, pol_u32 bytes);

/* A hash of register values, never 0. */
pol_u64 userspin_digest(const pol_u64 *registers, pol_u32 count);

#endif
