/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Rules that a test program checks. It prints those that are broken, and ends with `failures != 0`. */
#include <stdbool.h>
#include <stdio.h>

static int failures;

static void expect(bool is, const char *what)
{
	if (is)
		return;
	printf("%s\n", what);
	failures++;
}
