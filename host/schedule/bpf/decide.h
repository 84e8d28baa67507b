/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who comes first, from numbers alone. The scheduler decides with these functions, and `unspin-lab replay` repeats its
 * decisions with them.
 */
#ifndef UNSPIN_SCHEDULE_DECIDE_H
#define UNSPIN_SCHEDULE_DECIDE_H

#define NOBODY 0xffffffffu
#define NEVER (~0ull)
/* Behind all that are no gangs; virtual. */
#define LAST (1ull << 62)

/* The key before all others. A program may define it as a variable whose value the verifier does not know. */
#ifndef KEY_FIRST
#define KEY_FIRST 0
#endif

/* One that could be chosen. */
struct wish {
	unsigned long long vt;	/* virtual time of its VM */
	unsigned int id;	/* of a unit, or of a VM */
	unsigned int flags;
};

#define WISH_OWED 1	/* a vCPU is owed CPU time by itself */
#define WISH_GANG 2	/* its VM is a gang, and it is a vCPU */

/* The one with the least key so far, and of equal keys the first. */
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

/* Virtual time beside that of the VM that is owed most; less than LAST for ever. */
static inline __attribute__((always_inline)) unsigned long long beside(unsigned long long vt, unsigned long long vnow)
{
	unsigned long long key = vt - vnow + (LAST >> 1);

	return key < LAST ? key : LAST - 1;
}

/* Of a unit that could run next on a CPU. */
static inline __attribute__((always_inline)) unsigned long long
next_key(unsigned long long vt, unsigned long long vnow, unsigned int is_owed)
{
	return is_owed ? KEY_FIRST : beside(vt, vnow);
}

/* Of a vCPU of a gang. */
static inline __attribute__((always_inline)) unsigned long long behind(unsigned long long key)
{
	return key | LAST;
}

/* Of a VM that could have the next turn. */
static inline __attribute__((always_inline)) unsigned long long turn_key(unsigned long long vt, unsigned int is_owed)
{
	return is_owed ? KEY_FIRST : vt;
}

#endif
