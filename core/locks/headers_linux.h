/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel's headers that env_linux.h needs. The C library does not bring them along: musl-gcc searches musl's
 * folder only, and gcc -m32 does not search the folder of asm/ on a 64-bit Debian.
 */
#ifndef UNSPIN_LOCKS_HEADERS_LINUX_H
#define UNSPIN_LOCKS_HEADERS_LINUX_H

#ifdef __has_include
#if !__has_include(<linux/futex.h>)
#error "linux/futex.h is missing: install the kernel's headers (Debian: linux-libc-dev, Alpine: linux-headers); \
for Debian's musl-gcc add -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu"
#elif !__has_include(<asm/types.h>)
#error "asm/types.h is missing: it is one of the kernel's headers, in a folder of the processor; \
on Debian add -idirafter /usr/include/x86_64-linux-gnu"
#endif
#endif

#include <linux/futex.h>
#include <linux/posix_types.h>

#endif
