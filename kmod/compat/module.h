/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_COMPAT_MODULE_H
#define UNSPIN_COMPAT_MODULE_H

#include <linux/module.h>

struct compat_text {
	unsigned long start;
	unsigned long size;
};

/* Where a module's code lies. 6.1 (before 6.4) had one layout, later kernels have one a kind. */
static inline struct compat_text compat_module_text(const struct module *mod)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
	return (struct compat_text){ (unsigned long)mod->core_layout.base,
				     mod->core_layout.text_size };
#else
	return (struct compat_text){ (unsigned long)mod->mem[MOD_TEXT].base,
				     mod->mem[MOD_TEXT].size };
#endif
}

#endif
