/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The environment of a Linux program: halting is futex(2), the clock is the time-stamp counter.
 *
 * The futexes are private to the process, unless UNSPIN_LOCK_LINUX_FUTEX is defined to be 0. Nothing
 * here needs a constructor: the first wait that needs the counter's rate measures it. errno is
 * preserved.
 */
#ifndef UNSPIN_LOCKS_ENV_LINUX_H
#define UNSPIN_LOCKS_ENV_LINUX_H

/* First: glibc's headers include some of the kernel's. */
#include "headers_linux.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* glibc's name for what shows it, and musl's. */
#if !defined(__USE_MISC) && !defined(_GNU_SOURCE) && !defined(_BSD_SOURCE)
#error "-std=c11 and _POSIX_C_SOURCE hide syscall(): compile with -std=gnu11, or define _DEFAULT_SOURCE"
#endif

#include "env_cpu.h"
#include "slice_linux.h"

/* Define it to 0 if locks may be shared between processes, so that a wake-up finds all waiters. */
#ifndef UNSPIN_LOCK_LINUX_FUTEX
#define UNSPIN_LOCK_LINUX_FUTEX FUTEX_PRIVATE_FLAG
#endif
_Static_assert(UNSPIN_LOCK_LINUX_FUTEX == 0 || UNSPIN_LOCK_LINUX_FUTEX == FUTEX_PRIVATE_FLAG,
	       "define UNSPIN_LOCK_LINUX_FUTEX to 0, or leave it undefined");
/* In all files or in none, as below: a file's wake-ups would miss the waiters of another's. */
#if UNSPIN_LOCK_LINUX_FUTEX
__attribute__((weak, visibility("hidden"))) _Thread_local unsigned char unspin_lock_futex_is_0_in_all_files_or_none;
#else
__attribute__((weak, visibility("hidden"))) unsigned char unspin_lock_futex_is_0_in_all_files_or_none;
#endif

/*
 * Define UNSPIN_LOCK_ONE_OBJECT if each lock is used by one object only: the executable, or one shared library.
 * FUTEX_WAKE_BITSET picks by a mask of 32 bits. So a wake-up ends the sleep of every 32nd waiter of a lock, and all
 * but one of them sleep again. With this, those with a key above 31 halt on counters beside the lock, and hardly
 * any is woken in vain. Each object has counters of its own: a waiter in another one would sleep for ever.
 */
#if defined(UNSPIN_LOCK_ONE_OBJECT) && UNSPIN_LOCK_LINUX_FUTEX
#define UNSPIN_LOCK_LINUX_BEDS 64u
/*
 * In all files of an object or in none: the linker refuses a name that is thread-local in some of them only. With
 * clang and -flto it does not.
 */
__attribute__((weak, visibility("hidden"))) unsigned char unspin_lock_one_object_in_all_files_or_none;
#elif UNSPIN_LOCK_LINUX_FUTEX
__attribute__((weak, visibility("hidden"))) _Thread_local unsigned char unspin_lock_one_object_in_all_files_or_none;
#endif

/*
 * With UNSPIN_LOCK_USDT, the probes unspin:contended, unspin:wait, unspin:waited and unspin:wake, which perf and
 * bpftrace can count and time: a thread finds a lock taken, it halts, it goes on, a thread wakes others.
 * Arguments: the lock; for the last three its word, and the key. They need sys/sdt.h (Debian:
 * systemtap-sdt-dev), and cost a NOP each.
 */
#ifdef UNSPIN_LOCK_USDT
#include <sys/sdt.h>
#define UNSPIN_LOCK_LINUX_PROBE(name, word, key) DTRACE_PROBE2(unspin, name, word, key)
#define UNSPIN_LOCK_CONTENDED(lock) DTRACE_PROBE1(unspin, contended, lock)
#else
#define UNSPIN_LOCK_LINUX_PROBE(name, word, key) ((void)0)
#endif

static inline void unspin_cpu_relax(void)
{
	unspin_lock_cpu_pause();
}

static inline unsigned long long unspin_lock_now(void)
{
	return unspin_lock_cpu_ticks();
}

/*
 * SYS_futex and SYS_clock_gettime take the processor's old timespec, of two words, whatever the width of the
 * program's time_t. Newer 32-bit processors have only those with 64 bits.
 */
