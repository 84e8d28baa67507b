/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What guest and VMM share: where things lie in guest memory, the pages both read and write, and
 * the ports a guest ends through. The Rust mirror is lab/guest-abi/src/page.rs; a test holds the two to
 * the same values, sizes and offsets.
 *
 * Also included by assembly: everything but macros is inside #ifndef __ASSEMBLER__.
 */
#ifndef UNSPIN_GUEST_ABI_H
#define UNSPIN_GUEST_ABI_H

#include "linux/response_bucket.h"

#define GUEST_ABI_MAGIC 0x4e495053	/* "SPIN" */
#define GUEST_ABI_VERSION 7
#define GUEST_VCPUS_MAX 128
#define GUEST_STEPS_MAX 32
#define GUEST_UNITS_PER_MOVE 256
#define GUEST_LOCKS_MAX 16
#define GUEST_WAIT_BUCKETS 40		/* bucket b: waits of [2^b, 2^(b+1)) TSC cycles */
#define GUEST_STALL_BUCKETS 32		/* bucket b: waits that reached 2^b turns of their loop */

/*
 * Guest memory, physical = virtual. The VMM writes the GDT, the page tables, one TSS a vCPU, the
 * configuration and the image, and starts every vCPU in 64-bit mode, CPL 0, interrupts off, at
 * GUEST_IMAGE_ADDR with RDI = its index and RSP = the top of its stack.
 */
#define GUEST_RAM_BYTES 0x400000
#define GUEST_GDT_ADDR 0x1000
#define GUEST_PML4_ADDR 0x2000
#define GUEST_PDPT_ADDR 0x3000
#define GUEST_PD_ADDR 0x4000
#define GUEST_TSS_ADDR 0x8000		/* one every GUEST_TSS_STRIDE */
#define GUEST_TSS_STRIDE 0x80
#define GUEST_CONFIG_ADDR 0x10000
#define GUEST_PROTECTED_ADDR 0x18000
#define GUEST_CALLS_ADDR 0x1c000	/* one struct guest_calls per vCPU */
#define GUEST_CALLS_SHIFT 6		/* log2 of its size; the offsets are for call_stub */
#define GUEST_CALLS_ASKED 0
#define GUEST_CALLS_ANSWERED 4
#define GUEST_CALLS_MEMORY 8
#define GUEST_COUNTERS_ADDR 0x20000	/* one struct guest_counters every GUEST_COUNTERS_STRIDE */
#define GUEST_COUNTERS_STRIDE 0x1000
#define GUEST_IMAGE_ADDR 0x100000
#define GUEST_IMAGE_END 0x200000	/* the image and its zeroed data end before it */
#define GUEST_STACKS_ADDR 0x200000
#define GUEST_STACK_BYTES 0x4000	/* a vCPU's, of which the lowest quarter serves entries from CPL 3 */

#define GUEST_CS_KERNEL 0x08
#define GUEST_DS_KERNEL 0x10
#define GUEST_DS_USER 0x1b
#define GUEST_CS_USER 0x23
#define GUEST_TR 0x28

#define GUEST_VECTOR_TIMER 0x40
#define GUEST_VECTOR_WAKE 0x41		/* also sent by the VMM, so that a halted vCPU sees `stop` */
#define GUEST_VECTOR_CALL 0x42		/* a sibling's shootdown: its handler answers */
#define GUEST_VECTOR_SPURIOUS 0xff

/*
 * OUT to one of these ends the vCPU.
 * END: EAX is an enum guest_end. FAULT: RDI vector, RSI error code, R8 RIP, R9 CR2, R10 CS.
 */
#define GUEST_PORT_END 0x5053
#define GUEST_PORT_FAULT 0x5054

#define GUEST_STOPPED 1			/* `stop` was seen */
#define GUEST_BAD_CONFIG 2		/* the configuration page makes no sense */
#define GUEST_BAD_APIC 3		/* the local APIC could not be switched to x2APIC */
#define GUEST_BAD_KICK 4		/* KVM refused KVM_HC_KICK_CPU */

