/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * vCPUs that take a lock, on a host that preempts them anywhere: a preempted one makes no step until it
 * is scheduled again. A model of a lock includes host.pml, defines lock(), trylock(got), unlock() and
 * LOCKED over steps that begin with RUNS, IDLE where it is more than not LOCKED, and includes this file
 * last.
 *
 * A wait is a step that cannot be made yet, so a run that cannot go on is a lock that hangs (a lost
 * wake-up, a turn nobody gets): SPIN's `invalid end state`. A run that never ends, although whoever can
 * make a step makes one some time, is a vCPU that goes round for ever (a budget that is spent before
 * each look): SPIN's `non-progress cycle`, no step being marked as progress. Memory is sequentially
 * consistent here; the orders are ThreadSanitizer's and aarch64's to check (lab/threads/tests).
 */
#ifndef IDLE
#define IDLE !(LOCKED)
#endif

proctype vcpu(byte me)
{
	byte round;
	bit got;
	LOCALS

	do
	:: round < ROUNDS + (me == 0) ->
		if
		:: lock(); got = 1
#ifdef TRY
		:: trylock(got)
#endif
		fi;
		if
		:: got ->
			atomic {
				RUNS -> CHECK(mutual_exclusion, inside == 0); inside++;
				CHECK(is_locked_while_held, LOCKED)
			};
			atomic { RUNS -> inside-- };
			unlock()
		:: else
		fi;
		atomic { got = 0; FORGET; round++ }
	:: else -> break
	od;
	atomic {
		finished++;
		if
		:: finished == N -> CHECK(free_at_the_end, IDLE)
		:: else
		fi
	}
}

/* Preempts whom it likes, so many times in all, and schedules everybody again, some time. */
#define PREEMPT(i) :: atomic { left > 0 && !off[i] && finished < N -> off[i] = 1; left-- }
#define SCHEDULE(i) :: atomic { off[i] -> off[i] = 0 }

active proctype host()
{
	byte i, left = PREEMPTIONS;

	atomic { do :: i < N -> run vcpu(i); i++ :: else -> break od; i = 0 };
end:	do
	PREEMPT(0) PREEMPT(1) PREEMPT(2)
	SCHEDULE(0) SCHEDULE(1) SCHEDULE(2)
#if N == 4
	PREEMPT(3) SCHEDULE(3)
#endif
	od
}
