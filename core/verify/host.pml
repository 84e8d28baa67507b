/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What every model of a lock needs before it: sizes, preemption, halting, and the named checks. */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 1	/* and one more for vCPU 0 */
#endif
#ifndef PREEMPTIONS
#define PREEMPTIONS 1
#endif

bool off[N];		/* preempted */
#define RUNS (!off[me])

byte inside;		/* vCPUs in the critical section */
byte finished;

/* SPIN names a failed check by its expression: the variable. */
bool mutual_exclusion, is_locked_while_held, free_at_the_end, first_come, trylock_respects_waiters;
bool order_kept;
#define CHECK(name, condition) name = (condition); assert(name); name = 0

/*
 * The step in which a wait for @seen gives up: its budget may be spent at any time, before its first
 * look too. So the look is part of the step, and a lock that has none there is wrong.
 */
#ifdef M_DOES_NOT_LOOK
#define SPENT(seen) RUNS
#else
#define SPENT(seen) RUNS && !(seen)
#endif

/* Halted vCPUs: 0, or 1 + the key they wait with. */
byte asleep[N];
/* After RUNS and the comparison, in one step as the host makes it. */
#define HALT_IF(same, key) \
	atomic { RUNS -> if :: same -> asleep[me] = 1 + (key) :: else fi }; \
	atomic { RUNS && !asleep[me] -> skip }

/* In the step of the wake-up call. */
inline wake_key(key)
{
	w = 0;
	do
	:: w < N -> if :: asleep[w] == 1 + (key) -> asleep[w] = 0 :: else fi; w++
	:: else -> break
	od;
	w = 0
}

inline wake_everybody()
{
	w = 0;
	do :: w < N -> asleep[w] = 0; w++ :: else -> break od;
	w = 0
}