#define GUEST_FEATURE_VMMCALL 1		/* hypercalls are VMMCALL (AMD), not VMCALL */
#define GUEST_FEATURE_TAU 2		/* lock_tau_ns replaces the preemptable locks' own */
#define GUEST_FEATURE_SPIN 4		/* lock_spin_ns replaces pv_ticket's own threshold */

/* guest_calls.memory: whether translations of the program's memory may be in the vCPU's TLB. */
#define GUEST_MEMORY_LEFT 0	/* not up yet, or asleep and has answered since: not asked */
#define GUEST_MEMORY_LAZY 1	/* sleeps in a block or a barrier: only lazy shootdowns ask it */
#define GUEST_MEMORY_USED 2

#ifndef __ASSEMBLER__

/* One pass over the steps is one unit of work. */
enum guest_op {
	GUEST_OP_COMPUTE = 1,	/* think: iterations drawn from the distribution */
	GUEST_OP_LOCK = 2,
	GUEST_OP_CRITICAL = 3,	/* as compute, inside the lock (kept apart for reports) */
	GUEST_OP_UNLOCK = 4,
	GUEST_OP_BARRIER = 5,	/* all vCPUs of the VM, waited for with HLT */
	GUEST_OP_BLOCK = 6,	/* HLT until a wake, or until that many timer cycles (KVM's APIC
				 * timer: 1 ns each) passed; always 0: until a wake */
	GUEST_OP_WAKE = 7,	/* wake the next vCPU (index + 1) if it is blocked */
	GUEST_OP_SPIN_BARRIER = 8,	/* barrier waited for with PAUSE */
	GUEST_OP_SHOOTDOWN = 9,	/* interrupt each sibling that does not sleep in a block or a
				 * barrier, and PAUSE until all of them have answered */
	GUEST_OP_SHOOTDOWN_LAZY = 10,	/* the same, and once per sleep those that sleep */
	GUEST_OP_COMPUTE_FIRST = 11,	/* as compute, on the first vCPU; the others pass by */
	GUEST_OP_COMPUTE_ROTATING = 12,	/* the same on one vCPU, in each of its passes another */
	GUEST_OP_COMPUTE_MOVING = 13,	/* the same, after GUEST_UNITS_PER_MOVE passes another */
};

enum guest_dist {
	GUEST_DIST_CONST = 0,	/* a */
	GUEST_DIST_UNIFORM = 1,	/* a..=b */
	GUEST_DIST_EXP = 2,	/* mean a, cut off at b */
};

struct guest_step {
	unsigned int op;
	unsigned int dist;
	unsigned int a;
	unsigned int b;
	unsigned int lock;	/* which lock: below GUEST_LOCKS_MAX */
	unsigned int permille;	/* chance that the step is taken; 1000 = always */
	unsigned int skip;	/* index of the step after this one when it is not taken */
	unsigned int pad;
};

enum guest_lock_kind {
	GUEST_LOCK_TAS = 0,
	GUEST_LOCK_TICKET = 1,
	GUEST_LOCK_MCS = 2,
	GUEST_LOCK_PREEMPTABLE = 3,
	GUEST_LOCK_PV_TICKET = 4,
	GUEST_LOCK_PV_PREEMPTABLE = 5,
	GUEST_LOCK_OTICKET = 6,
	GUEST_LOCK_OTICKET_SPIN = 7,
	GUEST_LOCK_OTICKET_WAKE = 8,
	GUEST_LOCK_ITICKET = 9,
	GUEST_LOCK_LONG_TICKET = 10,
	GUEST_LOCK_PV_QUEUED = 11,
	GUEST_LOCK_LEASE = 12,
	GUEST_LOCK_KINDS
};

