/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Something is not as it must be: KVM's own behaviour takes over, with a count and one
 * line in the kernel's log.
 */
#ifndef UNSPIN_FAIL_OPEN_H
#define UNSPIN_FAIL_OPEN_H

#include "state.h"

extern atomic64_t unspin_fail_open_total;

/*
 * The VM goes by KVM's own window and selection until its mode is written again; NULL:
 * no VM in particular. Any context. Who calls it applies the VM's settings anew.
 */
void unspin_fail_open(struct unspin_vm *vm, const char *why);

/* Counts and logs, but the VM keeps its settings: only a part is left to KVM. Any context. */
void unspin_fail_open_part(struct unspin_vm *vm, const char *what);

#endif
