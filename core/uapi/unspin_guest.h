/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a guest's kernel may tell the module: for how long its vCPUs should run together.
 *
 * ASMan (Weng, Liu, Yu, Li, HPDC 2011, section 3.3) uses a hypercall of Xen for this. Here it
 * is a number that KVM does not know: KVM refuses the call (-KVM_ENOSYS), and the module sees
 * it. So a guest may report under any KVM, with or without the module.
 *
 * RAX has the number, RBX UNSPIN_GUEST_LOW or UNSPIN_GUEST_HIGH, and RCX for how many
 * microseconds it is HIGH at most. The host ends it then, if the guest has not ended it by LOW.
 * The module for Linux guests sends LOW; the bench guest (lab/guest/report.h) sends only HIGH, with the
 * learner's estimate as the time.
 * The last report counts. Longer times are cut to the bound. Calls
 * must come from CPL 0; more than UNSPIN_GUEST_REPORTS_PER_S per VM are ignored.
 */
#ifndef UAPI_UNSPIN_GUEST_H
#define UAPI_UNSPIN_GUEST_H

#define UNSPIN_GUEST_HYPERCALL 0x554e5350	/* "UNSP" */

#define UNSPIN_GUEST_LOW 0
#define UNSPIN_GUEST_HIGH 1

#define UNSPIN_GUEST_HIGH_MAX_US 1000000
#define UNSPIN_GUEST_REPORTS_PER_S 1000

#endif
