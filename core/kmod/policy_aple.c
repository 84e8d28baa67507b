// SPDX-License-Identifier: GPL-2.0-only
/* The policy as every other user of it compiles it; see policy/aple.h. */
#include "../policy/aple.c"