#ifdef SYS_futex
#define UNSPIN_LOCK_LINUX_SYS_FUTEX SYS_futex
#ifdef SYS_clock_gettime
#define UNSPIN_LOCK_LINUX_SYS_CLOCK SYS_clock_gettime
#else	/* musl of 32 bits */
#define UNSPIN_LOCK_LINUX_SYS_CLOCK SYS_clock_gettime32
#endif
typedef __kernel_long_t unspin_lock_linux_time;
#else
#define UNSPIN_LOCK_LINUX_SYS_FUTEX SYS_futex_time64
#define UNSPIN_LOCK_LINUX_SYS_CLOCK SYS_clock_gettime64
typedef long long unspin_lock_linux_time;
#endif

/*
 * The kernel's CLOCK_MONOTONIC, by which it ends waits. Programs may replace clock_gettime(), as libfaketime
 * does.
 */
static inline unsigned long long unspin_lock_linux_clock_ns(void)
{
	unspin_lock_linux_time now[2];
	int saved = errno;

	if (syscall(UNSPIN_LOCK_LINUX_SYS_CLOCK, CLOCK_MONOTONIC, now)) {	/* a filter forbids it */
		struct timespec of_library;

		errno = saved;
		clock_gettime(CLOCK_MONOTONIC, &of_library);
		now[0] = (unspin_lock_linux_time)of_library.tv_sec;
		now[1] = (unspin_lock_linux_time)of_library.tv_nsec;
	}
	return (unsigned long long)now[0] * 1000000000 + (unsigned long long)now[1];
}

/* One per executable or shared library; 0: not measured yet. */
__attribute__((weak, visibility("hidden"))) atomic_uint unspin_lock_linux_ticks_per_us;

/*
 * Reads both clocks as a pair. The rate needs two pairs at least 20 us apart. Of several tries the
 * shortest one is taken, because no preemption came between its two readings.
 */
static inline void unspin_lock_linux_read_pair(unsigned long long *ticks, unsigned long long *ns)
{
	unsigned long long best = ~0ULL;
	int turn;

	for (turn = 0; turn < 4; turn++) {
		unsigned long long before = unspin_lock_cpu_ticks();
		unsigned long long clock_ns = unspin_lock_linux_clock_ns();
		unsigned long long took = unspin_lock_cpu_ticks() - before;

		if (took < best) {
			best = took;
			*ticks = before + took / 2;
			*ns = clock_ns;
		}
	}
}

/* More than any counter has. */
#define UNSPIN_LOCK_LINUX_TICKS_PER_US_MAX 100000u

static inline unsigned int unspin_lock_linux_measure(void)
{
	unsigned long long ticks0 = 0, ticks1 = 0, ns0 = 0, ns1 = 0, rate;

	unspin_lock_linux_read_pair(&ticks0, &ns0);
	while (unspin_lock_linux_clock_ns() - ns0 < 20000)
		unspin_lock_cpu_pause();
	unspin_lock_linux_read_pair(&ticks1, &ns1);
	rate = (ticks1 - ticks0) * 1000 / (ns1 - ns0);
	if (rate > UNSPIN_LOCK_LINUX_TICKS_PER_US_MAX)	/* the counter stepped */
		return UNSPIN_LOCK_LINUX_TICKS_PER_US_MAX;
	return rate ? (unsigned int)rate : 1;
}

#define UNSPIN_LOCK_LINUX_MEASURES_MAX 16u

/*
 * Measures until two rates in a row agree within 1/16. The counter may step when the thread moves to
 * another CPU, or when a virtual machine moves to another host.
 */
static __attribute__((noinline)) unsigned int unspin_lock_linux_rate(void)
{
	unsigned int tries, last = 0, rate = 0;

	for (tries = 0; tries < UNSPIN_LOCK_LINUX_MEASURES_MAX; tries++) {
		rate = unspin_lock_linux_measure();
		if (rate <= last + last / 16 && last <= rate + rate / 16 &&
		    rate < UNSPIN_LOCK_LINUX_TICKS_PER_US_MAX)
			break;
		last = rate;
	}
	return rate;
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	unsigned int rate = atomic_load_explicit(&unspin_lock_linux_ticks_per_us, memory_order_relaxed);

	if (__builtin_expect(!rate, 0)) {
		rate = unspin_lock_linux_rate();
		atomic_store_explicit(&unspin_lock_linux_ticks_per_us, rate, memory_order_relaxed);
	}
	return rate;
}

