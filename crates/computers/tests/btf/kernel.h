/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kmod/btf.c takes of the kernel, in user space: its files are memory, its log is memory.
 * The system's linux/btf.h has the format.
 */
#ifndef UNSPIN_TEST_KERNEL_H
#define UNSPIN_TEST_KERNEL_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <linux/btf.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define U32_MAX UINT32_MAX
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define offsetofend(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define array_size(a, b) ((size_t)(a) * (b))
#define GFP_KERNEL 0
#define __GFP_NOWARN 0
#define __vmalloc(bytes, flags) malloc(bytes)
#define kzalloc(bytes, flags) calloc(1, bytes)
#define vfree free
#define kfree free

#define IS_ERR(p) ((uintptr_t)(p) >= (uintptr_t)-4095)
#define PTR_ERR(p) ((long)(p))
#define ERR_PTR(e) ((void *)(long)(e))
#define ERR_CAST(p) ((void *)(p))
#define PTR_ERR_OR_ZERO(p) (IS_ERR(p) ? (int)PTR_ERR(p) : 0)

/* The files: vmlinux's and the module's. */
struct file {
	const char *path;
	const void *data;
	size_t bytes;
};
extern struct file files[2];

static inline struct file *filp_open(const char *path, int flags, int mode)
{
	size_t i;

	(void)flags, (void)mode;
	for (i = 0; i < ARRAY_SIZE(files); i++)
		if (files[i].path && !strcmp(files[i].path, path))
			return &files[i];
	return ERR_PTR(-ENOENT);
}

#define O_RDONLY 0
#define filp_close(file, id) ((void)(file))
#define file_inode(file) (file)
#define i_size_read(file) ((loff_t)(file)->bytes)

/* A part at a time, as a file system may do it. */
static inline ssize_t kernel_read(struct file *file, void *to, size_t bytes, loff_t *at)
{
	size_t part = bytes > 100 ? bytes / 2 : bytes;

	memcpy(to, (const char *)file->data + *at, part);
	*at += part;
	return part;
}

extern char said[400];
static inline __attribute__((format(printf, 1, 2))) void pr_err_said(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
}
#define pr_err(format, ...) pr_err_said(pr_fmt(format), ##__VA_ARGS__)

#endif
