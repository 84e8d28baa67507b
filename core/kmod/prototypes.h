/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether the KVM that is loaded is the one this module was built for.
 */
#ifndef UNSPIN_PROTOTYPES_H
#define UNSPIN_PROTOTYPES_H

/*
 * Compares what the module assumes of KVM's functions, tracepoints and structures with
 * KVM's own type information. 0, or an error after one line in the log that names the
 * first that differs. May sleep.
 */
int unspin_prototypes_check(void);

#endif
