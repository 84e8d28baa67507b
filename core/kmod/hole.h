/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_HOLE_H
#define UNSPIN_HOLE_H

/* This CPU looks who goes, and who is called to it. In an interrupt, no lock held. */
void unspin_hole_look(void);

#endif
