/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether a vCPU spins in user space, where processors report no spinning.
 *
 * Ours. The caller samples a vCPU: at the host's tick or when it is preempted, where its guest is.
 * A spin loop is short, so many samples of a vCPU that spins lie close together. But so do those of
 * a program that computes in a short loop: of a matrix product, a sum, memset(). Addresses alone
 * cannot tell the two apart, nor can it that most vCPUs of the VM are in the same loop: an OpenMP
 * program computes in one, too. So a loop is a first answer, and a second one takes more:
 *
 *  - PAUSE in the loop's code. Locks and runtimes that spin are written with it, code that computes
 *    is not. The caller reads the code that userspin_code() names and asks userspin_has_pause().
 *  - Registers that stand still. Whoever waits for a flag changes no register; whoever computes has
 *    a counter or a pointer that moves. A loop of vector instructions only may have neither, and a
 *    waiter that counts its rounds, as libgomp's does, has one that moves. (Li, Lebeck, Sorin, "Spin
 *    Detection Hardware", TPDS 2006: who spins comes back to a branch with the same state.)
 *
 * How often each is wrong is measured by the example userspin of lab/policy, which samples real
 * programs; docs/userspin.md has its table and says how the parameters were chosen by it.
 *
 * One state per vCPU; nothing here locks, allocates or reads a clock. A vCPU that halts does not
 * spin: call userspin_init() then, or old samples stand for what it does now.
 */
#ifndef UNSPIN_POLICY_USERSPIN_H
#define UNSPIN_POLICY_USERSPIN_H

#include "types.h"

#define USERSPIN_SAMPLES_MAX 16u	/* samples of a vCPU that are kept */
#define USERSPIN_RANGE_MAX_BYTES 256u

/* Parameters. */
struct userspin_params {
	pol_u32 samples;	/* the last so many are judged, 1-USERSPIN_SAMPLES_MAX */
	pol_u32 threshold;	/* so many of them close together are a loop, 1-samples */
	pol_u32 still;		/* so many with the same registers stand still, 1-samples */
	pol_u32 range_bytes;	/* close together: within so many bytes, 1-USERSPIN_RANGE_MAX_BYTES */
};

/* 32 ms at 250 ticks per second: soon enough for a decision that lasts for some turns of a VM. */
#define USERSPIN_SAMPLES 8u
/* Half of the vCPU's time: less is not worth a VM's turn, and a thread that waits computes between. */
#define USERSPIN_THRESHOLD 4u
/* All but one, which a tick of the guest's may take. With half of them, some stood still by chance. */
#define USERSPIN_STILL 7u
/* The loops measured have their samples within 16 bytes; longer ones do more between two looks. */
#define USERSPIN_RANGE_BYTES 64u
/* How far from a sample the loop's PAUSE may be: an interrupt is mostly taken right behind it. */
#define USERSPIN_MARGIN_BYTES 16u
#define USERSPIN_CODE_MAX_BYTES (USERSPIN_RANGE_MAX_BYTES + 2u * USERSPIN_MARGIN_BYTES)

struct userspin_sample {
	pol_u64 address;	/* the instruction pointer */
	pol_u64 registers;	/* userspin_digest() of the others; 0 is not known */
	pol_u8 user;		/* at CPL 3 */
	pol_u8 pad[7];
};

struct userspin_state {
	struct userspin_sample samples[USERSPIN_SAMPLES_MAX];
	pol_u32 next;		/* where the next one goes */
	pol_u32 count;		/* how many there are */
};

/* What a vCPU does in user space. */
#define USERSPIN_NO 0u		/* no loop there, or too few samples yet */
#define USERSPIN_LOOP 1u	/* a short loop: it computes or spins, PAUSE decides */
#define USERSPIN_STILL_LOOP 2u	/* a short loop in which no register moves: it spins */

struct userspin_verdict {
	pol_u64 low;		/* the loop's lowest address sampled, and its highest */
	pol_u64 high;
	pol_u32 in_range;	/* samples there, whatever the kind */
	pol_u32 kind;
};

/*
 * Whether the parameters make sense: 0, or the number (1-4) of the first field of struct
 * userspin_params that does not. userspin_judge() needs no such check to be safe.
 */
int userspin_params_check(const struct userspin_params *params);

void userspin_init(struct userspin_state *state);

void userspin_add(struct userspin_state *state, const struct userspin_sample *sample);

/*
 * What the last samples show. Of several ranges that hold as many, the lowest. Until there are
 * params->samples of them it is USERSPIN_NO.
 */
void userspin_judge(const struct userspin_state *state, const struct userspin_params *params,
		    struct userspin_verdict *verdict);

/*
 * The code in which a loop's PAUSE would be: how many bytes, from *from on, at most
 * USERSPIN_CODE_MAX_BYTES. 0 where the verdict is USERSPIN_NO.
 */
pol_u32 userspin_code(const struct userspin_verdict *verdict, pol_u64 *from);

/*
 * Whether PAUSE (or TPAUSE, UMWAIT) is among these bytes. Bytes are not decoded, so that other
 * instructions' bytes may pass for one.
 */
pol_u8 userspin_has_pause(const pol_u8 *code, pol_u32 bytes);

/* One number for the values of registers, never 0. Different values share one by chance only. */
pol_u64 userspin_digest(const pol_u64 *registers, pol_u32 count);

#endif
