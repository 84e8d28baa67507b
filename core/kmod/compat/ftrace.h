/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_FTRACE_H
#define UNSPIN_COMPAT_FTRACE_H

#include <linux/ftrace.h>

/* The hook reads the first argument and may redirect, so it needs x86-64 and ftrace with arguments. */
#ifndef CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS
#error "unspin needs CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS (5.11 and later on x86-64)"
#endif

/* 6.1 has the setter under an older name, and no accessor for arguments. */
#ifdef ftrace_regs_get_argument
#define compat_ftrace_set_ip(fregs, address) ftrace_regs_set_instruction_pointer(fregs, address)
#define compat_ftrace_arg0(fregs) ftrace_regs_get_argument(fregs, 0)
#else
#define compat_ftrace_set_ip(fregs, address) ftrace_instruction_pointer_set(fregs, address)
#define compat_ftrace_arg0(fregs) ((fregs)->regs.di)
#endif

#endif
