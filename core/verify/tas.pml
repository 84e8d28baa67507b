/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* locks/tas.h */
#include "host.pml"

bit held;
#define LOCKED (held == 1)
#define LOCALS bit old;
#define FORGET old = 0

inline lock()
{
	do
	::
#ifdef M_SPLIT_EXCHANGE
		atomic { RUNS -> old = held };
		atomic { RUNS -> held = 1 };
#else
		atomic { RUNS -> old = held; held = 1 };
#endif
		if
#ifdef M_INVERTED
		:: old == 1 -> break
		:: else -> break
#else
		:: old == 0 -> break
		:: else
#endif
		fi;
#ifdef M_WAITS_FOR_HELD
		atomic { RUNS && held -> skip }
#else
		atomic { RUNS && !held -> skip }
#endif
	od
}

inline trylock(result)
{
#ifdef M_TRYLOCK_READS
	atomic { RUNS -> old = held };
	atomic { RUNS -> result = !old; if :: !old -> held = 1 :: else fi }
#else
	atomic { RUNS -> result = !held; held = 1 }
#endif
}

inline unlock()
{
#ifdef M_NEVER_RELEASED
	atomic { RUNS -> held = 1 }
#else
	atomic { RUNS -> held = 0 }
#endif
}

#include "vcpus.pml"
