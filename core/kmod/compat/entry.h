/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_ENTRY_H
#define UNSPIN_COMPAT_ENTRY_H

#include <linux/kvm_host.h>

/* The header was renamed in 6.18. */
#if __has_include(<linux/entry-virt.h>)
#include <linux/entry-virt.h>
#else
#include <linux/entry-kvm.h>
#endif

/*
 * Called by its name, because the address that was looked up lies behind its ENDBR64. It takes the
 * vCPU up to 6.17, and nothing from 6.18 on.
 */
static inline int compat_handle_work(struct kvm_vcpu *vcpu)
{
#ifdef UNSPIN_HAVE_HANDLE_WORK_OF_VCPU
	return xfer_to_guest_mode_handle_work(vcpu);
#else
	return xfer_to_guest_mode_handle_work();
#endif
}

#endif
