/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The locks that programs can be given: those of 4 bytes, which need no node and are free when zero.
 * A new one is an include and a line.
 *
 * A pthread_spinlock_t may be shared between processes, so no futex is private to one.
 */
#ifndef UNSPIN_LOCKS_INTERPOSE_LIST_H
#define UNSPIN_LOCKS_INTERPOSE_LIST_H

#define LOCK_LINUX_FUTEX 0

#include "long_ticket.h"
#include "oticket.h"
#include "preemptable.h"
#include "pv_preemptable.h"
#include "pv_ticket.h"
#include "tas.h"
#include "ticket.h"

#define INTERPOSE_LOCKS(X)	\
	X(preemptable)		\
	X(pv_preemptable)	\
	X(tas)			\
	X(ticket)		\
	X(pv_ticket)		\
	X(oticket)		\
	X(oticket_spin)		\
	X(oticket_wake)		\
	X(long_ticket)

/* Used where UNSPIN_LOCK names none; mutexes may be held for long, their waiters halt. */
#define INTERPOSE_SPIN_DEFAULT "preemptable"
#define INTERPOSE_MUTEX_DEFAULT "pv_preemptable"

#endif
