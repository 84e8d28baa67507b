// SPDX-License-Identifier: GPL-2.0-only
/* The policy is compiled as it is. */
#include "../policy/gang_use.c"
