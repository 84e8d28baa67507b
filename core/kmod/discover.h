/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_DISCOVER_H
#define UNSPIN_DISCOVER_H

/*
 * VMs made before the module came: through the processes that hold them open.
 * A VM whose descriptor was closed is found at its first entry while a mode is on.
 * However many there are, nothing is held for longer than a piece of one process'
 * descriptors takes. May sleep.
 */
void unspin_discover(void);

#endif