#define UNSPIN_LOCK_ENV_TIMED

static inline void unspin_lock_yield(void)
{
	sched_yield();
}

/* futex(2) with a time limit on CLOCK_MONOTONIC, or none (@until_ns: 0). */
static inline void unspin_lock_linux_futex(atomic_uint *word, int operation, unsigned int value,
					   unsigned long long until_ns, unsigned int bits)
{
	unspin_lock_linux_time until[2] = {
		(unspin_lock_linux_time)(until_ns / 1000000000),
		(unspin_lock_linux_time)(until_ns % 1000000000),
	};
	int saved = errno;

	syscall(UNSPIN_LOCK_LINUX_SYS_FUTEX, word, operation | UNSPIN_LOCK_LINUX_FUTEX, value,
		until_ns ? until : NULL, NULL, bits);
	errno = saved;
}

#ifdef UNSPIN_LOCK_LINUX_BEDS
/* A wake-up adds 1 to the counter first, so that it is not missed by a thread that is about to halt. */
__attribute__((weak, visibility("hidden"))) atomic_uint unspin_lock_linux_beds[UNSPIN_LOCK_LINUX_BEDS];
#endif

/* The counter on which a waiter with this key halts; NULL: it halts on the lock's word. */
static inline atomic_uint *unspin_lock_linux_bed(atomic_uint *word, unsigned int key)
{
#ifdef UNSPIN_LOCK_LINUX_BEDS
	if (key > 31)
		return &unspin_lock_linux_beds[((uintptr_t)word / 4 + key / 32) % UNSPIN_LOCK_LINUX_BEDS];
#endif
	(void)word;
	(void)key;
	return NULL;
}

/* @until_ns: 0, or a time of CLOCK_MONOTONIC. */
static inline void unspin_lock_linux_wait_until(atomic_uint *word, unsigned int seen, unsigned int key,
						unsigned long long until_ns)
{
	atomic_uint *at = word, *bed = unspin_lock_linux_bed(word, key);

	if (bed) {
		/* Either it is added before the waker's, which then ends this wait, or the word shows the change. */
		unsigned int count = atomic_fetch_add_explicit(bed, 0, memory_order_acq_rel);

		if (atomic_load_explicit(word, memory_order_relaxed) != seen)
			return;
		at = bed;
		seen = count;
	}
	UNSPIN_LOCK_LINUX_PROBE(wait, word, key);
	unspin_lock_linux_futex(at, FUTEX_WAIT_BITSET, seen, until_ns, 1u << (key & 31));
	UNSPIN_LOCK_LINUX_PROBE(waited, word, key);
}

static inline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	unspin_lock_linux_wait_until(word, seen, key, 0);
}

/*
 * The kernel may end a wait later than its limit by the thread's timer slack (50 us by default), which is
 * made smaller for this wait. Threads of real-time classes have none.
 */
#define UNSPIN_LOCK_LINUX_SLACK_NS 1000ul

static inline void unspin_lock_wait_for(atomic_uint *word, unsigned int seen, unsigned int key,
					unsigned long long ns)
{
	int saved = errno;
	/* prctl() returns an int. */
	unsigned long slack_ns = (unsigned long)syscall(SYS_prctl, PR_GET_TIMERSLACK);

	prctl(PR_SET_TIMERSLACK, UNSPIN_LOCK_LINUX_SLACK_NS);
	unspin_lock_linux_wait_until(word, seen, key, unspin_lock_linux_clock_ns() + ns);
	if (slack_ns && slack_ns != ~0ul)
		prctl(PR_SET_TIMERSLACK, slack_ns);
	errno = saved;
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	atomic_uint *bed = unspin_lock_linux_bed(word, key);

	UNSPIN_LOCK_LINUX_PROBE(wake, word, key);
	if (bed) {
		atomic_fetch_add_explicit(bed, 1, memory_order_acq_rel);
		word = bed;
	}
	unspin_lock_linux_futex(word, FUTEX_WAKE_BITSET, INT_MAX, 0, 1u << (key & 31));
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	UNSPIN_LOCK_LINUX_PROBE(wake, word, 0);
	unspin_lock_linux_futex(word, FUTEX_WAKE, INT_MAX, 0, 0);
}

#endif
