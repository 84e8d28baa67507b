/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What KVM itself does on a PLE exit: the baselines, and the oracle for tests.
 *
 * The per-vCPU window and the directed-yield circle, after the behaviour of
 * virt/kvm/kvm_main.c (kvm_vcpu_on_spin) and arch/x86/kvm (grow_ple_window,
 * shrink_ple_window) in the versions named; Shan, Ding, Gehani, "APPLES", IEEE
 * TPDS 2017, section 2.3, describes the first of them. KVM reads other vCPUs'
 * flags without a lock; here they are a snapshot that the caller owns, and
 * searches that overlap share it (Fig. 2 of the paper).
 */
#ifndef UNSPIN_POLICY_KVM_STOCK_H
#define UNSPIN_POLICY_KVM_STOCK_H

#include "types.h"

/* Numeric values are part of the trace format. */
enum kvm_stock_variant {
	/* Candidates were preempted; two passes; window is a signed int. */
	KVM_STOCK_3_19 = 0,
	/* Candidates are "ready" (also just woken), not in user mode; two passes. */
	KVM_STOCK_6_12 = 1,
	/*
	 * One pass, and the vCPU to start after is stored as the number of steps the
	 * search took (since commit 7e513617da71, in 6.13; fixed by 32bd348be3fa).
	 */
	KVM_STOCK_6_13_INDEX_BUG = 2,
	/* One pass, fixed. */
	KVM_STOCK_6_19 = 3,
};

/* ---- the window ---- */

/*
 * The module parameters ple_window, _grow, _shrink and _max. In cycles on VMX; SVM
 * from 4.18 on uses the same rules on a count of PAUSEs, which it keeps in 16 bits.
 */
struct kvm_stock_window_params {
	pol_u32 base_cycles;	/* ple_window */
	pol_u32 grow;		/* factor where below base, else cycles to add; 0: to base */
	pol_u32 shrink;		/* divisor where below base, else cycles to take; 0: to base */
	pol_u32 max_cycles;	/* ple_window_max */
};

#define KVM_STOCK_WINDOW_CYCLES 4096u
#define KVM_STOCK_WINDOW_GROW 2u
#define KVM_STOCK_WINDOW_SHRINK 0u
#define KVM_STOCK_WINDOW_PAUSES_SVM 3000u
#define KVM_STOCK_WINDOW_PAUSES_MAX_SVM 65535u
#define KVM_STOCK_TRIES 3u

/* The initial parameters of an Intel host with this version. A new vCPU's window is base. */
void kvm_stock_window_defaults(struct kvm_stock_window_params *params,
			       enum kvm_stock_variant variant);

/* The vCPU's next window after a PLE exit. 3.19 reads parameters above 2^31-1 as that. */
pol_u32 kvm_stock_window_grow(const struct kvm_stock_window_params *params,
			      enum kvm_stock_variant variant, pol_u32 window_cycles);

/*
 * The vCPU's window when it is loaded after having been scheduled out. From 4.18
 * on, taking more cycles than there are wraps (32 bits) to a very long window, and
 * shrinking does not heed max_cycles: with the default shrink of 0 neither shows.
 */
pol_u32 kvm_stock_window_shrink(const struct kvm_stock_window_params *params,
				enum kvm_stock_variant variant, pol_u32 window_cycles);

/* ---- the directed yield ---- */

#define KVM_STOCK_PICK_NONE (-1)

/* One vCPU as kvm_vcpu_on_spin sees it; each field is 0 or 1. */
struct kvm_stock_vcpu {
	pol_u8 ready;		/* runnable and not running: preempted or just woken */
	pol_u8 preempted;	/* scheduled out while runnable, not in since */
	pol_u8 blocking;	/* sleeps in the kernel's halt wait queue */
	pol_u8 runnable;	/* has an event that would end such a sleep */
	pol_u8 in_kernel;	/* was in guest kernel mode when preempted */
	pol_u8 interrupt_pending;	/* only seen with APICv or AVIC active */
	pol_u8 in_spin_loop;	/* is inside kvm_vcpu_on_spin itself */
	pol_u8 dy_eligible;	/* the "checked" label: next check may select it */
};

/*
 * One call of kvm_vcpu_on_spin, from its start to its end. The caller fills in the first three
 * and kernel_mode_only.
 */
struct kvm_stock_search {
	pol_u32 variant;	/* enum kvm_stock_variant */
	pol_u32 count;		/* vCPUs of the VM */
	pol_u32 caller;		/* the vCPU that spins; outside [0, count): none of these */
	pol_u32 first;		/* where the circle starts */
	pol_u32 ahead;		/* vCPUs from first to the last index: the first pass */
	pol_u32 step;		/* vCPUs looked at so far */
	pol_u32 tries;		/* failed yields left */
	pol_s32 yielded;	/* result of the last yield */
	pol_u8 kernel_mode_only;	/* passes over those preempted in user mode */
	pol_u8 offered;		/* a candidate waits for its result */
	pol_u8 done;
	pol_u8 idle;		/* fewer than two vCPUs: nothing was touched */
};

/*
 * Start a search for a vCPU to yield to, after last_boosted. kernel_mode_only is true on VMX, and
 * whether the spinner is in kernel mode on SVM; 3.19 has no such rule. Marks the caller as
 * spinning.
 */
void kvm_stock_search_init(struct kvm_stock_search *search, struct kvm_stock_vcpu *vcpus,
			   pol_u32 last_boosted);

/*
 * Returns the next vCPU to yield to, or KVM_STOCK_PICK_NONE at the end of the search. Toggles
 * dy_eligible of every spinning vCPU that it reaches. Report the result of each candidate by
 * kvm_stock_search_result() before asking for the next.
 */
pol_s32 kvm_stock_search_next(struct kvm_stock_search *search, struct kvm_stock_vcpu *vcpus);

/*
 * The result of yield_to() for the last candidate. Positive: it was boosted; the search is over and
 * *last_boosted is set. 0: it could not be boosted; continue. Negative: there was nothing to gain;
 * continue, at most three times. A two-pass search whose first pass ends on such a failure never
 * starts its second.
 */
void kvm_stock_search_result(struct kvm_stock_search *search, pol_u32 *last_boosted,
			     pol_s32 yielded);

/* Ends the search: the caller no longer spins, and is no candidate next time. */
void kvm_stock_search_deinit(struct kvm_stock_search *search, struct kvm_stock_vcpu *vcpus);

#endif
