// SPDX-License-Identifier: GPL-2.0-only
/* The policy as every other user compiles it. */
#include "../policy/vcrd.c"
