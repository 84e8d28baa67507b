/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The type information (BTF) of a loaded module and of vmlinux.
 */
#ifndef UNSPIN_BTF_H
#define UNSPIN_BTF_H

#include <linux/types.h>

struct unspin_btf;

#define UNSPIN_BTF_STRUCT U32_MAX	/* a structure, of whatever size */
struct unspin_btf_want {
	const char *member;
	u32 size;		/* in bytes; 0: a pointer; UNSPIN_BTF_STRUCT */
	u32 offset;		/* found */
};

/* ERR_PTR if the information is missing or has unknown kinds, or without memory. May sleep. */
struct unspin_btf *unspin_btf_open(const char *module);
void unspin_btf_close(struct unspin_btf *btf);

/* Fills in the offsets of the wanted members of a structure. -ENOENT, -EINVAL. */
int unspin_btf_members(const struct unspin_btf *btf, const char *type, struct unspin_btf_want *want,
		       u32 count);

/* Size of a structure in bytes, or 0. */
u32 unspin_btf_size(const struct unspin_btf *btf, const char *type);

/* Whether a function, or a typedef of a function pointer, has that name. */
bool unspin_btf_knows(const struct unspin_btf *btf, const char *function);

/*
 * Whether a function, or the function a typedef points to, takes in place "at" (from 0)
 * a pointer to struct "type"; or, where type is NULL, a number of "size" bytes.
 */
bool unspin_btf_takes(const struct unspin_btf *btf, const char *function, u32 at, const char *type,
		      u32 size);

#endif
