/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_HOLE_H
#define UNSPIN_HOLE_H

#include <linux/types.h>

/* This CPU decides which vCPU leaves it, and which is called. In an interrupt, no lock held. */
void unspin_hole_look(void);

/* Whether more vCPUs were parked on one CPU than a look covers, since this was last asked. */
bool unspin_hole_list_was_too_long(void);

#endif
