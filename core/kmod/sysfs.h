/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_SYSFS_H
#define UNSPIN_SYSFS_H

#include "state.h"

/* The files of a VM's directory. */
extern const struct attribute_group *unspin_vm_groups[];
int unspin_sysfs_init(void);
void unspin_sysfs_deinit(void);
/* Makes the VM's directory. May sleep. The VM must be linked. */
int unspin_sysfs_vm_add(struct unspin_vm *vm);

#endif
