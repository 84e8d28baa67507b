// SPDX-License-Identifier: GPL-2.0-only
/* The policy, compiled unchanged; see policy/aple.h. */
#include "../policy/aple.c"
