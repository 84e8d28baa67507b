/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Functions of a package's library, whose headers are not needed. */
#ifndef UNSPIN_LINUX_LIBRARY_H
#define UNSPIN_LINUX_LIBRARY_H

#include <dlfcn.h>

#include "units.h"

/* The library stays loaded; one that is loaded already is the same. */
static inline void *library_function(const char *path, const char *name)
{
	void *library = dlopen(path, RTLD_NOW);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function)
		units_refuse("%s", dlerror());
	return function;
}

#endif
