/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * kmod/park.c and kmod/turn.c: a thread on its way into the guest, and a CPU that gives turns. Whoever
 * may not run must leave its guest, and whoever may run must not sleep. Stores reach memory later than
 * loads that follow them, as on x86: a store without a barrier waits in a buffer (the "_late" bits) and
 * is written at any later time.
 */
#ifndef TURNS
#define TURNS 4
#endif

bool request_not_lost, wake_up_not_lost;
#define CHECK(name, condition) name = (condition); assert(name); name = 0

bit its_turn = 1;	/* unspin_may_stay(), by the owner of the CPU */
bit asked;		/* work.park, with TIF_NOTIFY_RESUME and an interrupt */
bit parked, woken;	/* under the lock of the list of parked threads: a full barrier */
bit sleeps;		/* the thread's state */

bit asked_late, sleeps_late, turn_late, turn_value;

active proctype memory()
{
end:	do
	:: atomic { asked_late -> asked = 0; asked_late = 0 }
	:: atomic { sleeps_late -> sleeps = 1; sleeps_late = 0 }
	:: atomic { turn_late -> its_turn = turn_value; turn_late = 0 }
	od
}

bit in_guest, in_sleep;

/* wait_if_it_must(), sleep_until_called() */
active proctype thread()
{
	bit was_asked;

	do
	:: atomic { was_asked = asked && !asked_late };
		if
		:: was_asked ->
#ifdef M_CLEARS_WITHOUT_BARRIER
			asked_late = 1
#else
			asked = 0
#endif
		:: else
		fi;
		if
		:: its_turn ->
			in_guest = 1;
endguest:		atomic { asked && !asked_late -> in_guest = 0 }
		:: else ->
			atomic { asked = asked && !asked_late; asked_late = 0; woken = 0; parked = 1 };
			do
			::
#ifdef M_LOOKS_BEFORE_IT_SLEEPS
				sleeps_late = 1;
#else
				sleeps = 1;
#endif
				if
				:: atomic { woken || its_turn -> break }
				:: atomic { else -> in_sleep = 1 };
endsleep:				atomic { !sleeps && !sleeps_late -> in_sleep = 0 }
				fi
			od;
			atomic { sleeps_late = 0; sleeps = 0; parked = 0 }
		fi
	od
}

/* unspin_turn_give(), unspin_turn_tell(), then what a CPU that was told does: unspin_turn_ask(), unspin_turn_call() */
active proctype turns()
{
	byte turn;
	bit claimed;

	do
	:: turn < TURNS ->
		turn++;
#ifdef M_GIVES_WITHOUT_BARRIER
		atomic { turn_value = turn % 2 == 0; turn_late = 1 };
#else
		its_turn = turn % 2 == 0;
#endif
		if
		:: turn % 2 == 1 ->
#ifndef M_DOES_NOT_ASK
			if
			:: !parked -> atomic { asked = 1; its_turn = (turn_late -> turn_value : its_turn); turn_late = 0 }
			:: else
			fi
#else
			skip
#endif
		:: else ->
			atomic { claimed = parked && !woken; if :: claimed -> woken = 1 :: else fi };
			if
			:: claimed -> sleeps = 0
			:: else
			fi
		fi
	:: turn > 0 -> break
	od;
	timeout;
	CHECK(request_not_lost, !(in_guest && !its_turn));
	CHECK(wake_up_not_lost, !(in_sleep && its_turn))
}
