// SPDX-License-Identifier: GPL-2.0-only
/* The policy as every other user of it compiles it; see policy/hvs.h. */
#include "../policy/hvs.c"
