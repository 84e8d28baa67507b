// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Decisions of `unspin schedule` (host/schedule/bpf/) from the numbers of a trace. */
#include "decide.h"

/* The unit among the candidates that runs next on a CPU, as pick() chooses it; NOBODY if there are none. */
unsigned int decide_next(const struct wish *wishes, unsigned int count, unsigned long long vnow)
{
	struct first first = NO_FIRST;
	unsigned int i;

	for (i = 0; i < count; i++) {
		unsigned long long key = next_key(wishes[i].vt, vnow, wishes[i].flags & WISH_OWED);

		consider(&first, wishes[i].flags & WISH_GANG ? behind(key) : key, wishes[i].id);
	}
	return first.id;
}

/* The VM that is next in a plan, as least_vm() chooses it; NOBODY if there are none. */
unsigned int decide_turn(const struct wish *wishes, unsigned int count)
{
	struct first first = NO_FIRST;
	unsigned int i;

	for (i = 0; i < count; i++)
		consider(&first, turn_key(wishes[i].vt, wishes[i].flags & WISH_OWED), wishes[i].id);
	return first.id;
}
