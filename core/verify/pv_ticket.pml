/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * locks/pv_ticket.h (KICKS 1: also iticket.h and long_ticket.h, whose thresholds alone differ: a
 * waiter here may halt at any time) and locks/oticket.h (KICKS 2).
 */
#include "host.pml"

#ifndef KICKS
#define KICKS 1
#endif
#define M 6
byte serving = M - 1, next = M - 1;
bit halted;
byte drawn, taken;
#define LOCKED (serving != next)
#define LOCALS byte mine, order, s, n, k, w; bit h;
#define FORGET mine = 0; order = 0; s = 0; n = 0; h = 0

inline lock()
{
	atomic { RUNS -> mine = next; next = (next + 1) % M; order = drawn; drawn++; s = serving };
	if
	:: s == mine
	:: else ->
		do
		:: atomic { RUNS && serving == mine -> break }
		:: atomic { SPENT(serving == mine) -> skip };
#ifdef M_LOOKS_BEFORE_IT_TELLS
			atomic { RUNS -> s = serving; n = next };
			if
			:: s == mine
			:: else ->
				atomic { RUNS -> halted = 1 };
				HALT_IF(true, mine)
			fi
#else
			atomic { RUNS -> halted = 1; s = serving; n = next };
#ifdef M_NO_LOOK_BEFORE_HALT
			HALT_IF(s == serving && n == next && halted, mine)
#else
			if
			:: s == mine
			:: else -> HALT_IF(s == serving && n == next && halted, mine)
			fi
#endif
#endif
		od;
#ifdef M_CLEARS_WITH_WAITERS
		atomic { RUNS -> halted = 0 }
#else
		atomic { RUNS -> if :: next == (mine + 1) % M -> halted = 0 :: else fi }
#endif
	fi;
	atomic { CHECK(first_come, order == taken); taken++ }
}

inline trylock(result)
{
	atomic { RUNS -> s = serving; n = next };
	atomic {
		RUNS ->
		if
#ifdef M_TRYLOCK_IGNORES_WAITERS
		:: s == serving && n == next ->
			CHECK(trylock_respects_waiters, s == n);
#else
		:: s == n && s == serving && n == next ->
#endif
			next = (next + 1) % M; drawn++; taken++; result = 1
		:: else
		fi
	}
}

inline unlock()
{
#ifdef M_LOOKS_BEFORE_IT_SERVES
	atomic { RUNS -> s = serving; h = halted };
	atomic { RUNS -> serving = (serving + 1) % M };
#else
	atomic { RUNS -> s = serving; h = halted; serving = (serving + 1) % M };
#endif
	if
	:: h ->
#ifndef M_NO_KICK
		k = 1;
		do
		:: k <= KICKS ->
#ifdef M_KICKS_THE_NEXT_BUT_ONE
			atomic { RUNS -> wake_key((s + k + 1) % M) };
#else
			atomic { RUNS -> wake_key((s + k) % M) };
#endif
			k++
		:: else -> break
		od;
		k = 0
#else
		skip
#endif
	:: else
	fi
}

#include "vcpus.pml"
