/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * locks/pv_queued.h; node n is vCPU n's, NONE is no node. A waiter may give up without one look: what
 * its exchange finds must do.
 */
#include "host.pml"

#define NONE N
#define FREE 0
#define HELD 1
#define HEAD_HALTS 2
#define NODE_HALTS 4
#define PENDING 8
#define FIRST 0
#define SPINS 1
#define HALTS 2
#define KEY_WORD 0
#define KEY_NODE(n) (1 + (n))
byte word, tail = NONE, first = NONE;
byte after[N], state[N];
#define LOCKED (word & HELD)
#define IDLE (word == FREE && tail == NONE)
#define LOCALS byte before, a, f, w; bit got_it;
#define FORGET before = 0; a = 0; f = 0; got_it = 0

inline lock()
{
	do
	:: atomic { RUNS && word == FREE -> word = HELD; got_it = 1; break }
	:: atomic { RUNS && ((word & PENDING) || tail == NONE) -> break }
	od;
	if
	:: got_it
	:: else ->
#ifdef M_SPLIT_EXCHANGE
		atomic { RUNS -> after[me] = NONE; state[me] = SPINS; before = tail };
		atomic { RUNS -> tail = me };
#else
		atomic { RUNS -> after[me] = NONE; state[me] = SPINS; before = tail; tail = me };
#endif
		if
		:: before != NONE ->
			atomic { RUNS -> after[before] = me };
			do
			:: atomic { RUNS && state[me] == FIRST -> break }
			:: RUNS;
#ifdef M_HALTS_BLINDLY
				atomic { RUNS -> state[me] = HALTS };
				HALT_IF(true, KEY_NODE(me))
#else
				atomic {
					RUNS ->
					if
					:: state[me] == SPINS -> state[me] = HALTS
#ifndef M_STARTS_OVER
					:: state[me] == FIRST -> break
#endif
					:: else
					fi
				};
				HALT_IF(state[me] == HALTS, KEY_NODE(me))
#endif
			od
		:: else
		fi;
		do
		:: atomic { RUNS -> word = word | PENDING };
			if
			:: atomic {
				RUNS && word == PENDING -> word = HELD;
				break
			}
			:: atomic { RUNS -> word = word & ~PENDING }
			fi;
#ifdef M_TELLS_WITHOUT_LOOKING
			atomic { RUNS -> word = word | HELD | HEAD_HALTS; a = HELD };
#else
			atomic { RUNS -> a = word; word = word | HELD | HEAD_HALTS };
#endif
			if
			:: !(a & HELD) -> atomic { RUNS -> word = word & ~HEAD_HALTS }; break
			:: else
			fi;
			HALT_IF(word == (a | HELD | HEAD_HALTS), KEY_WORD)
		od;
		/* Leaves the queue. */
		atomic { RUNS -> a = after[me] };
		if
		:: a == NONE ->
			atomic { RUNS -> if :: tail == me -> tail = NONE; a = me :: else fi };
			if
			:: a == NONE -> atomic { RUNS && after[me] != NONE -> a = after[me] }
			:: else
			fi
		:: else
		fi;
		if
		:: a == me
		:: else ->
#ifdef M_SPLIT_PASS_ON
			atomic { RUNS -> before = state[a] };
			atomic { RUNS -> state[a] = FIRST };
#else
			atomic { RUNS -> before = state[a]; state[a] = FIRST };
#endif
			if
#ifndef M_NO_KICK_OF_THE_NEXT
			:: before == HALTS -> atomic { RUNS -> first = a }; atomic { RUNS -> word = word | NODE_HALTS }
#endif
			:: else
			fi
		fi
	fi
}

inline trylock(result)
{
	atomic {
		RUNS ->
		if
#ifdef M_TRYLOCK_ANYWAY
		:: word = HELD; result = 1
#else
		:: word == FREE && tail == NONE -> word = HELD; result = 1
		:: else
#endif
		fi
	}
}

inline unlock()
{
	atomic { RUNS -> f = first };
#ifdef M_LOOKS_BEFORE_IT_RELEASES
	atomic { RUNS -> a = word };
	atomic { RUNS -> word = word & PENDING };
#else
	atomic { RUNS -> a = word; word = word & PENDING };
#endif
	if
#ifndef M_NO_KICK
	:: a & HEAD_HALTS -> atomic { RUNS -> wake_key(KEY_WORD) }
#endif
	:: else
	fi;
	if
	:: a & NODE_HALTS -> atomic { RUNS -> wake_key(KEY_NODE(f)) }
	:: else
	fi
}

#include "vcpus.pml"
