/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Falls back to KVM's own behaviour in doubt. Counts this, and writes one line to the kernel's log.
 */
#ifndef UNSPIN_FAIL_OPEN_H
#define UNSPIN_FAIL_OPEN_H

#include "state.h"

extern atomic64_t unspin_fail_open_total;

/*
 * The VM has KVM's own window and selection until its mode is written again. NULL: no particular
 * VM. Any context. The caller must apply the VM's settings again.
 */
void unspin_fail_open(struct unspin_vm *vm, const char *why);

/* Counts and logs. The VM keeps its settings; only a part is left to KVM. Any context. */
void unspin_fail_open_part(struct unspin_vm *vm, const char *what);

#endif
