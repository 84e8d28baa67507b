/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The locks that programs can have: those that need no node, are free if zero, and do not wait for a
 * waiter that is gone. A spin lock has room for 4 bytes, a mutex for 8. A new lock needs an include and
 * a line.
 */
#ifndef UNSPIN_LOCKS_INTERPOSE_LIST_H
#define UNSPIN_LOCKS_INTERPOSE_LIST_H

#include "realtime.h"
/* For every lock below. */
#define unspin_cpu_relax interpose_relax

#include "lease.h"
#include "preemptable.h"
#include "pv_preemptable.h"
#include "tas.h"
#include "tas_nap.h"

#define INTERPOSE_LOCKS(X)	\
	X(tas_nap)		\
	X(lease)		\
	X(preemptable)		\
	X(pv_preemptable)	\
	X(tas)

/* The defaults without UNSPIN_LOCK. */
#define INTERPOSE_SPIN_DEFAULT "tas_nap"
#define INTERPOSE_MUTEX_DEFAULT "lease"

#endif
