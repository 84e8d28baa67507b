/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Processor instructions for environments: the spin hint and the time-stamp counter. */
#ifndef UNSPIN_LOCKS_ENV_CPU_H
#define UNSPIN_LOCKS_ENV_CPU_H

static inline void unspin_lock_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	/* YIELD does nothing on most of these processors; ISB takes some tens of cycles. */
	__asm__ volatile("isb" ::: "memory");
#else
#error "no spin hint for this processor; add its instruction here"
#endif
}

/* Not ordered against other instructions: a budget may be off by some tens of cycles. */
static inline unsigned long long unspin_lock_cpu_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	unsigned long long ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#endif
}

#endif
