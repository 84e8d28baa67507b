/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels the module is built for, and nothing else:
 * Debian's 6.1 and 6.12. Every shim names the kernel it is for.
 */
#ifndef UNSPIN_COMPAT_H
#define UNSPIN_COMPAT_H

#include <linux/version.h>

#include "ftrace.h"
#include "module.h"
#include "kvm.h"

#endif
