// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A lock with counters, alone, from every value its counters can have: each is the same lock. See
 * client.h for the build.
 */
#include "client.h"

static struct LOCK(lock) lock;

static const char *check(unsigned int start)
{
	int turn;

	start_lock(&lock, start);
	for (turn = 0; turn < 3; turn++) {
		if (LOCK(is_locked)(&lock))
			return "a free lock is locked";
		if (turn == 1) {
			if (!LOCK(trylock)(&lock))
				return "a free lock cannot be tried";
		} else {
			LOCK(lock)(&lock);
		}
		if (!LOCK(is_locked)(&lock))
			return "a held lock is free";
		if (LOCK(trylock)(&lock))
			return "a held lock can be tried";
		LOCK(unlock)(&lock);
	}
	return NULL;
}

int main(void)
{
	unsigned int start;

	for (start = 0; start < 0x10000; start++) {
		const char *wrong = check(start);

		if (wrong) {
			printf("counters at %u: %s\n", start, wrong);
			return 1;
		}
	}
	return 0;
}
