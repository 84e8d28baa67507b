/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel as the locks' environment (core/locks/env.h): the clock is the TSC, waiters halt with HLT and are
 * woken by the hypercall KVM_HC_KICK_CPU, as Linux's own paravirtual locks. Included after the kernel's
 * headers, because stdatomic.h has names of theirs.
 */
#ifndef UNSPIN_KERNEL_ENV_H
#define UNSPIN_KERNEL_ENV_H

#include <stdatomic.h>
#include <stdbool.h>

/* What a CPU waits for, halted. The others search these records for a CPU to kick. */
struct unspin_halted {
	atomic_uint *word;	/* NULL: it is not halted in a lock */
	unsigned int key;
};

static DEFINE_PER_CPU_SHARED_ALIGNED(struct unspin_halted, unspin_halted);
/* Whether the host wakes a halted CPU. Otherwise waiters go on spinning. */
static bool unspin_can_halt __ro_after_init;

static inline void unspin_cpu_relax(void)
{
	cpu_relax();
}

static inline unsigned long long unspin_lock_now(void)
{
	return rdtsc();
}

static inline unsigned int unspin_lock_ticks_per_us(void)
{
	return tsc_khz < 1000 ? 1 : tsc_khz / 1000;
}

/*
 * No wake-up is lost. unspin_lock_wait() writes the record before it reads the word, and the waker reads the
 * records after it has changed the word, so one sees the other. KVM keeps a kick that comes before the HLT.
 *
 * With interrupts on, an interrupt handler may wait for another lock and use the record. The HLT of the
 * interrupted wait then has ended. An NMI could come before the HLT, so its handler does not halt.
 */
static noinline void unspin_lock_wait(atomic_uint *word, unsigned int seen, unsigned int key)
{
	struct unspin_halted *self;
	unsigned long flags;

	if (!unspin_can_halt || in_nmi()) {
		cpu_relax();
		return;
	}
	raw_local_irq_save(flags);
	self = this_cpu_ptr(&unspin_halted);
	WRITE_ONCE(self->key, key);
	smp_store_release(&self->word, word);
	/* Pairs with the barrier in unspin_lock_wake_matching(). */
	smp_mb();
	if (atomic_load_explicit(word, memory_order_relaxed) == seen) {
		if (raw_irqs_disabled_flags(flags))
			halt();
		else
			raw_safe_halt();
	}
	WRITE_ONCE(self->word, NULL);
	raw_local_irq_restore(flags);
}

static noinline void unspin_lock_wake_matching(atomic_uint *word, bool all, unsigned int key)
{
	int cpu;

	if (!unspin_can_halt)
		return;
	/* Pairs with the barrier in unspin_lock_wait(). */
	smp_mb();
	/* A CPU takes locks before it is online. */
	for_each_possible_cpu(cpu) {
		struct unspin_halted *other = per_cpu_ptr(&unspin_halted, cpu);

		if (smp_load_acquire(&other->word) == word && (all || READ_ONCE(other->key) == key))
			kvm_hypercall2(KVM_HC_KICK_CPU, 0, per_cpu(x86_cpu_to_apicid, cpu));
	}
}

static inline void unspin_lock_wake(atomic_uint *word, unsigned int key)
{
	unspin_lock_wake_matching(word, false, key);
}

static inline void unspin_lock_wake_all(atomic_uint *word)
{
	unspin_lock_wake_matching(word, true, 0);
}

#endif
