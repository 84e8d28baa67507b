/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The guest as the locks' world (core/locks/env.h): the clock is the TSC at the rate the VMM says, waiters
 * halt with HLT and are woken by the hypercall KVM_HC_KICK_CPU. Both need CPL 0; the VMM refuses
 * locks that halt elsewhere.
 */
#ifndef UNSPIN_GUEST_ENV_H
#define UNSPIN_GUEST_ENV_H

#include <stdatomic.h>
#include <stdbool.h>
#include "cpu.h"

/* The word that a vCPU waits for, halted. The others search these records for a vCPU to kick. */
struct halted_at {
	_Atomic(atomic_uint *) word;	/* 0: not halted in a lock */
	atomic_uint key;
} __attribute__((aligned(64)));

extern struct halted_at halted[GUEST_VCPUS_MAX];

#ifdef GUEST_STALLS
void note_stall(u32 turns);
#endif
#ifdef GUEST_REPORTS
/* Turns of a loop from one look at how long it lasts to the next. */
#define REPORT_LOOK_TURNS 64u
void note_wait(void);
#endif

/* The spin hint. It also ends a wait when the run is over. */
static inline void unspin_cpu_relax(void)
{
	__builtin_ia32_pause();
	if (__builtin_expect(stop_wanted(), 0))
		end_vcpu(GUEST_STOPPED);
#if defined(GUEST_STALLS) || defined(GUEST_REPORTS)
	u32 turns = this_turns() + 1;

	set_this_turns(turns);
#endif
#ifdef GUEST_STALLS
	if (__builtin_expect(!(turns & (turns - 1)), 0))
		note_stall(turns);
#endif
#ifdef GUEST_REPORTS
	if (__builtin_expect(!(turns % REPORT_LOOK_TURNS), 0))
		note_wait();
#endif
}

static inline unsigned long long unspin_lock_now(void)
{
	return rdtsc();
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return config->lock_ticks_per_us;
}

/*
 * No wake-up is lost. unspin_lock_wait() writes the record before it reads the word, and unspin_lock_wake() reads
 * the records after the word was changed, so one sees the other. KVM keeps a kick that comes before
 * the HLT, which then ends at once. No interrupt can come between the last check and the HLT.
 */
static __attribute__((noinline, unused)) void unspin_lock_wait(atomic_uint *word, unsigned int seen,
							       unsigned int key)
{
	struct halted_at *self = &halted[this_index()];

	atomic_store_explicit(&self->key, key, memory_order_relaxed);
	atomic_store_explicit(&self->word, word, memory_order_release);
	/* Pairs with the fence in lock_wake_matching(). */
	atomic_thread_fence(memory_order_seq_cst);
	__asm__ volatile("cli" ::: "memory");
	if (atomic_load_explicit(word, memory_order_relaxed) == seen && !stop_wanted())
		__asm__ volatile("sti; hlt" ::: "memory");
	else
		__asm__ volatile("sti" ::: "memory");
	atomic_store_explicit(&self->word, 0, memory_order_relaxed);
	if (stop_wanted())
		end_vcpu(GUEST_STOPPED);
}

static inline u64 hypercall(u64 number, u64 first, u64 second)
{
	u64 result = number;

	if (config->features & GUEST_FEATURE_VMMCALL)
		__asm__ volatile("vmmcall" : "+a"(result) : "b"(first), "c"(second) : "memory");
	else
		__asm__ volatile("vmcall" : "+a"(result) : "b"(first), "c"(second) : "memory");
	return result;
}

static inline void kick(u32 index)
{
	if (hypercall(KVM_HC_KICK_CPU, 0, index))
		end_vcpu(GUEST_BAD_KICK);
}

static __attribute__((noinline, unused)) void lock_wake_matching(atomic_uint *word, bool all,
								 unsigned int key)
{
	u32 index;

	/* Pairs with the fence in unspin_lock_wait(). */
	atomic_thread_fence(memory_order_seq_cst);
	for (index = 0; index < config->vcpus; index++) {
		struct halted_at *other = &halted[index];

		if (atomic_load_explicit(&other->word, memory_order_acquire) == word &&
		    (all || atomic_load_explicit(&other->key, memory_order_relaxed) == key))
			kick(index);
	}
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	lock_wake_matching(word, false, key);
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	lock_wake_matching(word, true, 0);
}

#endif
