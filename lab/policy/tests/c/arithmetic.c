/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The arithmetic of policy/types.h as functions; POL_MUL_BY_HALVES makes it what BPF has. The header
 * is given to the compiler by a flag, for it may be a mutant.
 */
pol_u64 sat_mul(pol_u64 a, pol_u64 b);
pol_u64 mul_div(pol_u64 a, pol_u64 b, pol_u64 c);

pol_u64 sat_mul(pol_u64 a, pol_u64 b)
{
	return pol_sat_mul(a, b);
}

pol_u64 mul_div(pol_u64 a, pol_u64 b, pol_u64 c)
{
	return pol_mul_div(a, b, c);
}
