/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_NUMBERS_H
#define UNSPIN_NUMBERS_H

#include "state.h"

/* For a process that makes a VM. Free it with kfree() if the VM never begins. NULL: no memory. */
struct unspin_maker *unspin_maker_alloc(pid_t pid, gfp_t gfp);

/* The number of a VM that begins. Frees its maker if the process has one already. unspin_lock held. */
u32 unspin_number_take(struct unspin_vm *vm);
/* Gives back the number of a VM that ends. unspin_lock held. */
void unspin_number_put(struct unspin_vm *vm);
/* Frees all; no VM may be left. */
void unspin_numbers_end(void);

#endif
