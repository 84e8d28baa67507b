/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Names of the fixed-width integers. */
#ifndef UNSPIN_GUEST_TYPES_H
#define UNSPIN_GUEST_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#endif
