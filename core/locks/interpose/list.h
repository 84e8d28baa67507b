/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The locks that programs can have: those that need no node and are free if zero. A spin lock has room
 * for 4 bytes, a mutex for 8. A new lock needs an include and a line.
 *
 * A pthread_spinlock_t may be shared between processes, so no futex is private.
 */
#ifndef UNSPIN_LOCKS_INTERPOSE_LIST_H
#define UNSPIN_LOCKS_INTERPOSE_LIST_H

#define UNSPIN_LOCK_LINUX_FUTEX 0

#include "env.h"
#include "realtime.h"
/* For every lock below. */
#define unspin_cpu_relax interpose_relax

#include "iticket.h"
#include "lease.h"
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
	X(lease)		\
	X(tas)			\
	X(ticket)		\
	X(pv_ticket)		\
	X(oticket)		\
	X(oticket_spin)		\
	X(oticket_wake)		\
	X(long_ticket)		\
	X(iticket)

/* The defaults without UNSPIN_LOCK. */
#define INTERPOSE_SPIN_DEFAULT "preemptable"
#define INTERPOSE_MUTEX_DEFAULT "lease"

#endif
