// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the kernel's type information (/sys/kernel/btf/) of the module that is loaded. Format:
 * Documentation/bpf/btf.rst. The BTF of a module is split: its strings and type numbers
 * continue those of vmlinux. Every offset is checked before use.
 */
#include <linux/btf.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "btf.h"

#undef pr_fmt
#define pr_fmt(fmt) "unspin: " fmt

/* As struct btf_layout of 7.1 and later: how long a type of each kind is. */
struct layout {
	u8 info_bytes;		/* once, behind struct btf_type */
	u8 elem_bytes;		/* vlen times behind that */
	u16 flags;
};

struct blob {
	void *data;
	const u8 *types, *types_end;
	const struct layout *layout;
	u32 layouts;		/* kinds that it knows; 0: none */
	u32 first;		/* number of the first type */
	const char *strings;
	u32 strings_len;
	u32 *at;		/* offset of each type, from "types" */
	u32 count;
};

struct unspin_btf {
	struct blob base, own;	/* the first of "own" is number base.count + 1 */
};
#define HEADER_BYTES offsetofend(struct btf_header, str_len)
#define BLOB_SIZE_MAX (64u << 20)	/* vmlinux has 5 MB */

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
	/* A failure is logged as missing window control, so the allocator need not warn. */
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

/* Finds the layout of kinds, which two fields of later headers point to. */
static void layout_find(struct blob *blob, size_t size)
{
	const struct btf_header *header = blob->data;
	const u32 *found = blob->data + HEADER_BYTES;

	if (header->hdr_len < HEADER_BYTES + 2 * sizeof(u32) ||
	    (u64)header->hdr_len + found[0] + found[1] > size)
		return;
	blob->layout = blob->data + header->hdr_len + found[0];
	blob->layouts = found[1] / sizeof(*blob->layout);
}

static int blob_read(struct blob *blob, const char *name)
{
	const struct btf_header *header;
	char path[64];
	size_t size;
	int err;

	snprintf(path, sizeof(path), "/sys/kernel/btf/%s", name);
	blob->data = file_read(path, &size);
	err = PTR_ERR_OR_ZERO(blob->data);
	if (err) {
		blob->data = NULL;
		return err;
	}
	header = blob->data;
	/* The headers of later kernels declare fields that their BTF may lack. */
	if (size < HEADER_BYTES || header->magic != BTF_MAGIC || header->hdr_len > size ||
	    header->hdr_len < HEADER_BYTES ||
	    (u64)header->hdr_len + header->type_off + header->type_len > size ||
	    (u64)header->hdr_len + header->str_off + header->str_len > size || !header->str_len ||
	    (header->hdr_len + header->type_off) % sizeof(u32))
		goto bad;
	blob->types = blob->data + header->hdr_len + header->type_off;
	blob->types_end = blob->types + header->type_len;
	blob->strings = blob->data + header->hdr_len + header->str_off;
	blob->strings_len = header->str_len;
	if (blob->strings[blob->strings_len - 1])
		goto bad;
	layout_find(blob, size);
	return 0;
bad:
	vfree(blob->data);
	blob->data = NULL;
	return -EINVAL;
}

/* Bytes that follow struct btf_type of a kind unknown to this module, if the data tells. */
static s64 tail_size_laid_out(const struct blob *blob, u32 kind, u32 vlen)
{
	if (kind >= blob->layouts)
		return -EOPNOTSUPP;
	return blob->layout[kind].info_bytes + (s64)vlen * blob->layout[kind].elem_bytes;
}

/* Bytes that follow struct btf_type, or -EOPNOTSUPP. */
static s64 tail_size(const struct blob *blob, const struct btf_type *type)
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
		return tail_size_laid_out(blob, BTF_INFO_KIND(type->info), vlen);
	}
}

/* Bytes of a type and all that follows it. -ENODATA: cut off. -EOPNOTSUPP: of an unknown kind. */
static s64 type_size(const struct blob *blob, const u8 *at)
{
	const struct btf_type *type = (const struct btf_type *)at;
	s64 left = blob->types_end - at - (s64)sizeof(*type), tail;

	if (left < 0)
		return -ENODATA;
	tail = tail_size(blob, type);
	if (tail < 0)
		return tail;
	return tail > left ? -ENODATA : (s64)sizeof(*type) + tail;
}

