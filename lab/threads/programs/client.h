/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The interface of the test programs to the lock under test. They are built once per lock, with
 * -DLOCK_HEADER="../NAME.h" -DLOCK(op)=unspin_NAME_##op, -DWITH_NODE for locks that take a node, and
 * -DSTART(v)=... for locks with counters: the first bytes of an idle lock whose counters are at v.
 */
#ifndef UNSPIN_LOCKS_TEST_CLIENT_H
#define UNSPIN_LOCKS_TEST_CLIENT_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef YIELDING
#define UNSPIN_LOCK_ENV_HEADER "yield_env.h"
#endif
#include LOCK_HEADER

#ifdef WITH_NODE
#define NODE , &node
#define DECLARE_NODE struct LOCK(node) node
#else
#define NODE
#define DECLARE_NODE struct no_node
#endif

/* Puts a free lock's counters at @value (its low bits). */
static inline void start_lock(struct LOCK(lock) *lock, unsigned int value)
{
#ifdef START
	unsigned int v = value & 0xffff;
	__typeof__(START(v)) word = START(v);

	memset(lock, 0, sizeof(*lock));
	memcpy(lock, &word, sizeof(word));
#else
	(void)value;
	memset(lock, 0, sizeof(*lock));
#endif
}

static inline unsigned long number(const char *text)
{
	return strtoul(text, NULL, 10);
}

#endif
