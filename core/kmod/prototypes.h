/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks that the loaded KVM is the one this module was built for.
 */
#ifndef UNSPIN_PROTOTYPES_H
#define UNSPIN_PROTOTYPES_H

/*
 * Compares what the module assumes of KVM's functions, tracepoints and structures with
 * KVM's own type information. 0, or an error, with one line in the log that names the
 * first difference. May sleep.
 */
int unspin_prototypes_check(void);

#endif