/* Refuses all types: behind an unknown one, the numbers of all others are unknown. */
static int types_refuse(const struct blob *blob, const char *name, const u8 *at, s64 err)
{
	u32 number = blob->first + blob->count;

	if (err == -EOPNOTSUPP)
		pr_err("the type information of %s cannot be used: type %u has the unknown kind %u\n",
		       name, number, BTF_INFO_KIND(((const struct btf_type *)at)->info));
	else
		pr_err("the type information of %s cannot be used: it ends inside type %u\n", name,
		       number);
	return -EINVAL;
}

/* Notes where each type begins, so that a type is found by its number in one step. */
static int blob_index(struct blob *blob, const char *name)
{
	const u8 *at;
	u32 n = 0;
	s64 size;

	for (at = blob->types; at < blob->types_end; at += size) {
		size = type_size(blob, at);
		if (size < 0)
			return types_refuse(blob, name, at, size);
		blob->count++;
	}
	blob->at = __vmalloc(array_size(max(blob->count, 1u), sizeof(*blob->at)),
			     GFP_KERNEL | __GFP_NOWARN);
	if (!blob->at)
		return -ENOMEM;
	for (at = blob->types; n < blob->count; at += type_size(blob, at))
		blob->at[n++] = at - blob->types;
	return 0;
}

static const struct btf_type *type_by_id(const struct unspin_btf *btf, u32 id)
{
	const struct blob *blob = &btf->base;

	if (!id)
		return NULL;	/* void */
	id--;
	if (id >= btf->base.count) {
		blob = &btf->own;
		id -= btf->base.count;
	}
	return id < blob->count ? (const struct btf_type *)(blob->types + blob->at[id]) : NULL;
}

static const char *name_of(const struct unspin_btf *btf, u32 offset)
{
	if (offset < btf->base.strings_len)
		return btf->base.strings + offset;
	offset -= btf->base.strings_len;
	return offset < btf->own.strings_len ? btf->own.strings + offset : "";
}

/* Skips typedefs and qualifiers; NULL for void and for unknown kinds. */
static const struct btf_type *type_bare(const struct unspin_btf *btf, u32 id)
{
	const struct btf_type *type = type_by_id(btf, id);
	int depth;

	for (depth = 0; type && depth < 16; depth++) {
		switch (BTF_INFO_KIND(type->info)) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_CONST:
		case BTF_KIND_RESTRICT:
		case BTF_KIND_TYPE_TAG:
			type = type_by_id(btf, type->type);
			continue;
		default:
			return type;
		}
	}
	return NULL;
}

static bool type_has_size(const struct unspin_btf *btf, u32 id, u32 size)
{
	const struct btf_type *type = type_bare(btf, id);

	if (!type)
		return false;
	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		return size && type->size == size;
	case BTF_KIND_PTR:
		return size == 0;
	case BTF_KIND_STRUCT:
		return size == UNSPIN_BTF_STRUCT;
	default:
		return false;
	}
}

/* Looks at the module's own types first: the module was compiled with these. */
static const struct btf_type *type_named(const struct unspin_btf *btf, u32 kind, const char *name)
{
	const struct blob *const blobs[] = { &btf->own, &btf->base };
	const struct btf_type *type;
	u32 b, n;

	for (b = 0; b < ARRAY_SIZE(blobs); b++) {
		for (n = 0; n < blobs[b]->count; n++) {
			type = (const struct btf_type *)(blobs[b]->types + blobs[b]->at[n]);
			if (BTF_INFO_KIND(type->info) == kind &&
			    !strcmp(name_of(btf, type->name_off), name))
				return type;
		}
	}
	return NULL;
}

static int member_find(const struct unspin_btf *btf, const struct btf_type *type,
		       struct unspin_btf_want *want)
{
	const struct btf_member *member = (const struct btf_member *)(type + 1);
	u32 vlen = BTF_INFO_VLEN(type->info), i, bits;

