/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How guests of both kinds count response times. The Rust mirror is in lab/scenario/src/responses.rs.
 * Also included by assembly.
 */
#ifndef UNSPIN_GUEST_RESPONSE_BUCKET_H
#define UNSPIN_GUEST_RESPONSE_BUCKET_H

#define GUEST_RESPONSE_BUCKETS 320	/* eight for each power of two: response_bucket() */

#ifndef __ASSEMBLER__
/* The bucket for this many cycles: exact below 8, above within an eighth. */
static inline unsigned int response_bucket(unsigned long long cycles)
{
	unsigned int power = 63 - __builtin_clzll(cycles | 1), bucket;

	if (cycles < 8)
		return cycles;
	bucket = 8 * (power - 2) + (cycles >> (power - 3) & 7);
	return bucket < GUEST_RESPONSE_BUCKETS ? bucket : GUEST_RESPONSE_BUCKETS - 1;
}
#endif

#endif
