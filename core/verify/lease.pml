/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * locks/lease.h. Watching, the lease and tau may be over at any time, and so may the heir's naps: a
 * release may miss its wish to be woken. The numbers of the line are modulo NUMBERS.
 */
#include "host.pml"

#define NUMBERS (N + 1)
#define KEY_BOTH NUMBERS
#define NO_WISH 0
#define WANTED 1
#define WANTED_ASLEEP 2
bit held;
byte wish, turn, next;	/* turn: the heir's number */
byte heirs;		/* vCPUs that believe they are the heir */
bool one_heir, line_kept;
#define LOCKED (held)
#define IDLE (!held && wish == NO_WISH && turn == next)
#define LOCALS byte mine, seen_turn, seen_next, a, w; bit got_it;
#define FORGET mine = 0; seen_turn = 0; seen_next = 0; a = 0; got_it = 0

/* Whether it got a free lock. */
inline take()
{
#ifdef M_SPLIT_TAKE
	atomic { RUNS -> got_it = !held };
	atomic { RUNS -> if :: got_it -> held = 1 :: else fi }
#else
	atomic { RUNS -> if :: !held -> held = 1; got_it = 1 :: else fi }
#endif
}

inline wait_for_turn()
{
	do
	:: atomic { RUNS -> seen_turn = turn; seen_next = next };
		if :: seen_turn == mine -> break :: else fi;
#ifdef M_HALTS_BLINDLY
		HALT_IF(true, mine)
#else
		HALT_IF(turn == seen_turn && next == seen_next, mine)
#endif
	od
}

inline claim()
{
	do
	:: take(); if :: got_it -> break :: else fi;
		atomic { RUNS -> if :: wish == NO_WISH -> wish = WANTED :: else fi }
	:: atomic { SPENT(!held) -> skip };
		atomic { RUNS -> wish = WANTED_ASLEEP };
		atomic { RUNS -> if :: held && wish == WANTED_ASLEEP -> asleep[me] = 1 + KEY_BOTH :: else fi };
#ifdef M_NAP_WITHOUT_LIMIT
		atomic { RUNS && !asleep[me] -> skip }
#else
		atomic { RUNS -> asleep[me] = 0 }
#endif
	od;
	CHECK(line_kept, turn == mine);
#ifndef M_WISH_STAYS
	atomic { RUNS -> wish = NO_WISH }
#endif
}

inline pass_on()
{
#ifdef M_LOOKS_BEFORE_IT_PASSES_ON
	atomic { RUNS -> a = next };
	atomic { RUNS -> turn = (turn + 1) % NUMBERS; heirs-- };
#else
	atomic { RUNS -> a = next; turn = (turn + 1) % NUMBERS; heirs-- };
#endif
	if
#ifndef M_NO_WAKE
	:: a != (mine + 1) % NUMBERS -> atomic { RUNS -> wake_key((mine + 1) % NUMBERS) }
#endif
	:: else
	fi
}

inline wait_in_line()
{
#ifdef M_SPLIT_DRAW
	atomic { RUNS -> mine = next; seen_turn = turn };
	atomic { RUNS -> next = (mine + 1) % NUMBERS };
#else
	atomic { RUNS -> mine = next; seen_turn = turn; next = (next + 1) % NUMBERS };
#endif
	if
	:: seen_turn != mine -> wait_for_turn()
	:: else
	fi;
	atomic { RUNS -> heirs++; CHECK(one_heir, heirs == 1) };
#ifdef M_PASSES_ON_BEFORE_IT_TAKES
	pass_on();
	claim()
#else
	claim();
	pass_on()
#endif
}

inline lock()
{
	atomic { RUNS -> a = wish };
	if
	:: a != NO_WISH ->
		if
		/* The heir takes it in time, or it is held. */
		:: atomic { RUNS && (held || wish == NO_WISH) -> a = WANTED }
		:: atomic { SPENT(held || wish == NO_WISH) -> skip };
			/* By now it may be another's wish. */
			atomic { RUNS -> wish = NO_WISH; a = NO_WISH }
		fi
	:: else
	fi;
	if
	:: a == NO_WISH ->
		take();
		if
		:: !got_it -> atomic { RUNS && !held && wish == NO_WISH -> held = 1; got_it = 1 }
		:: !got_it
		:: got_it
		fi
	:: else
	fi;
	if
	:: !got_it -> wait_in_line()
	:: else
	fi
}

inline trylock(result)
{
	atomic { RUNS -> a = wish };
	if
#ifdef M_TRYLOCK_IGNORES_THE_WISH
	:: take()
#else
	:: a == NO_WISH -> take()
	:: else
#endif
	fi;
	atomic { RUNS -> CHECK(trylock_respects_waiters, !got_it || a == NO_WISH); result = got_it }
}

inline unlock()
{
	atomic { RUNS -> a = wish };
	atomic { RUNS -> held = 0 };
	if
	:: a == WANTED_ASLEEP -> atomic { RUNS -> wake_key(KEY_BOTH) }
	:: else
	fi
}

#include "vcpus.pml"
