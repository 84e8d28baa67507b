/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a guest's kernel may tell the module: for how long its vCPUs should run together.
 *
 * ASMan (Weng, Liu, Yu, Li, HPDC 2011, section 3.3) has a hypercall of Xen's for that. Here
 * it is a number that KVM does not know: KVM refuses the call (-KVM_ENOSYS), and the module
 * hears it all the same. So a guest may report under any KVM, and needs not know who listens.
 *
 * In RAX the number, in RBX UNSPIN_GUEST_LOW or UNSPIN_GUEST_HIGH, in RCX for how many
 * microseconds it is HIGH. The last report counts. Longer than the bound is the bound. From
 * CPL 0 only; more than UNSPIN_GUEST_REPORTS_PER_S of a VM are ignored.
 */
#ifndef UAPI_UNSPIN_GUEST_H
#define UAPI_UNSPIN_GUEST_H

#define UNSPIN_GUEST_HYPERCALL 0x554e5350	/* "UNSP" */

#define UNSPIN_GUEST_LOW 0
#define UNSPIN_GUEST_HIGH 1

#define UNSPIN_GUEST_HIGH_MAX_US 1000000
#define UNSPIN_GUEST_REPORTS_PER_S 1000

#endif
