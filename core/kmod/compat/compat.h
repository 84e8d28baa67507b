/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels. Version numbers appear only here, and in Kbuild for the oldest kernel. What
 * headers show is tested there (feature tests of Kbuild, macros); prototypes.c checks the rest in the loaded KVM.
 */
#ifndef UNSPIN_COMPAT_H
#define UNSPIN_COMPAT_H

#include <linux/kconfig.h>
#include <linux/version.h>

#ifdef CONFIG_PREEMPT_RT
#error "unspin does not support PREEMPT_RT: its probes allocate and lock where such a kernel may not"
#endif
#if defined(CONFIG_CFI_CLANG) || defined(CONFIG_CFI)
#error "unspin does not support CFI kernels: its probes leave out arguments that indirect calls are checked for"
#endif
#ifdef CONFIG_LTO_CLANG
#error "unspin does not support kernels built with link-time optimization (LTO): functions of KVM that it looks up may be renamed or gone there"
#endif
#if !IS_MODULE(CONFIG_KVM)
#error "unspin needs KVM as a module (CONFIG_KVM=m): its functions and tracepoints are found through kvm.ko"
#endif

/* Series that the module's tests boot. On others it loads with a warning. */
#define COMPAT_SERIES_TESTED "6.1, 6.12 and 7.3"
#define COMPAT_SERIES(major, minor) \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(major, minor, 0) && \
	 LINUX_VERSION_CODE < KERNEL_VERSION(major, (minor) + 1, 0))
#define COMPAT_IS_TESTED (COMPAT_SERIES(6, 1) || COMPAT_SERIES(6, 12) || COMPAT_SERIES(7, 3))

#include "ftrace.h"
#include "hrtimer.h"
#include "kvm.h"

#endif
