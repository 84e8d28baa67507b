/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The locks for C++11 and newer: their C functions, and classes for std::lock_guard, std::unique_lock and
 * std::scoped_lock (Lockable; lease and tas_nap TimedLockable).
 *
 *	unspin::lease lock;
 *	...
 *	std::lock_guard<unspin::lease> guard(lock);
 *
 * C and C++ files of one program may use the same lock. mcs takes a node, and has no class; nor have the
 * locks of oticket.h.
 */
#ifndef UNSPIN_LOCKS_HPP
#define UNSPIN_LOCKS_HPP

#ifdef UNSPIN_LOCK_STATS
#error "UNSPIN_LOCK_STATS is for C programs"
#undef UNSPIN_LOCK_STATS
#endif

/* All that the headers include, before the names below are other ones. */
#include "headers_linux.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef UNSPIN_LOCK_USDT
#include <sys/sdt.h>
#endif

/* C11's names, for the headers only. A program that includes stdatomic.h has them back below. */
#pragma push_macro("_Atomic")
#pragma push_macro("_Static_assert")
#pragma push_macro("_Thread_local")
#pragma push_macro("atomic_uint")
#pragma push_macro("atomic_ushort")
#pragma push_macro("memory_order_relaxed")
#pragma push_macro("memory_order_acquire")
#pragma push_macro("memory_order_release")
#pragma push_macro("memory_order_acq_rel")
#pragma push_macro("memory_order_seq_cst")
#pragma push_macro("atomic_signal_fence")
#pragma push_macro("atomic_load_explicit")
#pragma push_macro("atomic_store_explicit")
#pragma push_macro("atomic_exchange_explicit")
#pragma push_macro("atomic_compare_exchange_strong_explicit")
#pragma push_macro("atomic_fetch_add_explicit")
#pragma push_macro("atomic_fetch_and_explicit")
#pragma push_macro("atomic_fetch_or_explicit")
#undef _Atomic
#undef _Static_assert
#undef _Thread_local
#undef atomic_uint
#undef atomic_ushort
#undef memory_order_relaxed
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst
#undef atomic_signal_fence
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_or_explicit
#define _Atomic(type) type
#define _Static_assert static_assert
#define _Thread_local thread_local
#define atomic_uint unsigned int
#define atomic_ushort unsigned short
#define memory_order_relaxed __ATOMIC_RELAXED
#define memory_order_acquire __ATOMIC_ACQUIRE
#define memory_order_release __ATOMIC_RELEASE
#define memory_order_acq_rel __ATOMIC_ACQ_REL
#define memory_order_seq_cst __ATOMIC_SEQ_CST
#define atomic_signal_fence __atomic_signal_fence
#define atomic_load_explicit __atomic_load_n
#define atomic_store_explicit(at, value, order) \
	__atomic_store_n(at, static_cast<__typeof__(*(at))>(value), order)
#define atomic_exchange_explicit(at, value, order) \
	__atomic_exchange_n(at, static_cast<__typeof__(*(at))>(value), order)
#define atomic_compare_exchange_strong_explicit(at, seen, value, order, else_order) \
	__atomic_compare_exchange_n(at, seen, static_cast<__typeof__(*(at))>(value), false, order, \
				    else_order)
#define atomic_fetch_add_explicit __atomic_fetch_add
#define atomic_fetch_and_explicit __atomic_fetch_and
#define atomic_fetch_or_explicit __atomic_fetch_or

