/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the locks need from their environment.
 *
 * Without UNSPIN_LOCK_ENV_HEADER (a quoted file name, defined before a lock is included) the environment is a
 * Linux program: env_linux.h. Any other environment supplies a header with
 *
 *	unspin_cpu_relax()		called in every turn of every waiting loop. It must execute PAUSE on
 *				x86, because pause-loop exiting and the pause filter see nothing else.
 *				It need not return (the bench guest leaves a wait there when its run
 *				is over);
 *
 * and, for the locks that measure their waiting (preemptable, and all that halt):
 *
 *	unspin_lock_now()		ticks of a clock that goes on while a vCPU is preempted (unsigned long
 *				long, the same on all CPUs);
 *	unspin_lock_ticks_per_us()	its rate, at least 1;
 *
 * and, for the locks that halt:
 *
 *	unspin_lock_wait(word, seen, key)	halts while *word == seen (compared so that no unspin_lock_wake() after
 *				a change of the word is lost); may return at any time;
 *	unspin_lock_wake(word, key)	ends each unspin_lock_wait() on the word with that key; may also end others;
 *	unspin_lock_wake_all(word)	ends every unspin_lock_wait() on the word with key 0;
 *
 * and, if it can, with UNSPIN_LOCK_ENV_TIMED defined (lease does without):
 *
 *	unspin_lock_wait_for(word, seen, key, ns)	unspin_lock_wait() that ends after that time, or up to some
 *				0.1 ms later;
 *	unspin_lock_yield()		lets another thread run that is ready to on this CPU; may do nothing.
 *
 * and, if it can, with UNSPIN_LOCK_ENV_SLICE defined (lease does without):
 *
 *	unspin_lock_hold()	called by a thread that has taken a lock: it would rather not be preempted;
 *	unspin_lock_let_go()	called once it has released the lock.
 *
 * What holds for all locks. Any thread may release a lock that another one has taken.
 *
 *	fork()		A lock that is held stays so in the child, which may release it. Waiters exist in the
 *			parent only. In tas and tas_nap they leave nothing behind. In the preemptable
 *			locks they are overtaken. Any other lock that had waiters must be made anew in
 *			the child (set to its ..._INIT) before it is used there.
 *	killed threads	A waiter that is killed is like one that exists in the parent only.
 *	signal handlers	A handler may try a lock (trylock). If it waits for a lock that its own thread holds or
 *			waits for, it waits forever. Handlers that return end no wait. errno is preserved. A handler
 *			that leaves a wait by siglongjmp() leaves the thread's timer slack at 1 us.
 *	shared memory	A lock may be shared between processes if UNSPIN_LOCK_LINUX_FUTEX is 0 in all
 *			files of all of them, except mcs and pv_queued, which hold addresses.
 *	several objects	An executable and its shared libraries may use the same lock, unless one of them is
 *			compiled with UNSPIN_LOCK_ONE_OBJECT. All that use a lock, in all processes, need the same
 *			version of its header: what the bits of its words mean may change.
 *	trylock		It may fail although the lock is free: if another thread waits for it, or takes it
 *			at the same time.
 *
 * A lock calls unspin_lock_wake() after it has released the lock. Another thread may have freed the memory by
 * then, so these functions use `word` only as an address.
 */
#ifndef UNSPIN_LOCKS_ENV_H
#define UNSPIN_LOCKS_ENV_H

/* locks.hpp has them for C++. */
#ifndef __cplusplus
#include <stdatomic.h>
#include <stdbool.h>
#elif !defined(UNSPIN_LOCKS_HPP)
#error "a C++ program includes locks.hpp, which has all locks"
#endif

#define UNSPIN_LOCK_CACHELINE_BYTES 64

#ifdef UNSPIN_LOCK_ENV_HEADER
#include UNSPIN_LOCK_ENV_HEADER
#else
#include "env_linux.h"
#endif

/* A thread begins to wait for the lock: for probes. pv_queued spins a little before. */
#ifndef UNSPIN_LOCK_CONTENDED
#define UNSPIN_LOCK_CONTENDED(lock) ((void)0)
#endif

#ifndef UNSPIN_LOCK_ENV_SLICE
static inline void unspin_lock_hold(void)
{
}

static inline void unspin_lock_let_go(void)
{
}
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the halves of the locks' words are laid out for little endian"
#endif

/* Optional statistics of waits; they need unspin_lock_now() and thread-local storage. */
#ifdef UNSPIN_LOCK_STATS
#include "stats.h"
#endif

#endif
