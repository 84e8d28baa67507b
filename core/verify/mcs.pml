/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* locks/mcs.h; node n is vCPU n's, NONE is no node. */
#include "host.pml"

#define NONE N
byte tail = NONE;
byte after[N];
bit waiting[N];
byte drawn, taken;
#define LOCKED (tail != NONE)
#define LOCALS byte before, order, a;
#define FORGET before = 0; order = 0; a = 0

inline lock()
{
	atomic { RUNS -> after[me] = NONE };
#ifndef M_WAITING_LATE
	atomic { RUNS -> waiting[me] = 1 };
#endif
#ifdef M_SPLIT_EXCHANGE
	atomic { RUNS -> before = tail };
	atomic { RUNS -> tail = me; order = drawn; drawn++ };
#else
	atomic { RUNS -> before = tail; tail = me; order = drawn; drawn++ };
#endif
	if
	:: before != NONE ->
		atomic { RUNS -> after[before] = me };
#ifdef M_WAITING_LATE
		atomic { RUNS -> waiting[me] = 1 };
#endif
#ifndef M_NO_WAIT
		atomic { RUNS && !waiting[me] -> skip }
#endif
	:: else
	fi;
	atomic { CHECK(first_come, order == taken); taken++ }
}

inline trylock(result)
{
	atomic { RUNS -> after[me] = NONE };
	atomic {
		RUNS ->
		if
#ifdef M_TRYLOCK_ANYWAY
		:: tail = me; drawn++; taken++; result = 1
#else
		:: tail == NONE -> tail = me; drawn++; taken++; result = 1
		:: else
#endif
		fi
	}
}

inline unlock()
{
	atomic { RUNS -> a = after[me] };
	if
	:: a == NONE ->
#ifdef M_SPLIT_RELEASE
		atomic { RUNS -> a = (tail == me -> me : NONE) };
		atomic { RUNS -> if :: a == me -> tail = NONE :: else -> a = NONE fi };
#else
		atomic { RUNS -> if :: tail == me -> tail = NONE; a = me :: else -> a = NONE fi };
#endif
		if
		:: a == me		/* nobody waits */
		:: else ->
#ifndef M_LINK_NOT_AWAITED
			atomic { RUNS && after[me] != NONE -> a = after[me] };
			atomic { RUNS -> waiting[a] = 0 }
#else
			skip
#endif
		fi
	:: else -> atomic { RUNS -> waiting[a] = 0 }
	fi
}

#include "vcpus.pml"