/* Warnings of C++ that users ask for, and C cannot heed: a struct and a function have one name. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wnested-anon-types"
#else
#pragma GCC diagnostic ignored "-Wuseless-cast"
#endif

#include "lease.h"
#include "mcs.h"
#include "oticket.h"
#include "preemptable.h"
#include "pv_preemptable.h"
#include "pv_queued.h"
#include "pv_ticket.h"
#include "tas.h"
#include "tas_nap.h"
#include "ticket.h"

#pragma GCC diagnostic pop
#pragma pop_macro("atomic_fetch_or_explicit")
#pragma pop_macro("atomic_fetch_and_explicit")
#pragma pop_macro("atomic_fetch_add_explicit")
#pragma pop_macro("atomic_compare_exchange_strong_explicit")
#pragma pop_macro("atomic_exchange_explicit")
#pragma pop_macro("atomic_store_explicit")
#pragma pop_macro("atomic_load_explicit")
#pragma pop_macro("atomic_signal_fence")
#pragma pop_macro("memory_order_seq_cst")
#pragma pop_macro("memory_order_acq_rel")
#pragma pop_macro("memory_order_release")
#pragma pop_macro("memory_order_acquire")
#pragma pop_macro("memory_order_relaxed")
#pragma pop_macro("atomic_ushort")
#pragma pop_macro("atomic_uint")
#pragma pop_macro("_Thread_local")
#pragma pop_macro("_Static_assert")
#pragma pop_macro("_Atomic")

namespace unspin {

namespace detail {

/* A time limit in ns. Zero if it is negative, over or no number; for ever if it is longer than some 292 years. */
template <class Rep, class Period>
unsigned long long limit_ns(const std::chrono::duration<Rep, Period> &limit) noexcept
{
	const long double ns = std::chrono::duration<long double, std::nano>(limit).count();

	return !(ns > 0) ? 0 : ns < 9.2e18L ? static_cast<unsigned long long>(ns) : UNSPIN_LOCK_NS_FOREVER;
}

} // namespace detail

#define UNSPIN_LOCK_NOT_TIMED(name)
#define UNSPIN_LOCK_TIMED(name)							\
		template <class Rep, class Period>				\
		bool try_lock_for(const std::chrono::duration<Rep, Period> &limit) noexcept	\
		{								\
			return ::unspin_##name##_lock_for(&lock_, detail::limit_ns(limit));	\
		}								\
		template <class Clock, class Duration>				\
		bool try_lock_until(const std::chrono::time_point<Clock, Duration> &at)	\
		{								\
			typedef std::chrono::duration<long double, std::nano> ns;	\
										\
			return try_lock_for(ns(at.time_since_epoch()) -		\
					    ns(Clock::now().time_since_epoch()));	\
		}

#define UNSPIN_LOCK_CLASS(name, TIMED)						\
	class name {								\
	public:									\
		constexpr name() noexcept : lock_() {}				\
		name(const name &) = delete;					\
		name &operator=(const name &) = delete;				\
		void lock() noexcept { ::unspin_##name##_lock(&lock_); }	\
		bool try_lock() noexcept { return ::unspin_##name##_trylock(&lock_); }	\
		void unlock() noexcept { ::unspin_##name##_unlock(&lock_); }	\
		TIMED(name)							\
										\
	private:								\
		struct ::unspin_##name##_lock lock_;				\
	};

UNSPIN_LOCK_CLASS(lease, UNSPIN_LOCK_TIMED)
UNSPIN_LOCK_CLASS(preemptable, UNSPIN_LOCK_NOT_TIMED)
UNSPIN_LOCK_CLASS(pv_preemptable, UNSPIN_LOCK_NOT_TIMED)
UNSPIN_LOCK_CLASS(pv_queued, UNSPIN_LOCK_NOT_TIMED)
UNSPIN_LOCK_CLASS(pv_ticket, UNSPIN_LOCK_NOT_TIMED)
UNSPIN_LOCK_CLASS(tas, UNSPIN_LOCK_NOT_TIMED)
UNSPIN_LOCK_CLASS(tas_nap, UNSPIN_LOCK_TIMED)
UNSPIN_LOCK_CLASS(ticket, UNSPIN_LOCK_NOT_TIMED)

#undef UNSPIN_LOCK_CLASS
#undef UNSPIN_LOCK_TIMED
#undef UNSPIN_LOCK_NOT_TIMED

} // namespace unspin

#endif
