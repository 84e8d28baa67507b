/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * locks/preemptable.h and, with PV, locks/pv_preemptable.h.
 *
 * Time: n * tau is over only while somebody before the waiter, or the holder, is preempted, as tau is
 * chosen for (VEE 2013, section 4.2); with ANY_TIME it may be over at any time, and only the checks of
 * safety and progress are left.
 */
#include "host.pml"

#define M 16
byte head = M - 1, tail = M - 1;
bit held, halted;
byte holder = N;
/* What each is doing, for the checks: 0 nothing, 1 waits for its turn, 2 competes. */
byte stage[N];
byte number[N];		/* of its request, counted up from 0 */
byte drawn;
#define LOCKED (head != tail)
#define LOCALS byte mine, h, t, v, w; bit may, passed, turn;
#define FORGET mine = 0; h = 0; t = 0; may = 0; passed = 0; turn = 0

/* Whether n * tau may be over: somebody that this one waits for is preempted or halts. */
#define STILL(v) (off[v] || asleep[v])
#define BEFORE(v) (stage[v] && number[v] < number[me] && STILL(v))
#ifdef ANY_TIME
#define TIME_MAY_BE_OVER true
#else
#if N == 4
#define TIME_MAY_BE_OVER \
	((holder < N && STILL(holder)) || BEFORE(0) || BEFORE(1) || BEFORE(2) || BEFORE(3))
#else
#define TIME_MAY_BE_OVER ((holder < N && STILL(holder)) || BEFORE(0) || BEFORE(1) || BEFORE(2))
#endif
#endif

/*
 * Section 4.3: whoever has the lock before an earlier waiter has waited for its turn, or timed out, or
 * been passed by itself.
 */
inline check_order()
{
#ifndef ANY_TIME
	v = 0;
	do
	:: v < N ->
		if
		:: stage[v] == 1 && number[v] < number[me] -> CHECK(order_kept, may || passed || turn)
		:: else
		fi;
		v++
	:: else -> break
	od;
	v = 0;
#endif
	stage[me] = 0; holder = me
}

inline lock()
{
#ifdef M_SPLIT_DRAW
	atomic { RUNS -> mine = tail };
	atomic {
		RUNS -> tail = (mine + 1) % M; number[me] = drawn; drawn++; stage[me] = 1
	};
#else
	atomic {
		RUNS -> mine = tail; tail = (tail + 1) % M;
		number[me] = drawn; drawn++; stage[me] = 1
	};
#endif
	/* Until its turn, or passed by (a distance that went below zero), or out of time. */
	do
#ifdef M_OFF_BY_ONE
	:: atomic { RUNS && ((mine - head + M) % M <= 1 || (mine - head + M) % M >= M / 2) -> break }
#else
#ifdef M_WAITS_WHEN_PASSED
	:: atomic { RUNS && head == mine -> turn = 1; break }
#else
	:: atomic { RUNS && head == mine -> turn = 1; break }
	:: atomic { RUNS && (mine - head + M) % M >= M / 2 -> passed = 1; break }
#endif
#endif
#ifndef M_NEVER_OVER
	:: atomic { RUNS && TIME_MAY_BE_OVER -> may = 1; break }
#endif
	od;
	atomic {
		stage[me] = 2; h = 0; t = 0;
#ifdef ANY_TIME
		may = 0; passed = 0; turn = 0	/* nobody asks */
#endif
	};
#ifdef M_NO_COMPETITION
	atomic { RUNS -> held = 1; check_order(); may = 0 }
#else
	do
	:: atomic { RUNS && !held -> held = 1; check_order(); may = 0; break }
#ifdef PV
	:: atomic { SPENT(!held) -> skip };
#ifdef M_LOOKS_BEFORE_IT_TELLS
		atomic { RUNS -> h = held };
		if
		:: h == 0
		:: else ->
			atomic { RUNS -> halted = 1 };
			HALT_IF(true, 0)
		fi;
#else
		atomic { RUNS -> halted = 1; h = head; t = tail; w = held };
#ifdef M_NO_LOOK_BEFORE_HALT
		w = 0;
		HALT_IF(h == head && t == tail && halted, 0);
#else
		if
		:: w == 0
		:: else -> w = 0; HALT_IF(h == head && t == tail && held && halted, 0)
		fi;
#endif
#endif
		atomic { h = 0; t = 0 }
#endif
	od
#endif
}

inline trylock(result)
{
	atomic { RUNS -> h = head; t = tail };
	atomic {
		RUNS ->
		if
#ifdef M_TRYLOCK_IGNORES_WAITERS
		:: !held && h == head && t == tail ->
#else
		:: h == t && h == head && t == tail && !held ->
#endif
			CHECK(trylock_respects_waiters, h == t);
			tail = (tail + 1) % M; held = 1; drawn++; holder = me; result = 1
		:: else
		fi
	}
}

inline unlock()
{
#ifdef PV
	atomic { RUNS -> h = halted };
	atomic {
		RUNS -> head = (head + 1) % M; held = 0; holder = N;
		t = halted;
#ifdef M_CLEARS_UNSEEN
		halted = 0
#else
		if :: h -> halted = 0 :: else fi
#endif
	};
	if
#ifdef M_WAKES_WHAT_IT_SAW_BEFORE
	:: h ->
#else
	:: t ->
#endif
#ifdef M_NO_KICK
		skip
#else
#ifdef M_KICKS_ONE
		atomic {
			RUNS -> w = 0;
			do
			:: w < N && asleep[w] -> asleep[w] = 0; break
			:: w < N && !asleep[w] -> w++
			:: w == N -> break
			od;
			w = 0
		}
#else
		atomic { RUNS -> wake_everybody() }
#endif
#endif
	:: else
	fi
#else
#ifdef M_RELEASES_BEFORE_IT_COUNTS
	atomic { RUNS -> h = head };
	atomic { RUNS -> held = 0; holder = N };
	atomic { RUNS -> head = (h + 1) % M }
#else
#ifdef M_FORGETS_TO_COUNT
	atomic { RUNS -> held = 0; holder = N }
#else
	atomic { RUNS -> head = (head + 1) % M; held = 0; holder = N }
#endif
#endif
#endif
}

#include "vcpus.pml"
