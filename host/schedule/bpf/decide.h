/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which unit or VM comes first, from numbers alone: each candidate gets a key, and the smallest key wins. The scheduler
 * decides with these functions, and `unspin-lab replay` repeats its decisions with them.
 */
#ifndef UNSPIN_SCHEDULE_DECIDE_H
#define UNSPIN_SCHEDULE_DECIDE_H

#define NOBODY 0xffffffffu
#define NEVER (~0ull)
/* In the key of a gang's vCPU, which comes after all that are not vCPUs of gangs. Virtual time. */
#define LAST (1ull << 62)

/* The key before all others. A program may define it as a variable whose value the verifier does not know. */
#ifndef KEY_FIRST
#define KEY_FIRST 0
#endif

/* A candidate. */
struct wish {
	unsigned long long vt;	/* virtual time of its VM */
	unsigned int id;	/* a unit's, or a VM's number */
	unsigned int flags;
};

#define WISH_OWED 1	/* it comes first: a vCPU is owed more than a turn by itself */
#define WISH_GANG 2	/* it is a vCPU of a gang */

/* The candidate with the smallest key so far; of equal keys, the first. */
struct first {
	unsigned long long key;
	unsigned int id;
};

#define NO_FIRST { NEVER, NOBODY }

static inline __attribute__((always_inline)) void consider(struct first *first, unsigned long long key, unsigned int id)
{
	if (key >= first->key)
		return;
	first->key = key;
	first->id = id;
}

/* Virtual time relative to vnow, that of the VM that is owed most. It is always less than LAST. */
static inline __attribute__((always_inline)) unsigned long long beside(unsigned long long vt, unsigned long long vnow)
{
	unsigned long long key = vt - vnow + (LAST >> 1);

	return key < LAST ? key : LAST - 1;
}

/* The key of a unit that could run next on a CPU. */
static inline __attribute__((always_inline)) unsigned long long
next_key(unsigned long long vt, unsigned long long vnow, unsigned int is_owed)
{
	return is_owed ? KEY_FIRST : beside(vt, vnow);
}

/* The key of a gang's vCPU, from that of any unit. */
static inline __attribute__((always_inline)) unsigned long long behind(unsigned long long key)
{
	return key | LAST;
}

/* The key of a VM that could be next in a plan. */
static inline __attribute__((always_inline)) unsigned long long turn_key(unsigned long long vt, unsigned int is_owed)
{
	return is_owed ? KEY_FIRST : vt;
}

#endif
