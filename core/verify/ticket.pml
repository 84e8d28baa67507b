/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* locks/ticket.h; tickets modulo M, so that they wrap around. */
#include "host.pml"

#define M 6
byte serving = M - 1, next = M - 1;
byte drawn, taken;	/* in all */
#define LOCKED (serving != next)
#define LOCALS byte mine, order, s, n;
#define FORGET mine = 0; order = 0; s = 0; n = 0

inline lock()
{
#ifdef M_SPLIT_DRAW
	atomic { RUNS -> mine = next };
	atomic { RUNS -> next = (mine + 1) % M; order = drawn; drawn++ };
#else
	atomic { RUNS -> mine = next; next = (next + 1) % M; order = drawn; drawn++ };
#endif
#ifdef M_OFF_BY_ONE
	atomic { RUNS && (serving + 1) % M == mine || serving == mine -> skip };
#else
	atomic { RUNS && serving == mine -> skip };
#endif
	atomic { CHECK(first_come, order == taken); taken++ }
}

inline trylock(result)
{
	atomic { RUNS -> s = serving; n = next };
	atomic {
		RUNS ->
#ifdef M_TRYLOCK_IGNORES_WAITERS
		if
		:: s == serving && n == next ->
			CHECK(trylock_respects_waiters, s == n);
#else
		if
		:: s == n && s == serving && n == next ->
#endif
			next = (next + 1) % M; drawn++; taken++; result = 1
		:: else
		fi
	}
}

inline unlock()
{
	atomic { RUNS -> s = serving };
#ifdef M_NO_WRAP
	atomic { RUNS -> serving = s + 1 }
#endif
#ifdef M_SERVES_TWO
	atomic { RUNS -> serving = (s + 2) % M }
#endif
#if !defined(M_NO_WRAP) && !defined(M_SERVES_TWO)
	atomic { RUNS -> serving = (s + 1) % M }
#endif
}

#include "vcpus.pml"