	for (i = 0; i < vlen; i++, member++) {
		if (strcmp(name_of(btf, member->name_off), want->member))
			continue;
		bits = BTF_INFO_KFLAG(type->info) ? BTF_MEMBER_BIT_OFFSET(member->offset) :
						    member->offset;
		if (bits % 8 || !type_has_size(btf, member->type, want->size))
			return -EINVAL;
		want->offset = bits / 8;
		if (want->offset + (want->size == UNSPIN_BTF_STRUCT ? 1 : want->size ?: sizeof(void *)) >
		    type->size)
			return -EINVAL;
		return 0;
	}
	return -ENOENT;
}

int unspin_btf_members(const struct unspin_btf *btf, const char *name, struct unspin_btf_want *want,
		       u32 count)
{
	const struct btf_type *type = type_named(btf, BTF_KIND_STRUCT, name);
	int err = type ? 0 : -ENOENT;
	u32 i;

	for (i = 0; i < count && !err; i++)
		err = member_find(btf, type, &want[i]);
	return err;
}

u32 unspin_btf_size(const struct unspin_btf *btf, const char *name)
{
	const struct btf_type *type = type_named(btf, BTF_KIND_STRUCT, name);

	return type ? type->size : 0;
}

/* The prototype of a function, or of the function that a typedef's pointer is for. */
static const struct btf_type *prototype_of(const struct unspin_btf *btf, const char *name)
{
	const struct btf_type *type = type_named(btf, BTF_KIND_FUNC, name);

	if (type)
		type = type_by_id(btf, type->type);
	else if ((type = type_named(btf, BTF_KIND_TYPEDEF, name))) {
		type = type_bare(btf, type->type);
		if (!type || BTF_INFO_KIND(type->info) != BTF_KIND_PTR)
			return NULL;
		type = type_by_id(btf, type->type);
	}
	return type && BTF_INFO_KIND(type->info) == BTF_KIND_FUNC_PROTO ? type : NULL;
}

bool unspin_btf_knows(const struct unspin_btf *btf, const char *function)
{
	return prototype_of(btf, function);
}

bool unspin_btf_takes(const struct unspin_btf *btf, const char *function, u32 at, const char *type,
		      u32 size)
{
	const struct btf_type *found = prototype_of(btf, function);
	const struct btf_param *params;

	if (!found || at >= BTF_INFO_VLEN(found->info))
		return false;
	params = (const struct btf_param *)(found + 1);
	if (!type)
		return type_has_size(btf, params[at].type, size);
	found = type_bare(btf, params[at].type);
	if (!found || BTF_INFO_KIND(found->info) != BTF_KIND_PTR)
		return false;
	found = type_bare(btf, found->type);
	return found &&
	       (BTF_INFO_KIND(found->info) == BTF_KIND_STRUCT ||
		BTF_INFO_KIND(found->info) == BTF_KIND_FWD) &&
	       !strcmp(name_of(btf, found->name_off), type);
}

struct unspin_btf *unspin_btf_open(const char *module)
{
	struct unspin_btf *btf = kzalloc(sizeof(*btf), GFP_KERNEL | __GFP_NOWARN);
	int err;

	if (!btf)
		return ERR_PTR(-ENOMEM);
	btf->base.first = 1;	/* 0 is void */
	err = blob_read(&btf->base, "vmlinux") ?: blob_index(&btf->base, "vmlinux") ?:
	      blob_read(&btf->own, module);
	if (!err) {
		btf->own.first = btf->base.first + btf->base.count;
		if (!btf->own.layouts) {	/* a module uses the kinds of its kernel */
			btf->own.layout = btf->base.layout;
			btf->own.layouts = btf->base.layouts;
		}
		err = blob_index(&btf->own, module);
	}
	if (!err)
		return btf;
	unspin_btf_close(btf);
	return ERR_PTR(err);
}

void unspin_btf_close(struct unspin_btf *btf)
{
	vfree(btf->base.at);
	vfree(btf->base.data);
	vfree(btf->own.at);
	vfree(btf->own.data);
	kfree(btf);
}
