/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_NUMBERS_H
#define UNSPIN_NUMBERS_H

#include "state.h"

/* A process that makes a VM; freed with kfree() where the VM never begins. NULL: no memory. */
struct unspin_maker *unspin_maker_alloc(pid_t pid, gfp_t gfp);

/* A VM begins: its number. The maker it brings goes where its process is known already. unspin_lock held. */
u32 unspin_number_take(struct unspin_vm *vm);
/* It ends. unspin_lock held. */
void unspin_number_put(struct unspin_vm *vm);
/* No VM is left. */
void unspin_numbers_end(void);

#endif
