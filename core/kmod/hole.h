/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_HOLE_H
#define UNSPIN_HOLE_H

/* This CPU decides which vCPU leaves it, and which is called. In an interrupt, no lock held. */
void unspin_hole_look(void);

#endif
