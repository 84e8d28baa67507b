// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a member of a KVM structure lies, from the type information of the very
 * module that is loaded (/sys/kernel/btf/), not from headers that may differ.
 *
 * Format: Documentation/bpf/btf.rst. A module's BTF is split: its strings and
 * type numbers continue those of vmlinux. Every offset is checked before use.
 */
#include <linux/btf.h>
#include <linux/fs.h>
#include <linux/vmalloc.h>

#include "unspin.h"

struct blob {
	void *data;
	const u8 *types, *types_end;
	const char *strings;
	u32 strings_len;
};

struct types {
	struct blob base, own;
	u32 base_count;		/* types of the base; the module's first is base_count + 1 */
};

#define BLOB_SIZE_MAX (64u << 20)	/* vmlinux has 5 MB of it */

/* The whole file, to be freed with vfree(). */
static void *file_read(const char *path, size_t *size)
{
	struct file *file = filp_open(path, O_RDONLY, 0);
	void *data = ERR_PTR(-EIO);
	loff_t length, at = 0;
	ssize_t got;

	if (IS_ERR(file))
		return ERR_CAST(file);
	length = i_size_read(file_inode(file));
	if (length <= 0 || length > BLOB_SIZE_MAX)
		goto out;
	/* No memory is no window control, which is said: not worth the kernel's warning and stack. */
	data = __vmalloc(length, GFP_KERNEL | __GFP_NOWARN);
	if (!data) {
		data = ERR_PTR(-ENOMEM);
		goto out;
	}
	while (at < length) {
		got = kernel_read(file, data + at, length - at, &at);
		if (got <= 0) {
			vfree(data);
			data = ERR_PTR(got ?: -EIO);
			goto out;
		}
	}
	*size = length;
out:
	filp_close(file, NULL);
	return data;
}

static int blob_read(struct blob *blob, const char *name)
{
	const struct btf_header *header;
	char path[64];
	size_t size;

	snprintf(path, sizeof(path), "/sys/kernel/btf/%s", name);
	blob->data = file_read(path, &size);
	if (IS_ERR(blob->data))
		return PTR_ERR(blob->data);
	header = blob->data;
	if (size < sizeof(*header) || header->magic != BTF_MAGIC || header->hdr_len > size ||
	    header->hdr_len < sizeof(*header) ||
	    (u64)header->hdr_len + header->type_off + header->type_len > size ||
	    (u64)header->hdr_len + header->str_off + header->str_len > size || !header->str_len)
		goto bad;
	blob->types = blob->data + header->hdr_len + header->type_off;
	blob->types_end = blob->types + header->type_len;
	blob->strings = blob->data + header->hdr_len + header->str_off;
	blob->strings_len = header->str_len;
	if (blob->strings[blob->strings_len - 1])
		goto bad;
	return 0;
bad:
	vfree(blob->data);
	blob->data = NULL;
	return -EINVAL;
}

/* Bytes that follow struct btf_type, or -1 for a kind unknown here. */
static s64 tail_size(const struct btf_type *type)
{
	u32 vlen = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	case BTF_KIND_INT:
		return sizeof(u32);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return (s64)vlen * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return (s64)vlen * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
		return (s64)vlen * sizeof(struct btf_enum64);
	case BTF_KIND_FUNC_PROTO:
		return (s64)vlen * sizeof(struct btf_param);
	case BTF_KIND_VAR:
		return sizeof(struct btf_var);
	case BTF_KIND_DATASEC:
		return (s64)vlen * sizeof(struct btf_var_secinfo);
	case BTF_KIND_DECL_TAG:
		return sizeof(struct btf_decl_tag);
	default:
		return -1;
	}
}

/* The type after "at", NULL at the end or where the data is not understood. */
static const struct btf_type *type_next(const struct blob *blob, const struct btf_type *at)
{
	const u8 *next = at ? (const u8 *)(at + 1) + tail_size(at) : blob->types;
	const struct btf_type *type = (const struct btf_type *)next;
	s64 tail;

	if (next + sizeof(*type) > blob->types_end)
		return NULL;
	tail = tail_size(type);
	if (tail < 0 || next + sizeof(*type) + tail > blob->types_end)
		return NULL;
	return type;
}

static const struct btf_type *type_by_id(const struct types *types, u32 id)
{
	const struct blob *blob = id > types->base_count ? &types->own : &types->base;
	u32 at = id > types->base_count ? types->base_count + 1 : 1;
	const struct btf_type *type;

	for (type = type_next(blob, NULL); type; type = type_next(blob, type))
		if (at++ == id)
			return type;
	return NULL;
}

static const char *name_of(const struct types *types, u32 offset)
{
	if (offset < types->base.strings_len)
		return types->base.strings + offset;
	offset -= types->base.strings_len;
	return offset < types->own.strings_len ? types->own.strings + offset : "";
}

static bool type_has_size(const struct types *types, u32 id, u32 size)
{
	const struct btf_type *type = type_by_id(types, id);
	int depth;

	for (depth = 0; type && depth < 16; depth++) {
		switch (BTF_INFO_KIND(type->info)) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_CONST:
			type = type_by_id(types, type->type);
			continue;
		case BTF_KIND_INT:
			return size && type->size == size;
		case BTF_KIND_PTR:
			return size == 0;
		case BTF_KIND_STRUCT:
			return size == UNSPIN_BTF_STRUCT;
		default:
			return false;
		}
	}
	return false;
}

static int member_find(const struct types *types, const struct btf_type *type,
		       struct unspin_btf_want *want)
{
	const struct btf_member *member = (const struct btf_member *)(type + 1);
	u32 vlen = BTF_INFO_VLEN(type->info), i, bits;

	for (i = 0; i < vlen; i++, member++) {
		if (strcmp(name_of(types, member->name_off), want->member))
			continue;
		bits = BTF_INFO_KFLAG(type->info) ? BTF_MEMBER_BIT_OFFSET(member->offset) :
						    member->offset;
		if (bits % 8 || !type_has_size(types, member->type, want->size))
			return -EINVAL;
		want->offset = bits / 8;
		if (want->offset + (want->size == UNSPIN_BTF_STRUCT ? 1 : want->size ?: sizeof(void *)) >
		    type->size)
			return -EINVAL;
		return 0;
	}
	return -ENOENT;
}

/* Fills in the offsets of the wanted members of a structure the module defines. May sleep. */
int unspin_btf_members(const char *module, const char *name, struct unspin_btf_want *want, u32 count)
{
	const struct btf_type *type, *found = NULL;
	struct types types = {};
	u32 i;
	int err;

	err = blob_read(&types.base, "vmlinux");
	if (err)
		return err;
	err = blob_read(&types.own, module);
	if (err)
		goto out;
	for (type = type_next(&types.base, NULL); type; type = type_next(&types.base, type))
		types.base_count++;
	for (type = type_next(&types.own, NULL); type; type = type_next(&types.own, type)) {
		if (BTF_INFO_KIND(type->info) == BTF_KIND_STRUCT &&
		    !strcmp(name_of(&types, type->name_off), name)) {
			found = type;
			break;
		}
	}
	err = found ? 0 : -ENOENT;
	for (i = 0; i < count && !err; i++)
		err = member_find(&types, found, &want[i]);
	vfree(types.own.data);
out:
	vfree(types.base.data);
	return err;
}
