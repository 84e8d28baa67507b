/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Extended time slices of Linux 7.0: a thread that holds a lock asks the kernel not to take the CPU away
 * just now. If its slice ends meanwhile, it gets some more us (5 by default), and must give the CPU up
 * once it has released the lock.
 *
 * They need CONFIG_RSEQ_SLICE_EXTENSION in the kernel, and a C library that registers an rseq area of more
 * than 32 bytes (glibc 2.41). The first lock finds that out. Without them, each lock and each unlock costs
 * a load and a branch. A program that locks two locks at a time asks until it releases one of them.
 * The kernel's side: Documentation/userspace-api/rseq.rst.
 */
#ifndef UNSPIN_LOCKS_SLICE_LINUX_H
#define UNSPIN_LOCKS_SLICE_LINUX_H

#include <errno.h>
#ifndef __cplusplus
#include <stdatomic.h>
#include <stdbool.h>
#endif
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNSPIN_LOCK_ENV_SLICE

/* The kernel's struct rseq, as far as it is needed here. */
struct unspin_slice_area {
	unsigned int cpu_ids[2];
	unsigned long long critical_section;
	unsigned int flags;
	unsigned int ids[2];
	volatile unsigned char request;
	volatile unsigned char granted;
};

_Static_assert(offsetof(struct unspin_slice_area, request) == 28, "the kernel's layout");

/* Of `flags`. */
#define UNSPIN_SLICE_AVAILABLE 0x10u
#define UNSPIN_SLICE_ENABLED 0x20u

/* A test plays the kernel. */
#ifndef UNSPIN_SLICE_PLAYED
#define UNSPIN_SLICE_PRCTL 79
#define UNSPIN_SLICE_PRCTL_SET 2ul
#define UNSPIN_SLICE_PRCTL_ENABLE 1ul
#define UNSPIN_SLICE_SYS_YIELD 471

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define UNSPIN_SLICE_KNOWN
#endif
#endif

/* glibc's, since 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* This thread's area; NULL: the C library registers none that is long enough. */
static inline struct unspin_slice_area *unspin_slice_area(void)
{
#ifdef UNSPIN_SLICE_KNOWN
	if (&__rseq_size && &__rseq_offset && __rseq_size > 32)
		/* The C library aligns the area. `void *` tells -Wcast-align so. */
		return (struct unspin_slice_area *)(void *)((char *)__builtin_thread_pointer() + __rseq_offset);
#endif
	return NULL;
}

/* For this thread. False: the kernel refuses. */
static inline bool unspin_slice_enable(void)
{
	int saved = errno;
	bool enabled = !prctl(UNSPIN_SLICE_PRCTL, UNSPIN_SLICE_PRCTL_SET, UNSPIN_SLICE_PRCTL_ENABLE, 0ul, 0ul);

	errno = saved;
	return enabled;
}

static inline void unspin_slice_yield(void)
{
	int saved = errno;

	syscall(UNSPIN_SLICE_SYS_YIELD);
	errno = saved;
}
#endif

enum unspin_slice_state {
	UNSPIN_SLICE_UNKNOWN,
	UNSPIN_SLICE_NONE,
	UNSPIN_SLICE_EXTENDED,
};

/* One per executable or shared library: an enum unspin_slice_state. */
__attribute__((weak, visibility("hidden"))) atomic_uint unspin_slice_state;

static inline unsigned int unspin_slice_now(void)
{
	return atomic_load_explicit(&unspin_slice_state, memory_order_relaxed);
}

/* The kernel refuses this thread, which may run under a filter of its own. */
static _Thread_local bool unspin_slice_refused;

static __attribute__((noinline, cold)) void unspin_slice_ask(void)
{
	struct unspin_slice_area *area = unspin_slice_area();

	if (!area || !(area->flags & UNSPIN_SLICE_AVAILABLE) ||
	    (!(area->flags & UNSPIN_SLICE_ENABLED) && (unspin_slice_refused || !unspin_slice_enable()))) {
		unsigned int unknown = UNSPIN_SLICE_UNKNOWN;

		unspin_slice_refused = true;
		/* Other threads that have it have yet to take their requests back. */
		atomic_compare_exchange_strong_explicit(&unspin_slice_state, &unknown, UNSPIN_SLICE_NONE,
							memory_order_relaxed, memory_order_relaxed);
		return;
	}
	/* Written once, because all threads read it at each lock. */
	if (unspin_slice_now() != UNSPIN_SLICE_EXTENDED)
		atomic_store_explicit(&unspin_slice_state, UNSPIN_SLICE_EXTENDED, memory_order_relaxed);
	/*
	 * Within an extension it must not ask: a kernel that checks the area (rseq_debug) would end the thread at its
	 * next system call. In this order, because the kernel only extends the slice of a thread that asks.
	 */
	if (!area->request && !area->granted)
		area->request = 1;
}

/* The kernel reads and writes the area on this CPU alone, so that only the compiler must keep the order. */
static inline void unspin_lock_hold(void)
{
	if (__builtin_expect(unspin_slice_now() != UNSPIN_SLICE_NONE, 0))
		unspin_slice_ask();
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void unspin_lock_let_go(void)
{
	struct unspin_slice_area *area;

	atomic_signal_fence(memory_order_seq_cst);
	/* Unknown: another object of the program has taken the lock. */
	if (__builtin_expect(unspin_slice_now() == UNSPIN_SLICE_NONE, 1))
		return;
	area = unspin_slice_area();
	if (!area)
		return;
	area->request = 0;
	/* The kernel clears `granted` if it takes the CPU away all the same. */
	if (area->granted)
		unspin_slice_yield();
}

#endif
