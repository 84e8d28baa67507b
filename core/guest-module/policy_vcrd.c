// SPDX-License-Identifier: GPL-2.0-only
/* The policy, compiled unchanged. */
#include "../policy/vcrd.c"
