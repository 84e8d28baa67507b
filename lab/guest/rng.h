/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Seeded random lengths, integers only.
 *
 * Generator: xorshift64* (S. Vigna, "An experimental exploration of Marsaglia's xorshift
 * generators, scrambled", ACM TOMS 2016); seeds are spread by splitmix64. lab/vmm/src/rng.rs
 * holds the same functions and the tests. Machine `threads` draws with them too.
 */
#ifndef UNSPIN_GUEST_RNG_H
#define UNSPIN_GUEST_RNG_H

#include <stdbool.h>
#include "types.h"
#include "exp_table.h"

static inline u64 splitmix64(u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Never 0: the one state xorshift cannot leave. */
static inline u64 rng_seed(u64 vm_seed, u32 vcpu)
{
	u64 state = splitmix64(vm_seed ^ splitmix64(vcpu + 1));

	return state ? state : 1;
}

/* Never 0, because the state is not and the factor is odd. */
static inline u64 rng_next(u64 *state)
{
	u64 x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dull;
}

static inline bool draw_chance(u64 random, u32 permille)
{
	return (u32)((random >> 32) * 1000 >> 32) < permille;
}

static inline u32 draw_uniform(u64 random, u32 min, u32 max)
{
	return min + (u32)((random >> 32) * ((u64)(max - min) + 1) >> 32);
}

/*
 * -ln(U) for U = random / 2^64 = 2^-(k+1) (1 + f): k ln 2 from the leading zeros, and the rest,
 * ln 2 - ln(1 + f), from a table over the 8 bits after the leading one. Fixed point, 20 bits.
 */
static inline u32 draw_exp(u64 random, u32 mean, u32 max)
{
	u32 k = __builtin_clzll(random);
	u32 f = (u32)(random << k >> 55) & 0xff;
	u64 drawn = (u64)mean * (k * EXP_LN2_Q20 + exp_table_q20[f]) >> 20;

	return drawn < max ? (u32)drawn : max;
}

#endif
