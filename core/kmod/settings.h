/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What administrators set: for all VMs (default/) and for one, and how the VMs go by it.
 * unspin_mutex is held throughout, unless a function says otherwise.
 */
#ifndef UNSPIN_SETTINGS_H
#define UNSPIN_SETTINGS_H

#include "state.h"

struct unspin_window_ops;

/* Name, bounds and the like, as uapi/unspin.h has them. */
struct unspin_number_info {
	const char *file;
	u32 least, most;
};
extern const struct unspin_number_info unspin_number_info[UNSPIN_NUMBERS_COUNT];
extern const char *const unspin_mode_names[UNSPIN_MODES_COUNT];
extern const char *const unspin_coscheduling_names[UNSPIN_COSCHEDULINGS_COUNT];

/* "modes_changed" attaches or lets go as the modes want it; 0 or an error. Called with the mutex held. */
void unspin_settings_init(int (*modes_changed)(void));
/* All VMs' modes after one of them ended: see modes_changed. */
int unspin_settings_modes_changed(void);

/* "vm" NULL: the defaults. */
const struct unspin_settings *unspin_settings_of(const struct unspin_vm *vm);
/* -ERANGE: out of bounds, which are then in *most (and the file's least). */
int unspin_settings_number(struct unspin_vm *vm, enum unspin_number number, u32 value, u32 *most);
int unspin_settings_mode(struct unspin_vm *vm, enum unspin_mode mode);
void unspin_settings_variant(struct unspin_vm *vm, u32 variant);
int unspin_settings_coscheduling(struct unspin_vm *vm, enum unspin_coscheduling coscheduling);
/* Index of a variant by its name, or -EINVAL. */
int unspin_settings_variant_find(const char *name);
const char *unspin_settings_variant_name(u32 variant);

/* A new VM, not yet linked, takes the defaults. No lock. */
void unspin_settings_new_vm(struct unspin_vm *vm);
/* The defaults may have changed between the VM's making and its linking. */
void unspin_settings_linked_vm(struct unspin_vm *vm);
enum unspin_apply {
	UNSPIN_APPLY_GO_ON,	/* APLE goes on within the bounds, unless its initial window changed */
	UNSPIN_APPLY_RESTART,	/* it starts over at its initial window */
	UNSPIN_APPLY_MODE,	/* the same, and a VM left to KVM is taken back: its mode was written */
};
/* Makes the VM's settings what its vCPUs go by. */
void unspin_settings_apply(struct unspin_vm *vm, enum unspin_apply apply);
/* Every VM and the default to off, so that vCPUs give our windows back. */
void unspin_settings_all_off(void);
/* Whether any VM is in a mode other than off, or any to come would be. */
bool unspin_settings_any_active(void);
/* A VM's vCPUs have become more. Any context. */
void unspin_settings_size_check(struct unspin_vm *vm);
/* KVM's own window is now known, or no longer, or windows are refused. Takes the mutex. */
void unspin_settings_vendor(const struct unspin_window_ops *ops);

#endif
