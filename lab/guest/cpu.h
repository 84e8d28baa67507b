/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* x86-64 instructions that the guest needs, and the data that a vCPU addresses through GS. */
#ifndef UNSPIN_GUEST_CPU_H
#define UNSPIN_GUEST_CPU_H

#include "abi.h"

#define MSR_IA32_APIC_BASE 0x1b
#define APIC_BASE_X2APIC (1u << 10)
#define APIC_BASE_ENABLE (1u << 11)
#define MSR_GS_BASE 0xc0000101u
#define MSR_X2APIC_EOI 0x80b
#define MSR_X2APIC_SVR 0x80f
#define APIC_SVR_ENABLE 0x100
#define MSR_X2APIC_ICR 0x830
#define APIC_ICR_ALL_BUT_SELF (3u << 18)
#define MSR_X2APIC_LVT_TIMER 0x832
#define MSR_X2APIC_TIMER_INITIAL 0x838
#define MSR_X2APIC_TIMER_DIVIDE 0x83e
#define APIC_TIMER_DIVIDE_BY_1 0xb

#define KVM_HC_KICK_CPU 5

#ifndef __ASSEMBLER__

#include <stdbool.h>
#include "types.h"

#define config ((struct guest_config *)GUEST_CONFIG_ADDR)
#define protected_words ((struct guest_protected *)GUEST_PROTECTED_ADDR)

static inline struct guest_counters *counters_of(u32 index)
{
	return (struct guest_counters *)(GUEST_COUNTERS_ADDR + (u64)index * GUEST_COUNTERS_STRIDE);
}

static inline struct guest_calls *calls_of(u32 index)
{
	return (struct guest_calls *)GUEST_CALLS_ADDR + index;
}

static inline u64 rdtsc(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static inline u64 rdmsr(u32 msr)
{
	u32 low, high;

	__asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
	return (u64)high << 32 | low;
}

static inline void wrmsr(u32 msr, u64 value)
{
	__asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)value), "d"((u32)(value >> 32)) : "memory");
}

/* Ends this vCPU, from any CPL; @code is a GUEST_STOPPED or GUEST_BAD_ value. In start.S. */
void end_vcpu(u32 code) __attribute__((noreturn));

static inline bool stop_wanted(void)
{
	return *(volatile u32 *)&config->stop != 0;
}

/* Of this vCPU: the first words of its struct vcpu, see main.c. */
static inline u32 this_index(void)
{
	u32 index;

	__asm__("movl %%gs:4, %0" : "=r"(index));
	return index;
}

static inline u32 this_turns(void)
{
	u32 turns;

	__asm__ volatile("movl %%gs:8, %0" : "=r"(turns));
	return turns;
}

static inline void set_this_turns(u32 turns)
{
	__asm__ volatile("movl %0, %%gs:8" : : "r"(turns));
}

#endif /* __ASSEMBLER__ */
#endif
