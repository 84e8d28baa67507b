/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels the module is built for, and nothing else:
 * Debian's 6.1 and 6.12. Every shim names the kernel it is for.
 */
#ifndef UNSPIN_COMPAT_H
#define UNSPIN_COMPAT_H

#include <linux/version.h>

#ifdef CONFIG_PREEMPT_RT
#error "unspin does not support PREEMPT_RT: its probes allocate and lock where such a kernel may not"
#endif

#include "ftrace.h"
#include "module.h"
#include "kvm.h"

#endif
