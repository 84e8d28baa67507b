// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * How much of a pCPU tasks of the host use, and whether that is too much for turns (policy/gang.h).
 */
#include "gang_rows.h"

_Static_assert(sizeof(struct gang_use) == 24, "as in Rust");

static gang_s64 mean(gang_s64 before, gang_s64 of_turn)
{
	before = clamped(before, GANG_TIME_MAX);
	return before + divided(of_turn - before, GANG_USE_TURNS);
}

/* What counts of the host's time in a turn: at most GANG_USE_TURN_MOST_PERCENT of it. */
static gang_s64 counted(gang_s64 of_host, pol_u64 turn)
{
	gang_s64 most = (gang_s64)(limited(turn) * GANG_USE_TURN_MOST_PERCENT / 100);

	of_host = clamped(of_host, turn);
	return of_host < most ? of_host : most;
}

void gang_use_begin(struct gang_use *use, pol_u64 turn)
{
	use->of_host = 0;
	use->of_all = (gang_s64)limited(turn);
	use->used = 0;
}

pol_u8 gang_use(struct gang_use *use, gang_s64 of_host, pol_u64 turn)
{
	use->of_host = mean(use->of_host, counted(of_host, turn));
	use->of_all = mean(use->of_all, (gang_s64)limited(turn));
	if (use->of_host * 100 > use->of_all * GANG_USE_MOST_PERCENT)
		use->used = 1;
	else if (use->of_host * 100 < use->of_all * GANG_USE_AGAIN_PERCENT)
		use->used = 0;
	return use->used;
}
