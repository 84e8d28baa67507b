/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Integer types and saturating arithmetic shared by every policy.
 *
 * policy/ is freestanding: nothing here includes a libc or a kernel header, so
 * that the same objects link into the kernel module, the simulator and tests. It also
 * compiles for BPF. So functions take at most five arguments, return no structure, and
 * divide only unsigned numbers.
 */
#ifndef UNSPIN_POLICY_TYPES_H
#define UNSPIN_POLICY_TYPES_H

typedef __UINT8_TYPE__ pol_u8;
typedef __UINT16_TYPE__ pol_u16;
typedef __UINT32_TYPE__ pol_u32;
typedef __INT32_TYPE__ pol_s32;
typedef __INT64_TYPE__ pol_s64;
typedef __UINT64_TYPE__ pol_u64;

#define POL_U64_MAX (~(pol_u64)0)

/*
 * A function of plain numbers. BPF's verifier checks it once by itself, and not with all its paths
 * again at every call.
 */
#ifdef __bpf__
#define POL_ONCE __attribute__((weak, noinline, visibility("default")))
#else
#define POL_ONCE static inline
#endif

/* Always inlined, so that constant arguments cost nothing. */
#define POL_INLINE inline __attribute__((always_inline))

/*
 * For each number below count. BPF's verifier follows such a loop round by round. A program may define
 * this as a loop of the kernel (bpf_for) before it includes a policy; then the verifier checks one round.
 */
#ifndef POL_FOR
#define POL_FOR(i, count) for ((i) = 0; (i) < (count); (i)++)
#endif

/*
 * Lets BPF's verifier see that this number was compared before it is used as an index: the compiler
 * must not compute an address from the numbers it was made of.
 */
#ifdef __bpf__
#define POL_AS_IT_IS(number) __asm__("" : "+r"(number))
#else
#define POL_AS_IT_IS(number) ((void)0)
#endif

/*
 * 0, from which a loop counts. A program may define this as a variable: BPF's verifier follows a number that it
 * knows through every round.
 */
#ifndef POL_ZERO
#define POL_ZERO 0
#endif

/* An index that is below this power of 2, as BPF's verifier is to see, too. */
#ifdef __bpf__
#define POL_BELOW(index, power) ((index) & ((power) - 1))
#else
#define POL_BELOW(index, power) (index)
#endif

/* a + b, or the largest value if that wraps. */
static inline pol_u64 pol_sat_add(pol_u64 a, pol_u64 b)
{
	pol_u64 sum;

	return __builtin_add_overflow(a, b, &sum) ? POL_U64_MAX : sum;
}

/* Whether a * b overflows; if not, sets *product. By halves: only one of the cross products can be set. */
static inline pol_u8 pol_mul_overflows_by_halves(pol_u64 a, pol_u64 b, pol_u64 *product)
{
	pol_u64 a_high = a >> 32, a_low = a & 0xffffffffu;
	pol_u64 b_high = b >> 32, b_low = b & 0xffffffffu;
	pol_u64 cross = a_high ? a_high * b_low : b_high * a_low;

	return (a_high && b_high) || cross >> 32 ||
	       __builtin_add_overflow(cross << 32, a_low * b_low, product);
}

/* The builtin is one instruction, except for BPF, where it calls a 128-bit multiplication. */
static inline pol_u8 pol_mul_overflows(pol_u64 a, pol_u64 b, pol_u64 *product)
{
#if defined(__bpf__) || defined(POL_MUL_BY_HALVES)
	return pol_mul_overflows_by_halves(a, b, product);
#else
	return __builtin_mul_overflow(a, b, product);
#endif
}

/* a * b, or the largest value if that wraps. */
static inline pol_u64 pol_sat_mul(pol_u64 a, pol_u64 b)
{
	pol_u64 product;

	return pol_mul_overflows(a, b, &product) ? POL_U64_MAX : product;
}

/*
 * a * b / c rounded down, or the largest value if that does not fit or c is 0. Also exact if the
 * product exceeds 64 bits, by long multiplication, without a 128-bit division.
 */
POL_ONCE pol_u64 pol_mul_div(pol_u64 a, pol_u64 b, pol_u64 c)
{
	pol_u64 product, quotient = 0, rest = 0, whole, part;
	int bit;

	if (!c)
		return POL_U64_MAX;
	if (!pol_mul_overflows(a, b, &product))
		return product / c;

	whole = a / c;
	part = a % c;
	for (bit = 63; bit >= 0; bit--) {	/* rest stays below c */
		quotient = pol_sat_mul(quotient, 2);
		if (rest >= c - rest) {
			rest -= c - rest;
			quotient = pol_sat_add(quotient, 1);
		} else {
			rest += rest;
		}
		if (!(b >> bit & 1))
			continue;
		quotient = pol_sat_add(quotient, whole);
		if (rest >= c - part) {
			rest -= c - part;
			quotient = pol_sat_add(quotient, 1);
		} else {
			rest += part;
		}
	}
	return quotient;
}

/* The number of the lowest set bit; bits is not 0. Not every compiler has the builtin for BPF. */
static inline pol_u32 pol_lowest_bit(pol_u64 bits)
{
#ifdef __bpf__
	pol_u32 bit = 0;

	while (!(bits >> bit & 1))
		bit++;
	return bit;
#else
	return (pol_u32)__builtin_ctzll(bits);
#endif
}

static inline pol_u32 pol_clamp_u32(pol_u64 value, pol_u32 low, pol_u32 high)
{
	return value < low ? low : value > high ? high : (pol_u32)value;
}

#endif
