/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parameters that inject failures for tests. A module built with UNSPIN_TEST=1 has them. In any
 * other module they are constants and leave no trace.
 */
#ifndef UNSPIN_TESTING_H
#define UNSPIN_TESTING_H

#include <linux/atomic.h>
#include <linux/moduleparam.h>
#include <linux/types.h>

#ifdef UNSPIN_TEST
/* A parameter of one file. type: bool or uint; mode: of /sys/module/unspin/parameters/NAME. */
#define UNSPIN_TEST_PARAM(type, name, mode, what) \
	static type name; \
	module_param(name, type, mode); \
	MODULE_PARM_DESC(name, "for tests: " what)

/* A parameter's value; 0 in modules without it. */
#define unspin_test_value(name) READ_ONCE(name)

/* Counts a parameter down. False if it is 0 already. Several CPUs may call it at once. */
#define unspin_test_take(name) unspin_test_count_down(&(name))
static inline bool unspin_test_count_down(uint *wanted)
{
	uint left = READ_ONCE(*wanted);

	return left && cmpxchg(wanted, left, left - 1) == left;
}

extern bool unspin_force_pause_intercept;	/* see window.c */
#else
#define UNSPIN_TEST_PARAM(type, name, mode, what) static const type name
#define unspin_test_value(name) 0u
#define unspin_test_take(name) false
#define unspin_force_pause_intercept false
#endif

#endif
