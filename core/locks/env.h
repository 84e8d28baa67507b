/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the locks need from their environment.
 *
 * Without LOCK_ENV_HEADER (a quoted file name, defined before a lock is included) the environment is a
 * Linux program: env_linux.h. Any other environment supplies a header with
 *
 *	cpu_relax()		called in every turn of every waiting loop. It must execute PAUSE on
 *				x86, because pause-loop exiting and the pause filter see nothing else.
 *				It need not return (the bench guest leaves a wait there when its run
 *				is over);
 *
 * and, for the locks that measure their waiting (preemptable, and all that halt):
 *
 *	lock_now()		ticks of a clock that goes on while a vCPU is preempted (unsigned long
 *				long, the same on all CPUs);
 *	lock_ticks_per_us()	its rate, at least 1;
 *
 * and, for the locks that halt:
 *
 *	lock_wait(word, seen, key)	halts while *word == seen (compared so that no lock_wake() after
 *				a change of the word is lost); may return at any time;
 *	lock_wake(word, key)	ends each lock_wait() on the word with that key; may also end others;
 *	lock_wake_all(word)	ends every lock_wait() on the word;
 *
 * and, if it can, with LOCK_ENV_TIMED defined (lease does without):
 *
 *	lock_wait_for(word, seen, key, ns)	lock_wait() that ends after that time, or up to some
 *				0.1 ms later;
 *	lock_yield()		lets another thread run that is ready to on this CPU; may do nothing.
 *
 * A lock calls lock_wake() after it has released the lock. Another thread may have freed the memory by
 * then, so these functions use `word` only as an address.
 */
#ifndef UNSPIN_LOCKS_ENV_H
#define UNSPIN_LOCKS_ENV_H

#include <stdatomic.h>
#include <stdbool.h>

#define LOCK_CACHELINE_BYTES 64

#ifdef LOCK_ENV_HEADER
#include LOCK_ENV_HEADER
#else
#include "env_linux.h"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the halves of the locks' words are laid out for little endian"
#endif

/* Optional statistics of waits; they need lock_now() and thread-local storage. */
#ifdef LOCK_STATS
#include "stats.h"
#endif

#endif