/* At GUEST_CONFIG_ADDR. Only `stop` changes once the vCPUs run. */
struct guest_config {
	unsigned int magic;
	unsigned int version;
	unsigned int vcpus;
	unsigned int lock_kind;
	unsigned int cpl;	/* 0 or 3 */
	unsigned int steps_count;
	unsigned int features;	/* GUEST_FEATURE_... */
	unsigned int lock_ticks_per_us;	/* TSC ticks the locks take for 1 us; at least 1 */
	unsigned long long seed;	/* seed of this VM; a vCPU mixes in its index */
	unsigned long long lock_tau_ns;
	unsigned long long lock_spin_ns;
	/* Only the image that reports: waits for a lock above 2^this TSC cycles; 0-63. */
	unsigned int report_log2_cycles;
	unsigned int tsc_ticks_per_us;	/* at least 1 */
	struct guest_step steps[GUEST_STEPS_MAX] __attribute__((aligned(64)));
	unsigned int stop __attribute__((aligned(64)));	/* not 0: end at the next look */
};

/*
 * At GUEST_PROTECTED_ADDR, one for each lock. The holder reads `value` when it has the lock and
 * writes it back one higher just before it releases: two holders at a time lose an increment.
 */
struct guest_protected {
	unsigned long long value __attribute__((aligned(64)));
};

/* Of one vCPU, at GUEST_CALLS_ADDR. */
struct guest_calls {
	unsigned int asked;	/* by siblings, atomically: how many answers they want so far */
	unsigned int answered;	/* by its interrupt handler: what `asked` was then */
	unsigned int memory;	/* by itself: GUEST_MEMORY_... */
} __attribute__((aligned(64)));

/* Written by one vCPU with plain stores, read by the VMM while it runs. */
struct guest_counters {
	unsigned long long units;		/* passes over the program */
	unsigned long long acquisitions;
	unsigned long long releases;
	unsigned long long iterations;		/* of compute and critical steps */
	unsigned long long max_wait_cycles;	/* the VMM may set it to 0 at any time */
	unsigned long long wait_hist[GUEST_WAIT_BUCKETS];
	/* Only in the image that counts stalls: waits of this length, by the state of the lock. */
	unsigned long long stalls_free[GUEST_STALL_BUCKETS];
	unsigned long long stalls_held[GUEST_STALL_BUCKETS];
	/*
	 * Of passes that begin with a block whose timer ended it: TSC cycles from when that timer was to
	 * end to the end of the pass.
	 */
	unsigned long long responses;
	unsigned long long response_cycles;	/* sum of all, TSC cycles */
	unsigned long long response_hist[GUEST_RESPONSE_BUCKETS];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct guest_step) == 32, "a step is half a cache line");
_Static_assert(sizeof(struct guest_counters) <= GUEST_COUNTERS_STRIDE, "counters overlap");
_Static_assert(GUEST_CONFIG_ADDR + sizeof(struct guest_config) <= GUEST_PROTECTED_ADDR,
	       "configuration page overlaps");
_Static_assert(sizeof(struct guest_calls) == 1 << GUEST_CALLS_SHIFT &&
	       __builtin_offsetof(struct guest_calls, asked) == GUEST_CALLS_ASKED &&
	       __builtin_offsetof(struct guest_calls, answered) == GUEST_CALLS_ANSWERED &&
	       __builtin_offsetof(struct guest_calls, memory) == GUEST_CALLS_MEMORY,
	       "call_stub reads and writes struct guest_calls");
_Static_assert(GUEST_PROTECTED_ADDR + GUEST_LOCKS_MAX * sizeof(struct guest_protected) <=
		       GUEST_CALLS_ADDR &&
		       GUEST_CALLS_ADDR + (GUEST_VCPUS_MAX << GUEST_CALLS_SHIFT) <= GUEST_COUNTERS_ADDR,
	       "calls overlap");
_Static_assert(GUEST_COUNTERS_ADDR + GUEST_VCPUS_MAX * GUEST_COUNTERS_STRIDE <= GUEST_IMAGE_ADDR,
	       "counters overlap the image");
_Static_assert(GUEST_STACKS_ADDR + GUEST_VCPUS_MAX * GUEST_STACK_BYTES <= GUEST_RAM_BYTES,
	       "stacks exceed the memory");

#endif /* __ASSEMBLER__ */
#endif
