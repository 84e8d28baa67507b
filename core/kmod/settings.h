/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The settings of administrators, for all VMs (default/) and for one VM, and how they are applied.
 * unspin_mutex is held, unless a function says otherwise.
 */
#ifndef UNSPIN_SETTINGS_H
#define UNSPIN_SETTINGS_H

#include "state.h"

/* Name, bounds and so on, from uapi/unspin.h. */
struct unspin_number_info {
	const char *file;
	u32 least, most;
};
extern const struct unspin_number_info unspin_number_info[UNSPIN_NUMBERS_COUNT];
extern const char *const unspin_mode_names[UNSPIN_MODES_COUNT];
extern const char *const unspin_coscheduling_names[UNSPIN_COSCHEDULINGS_COUNT];

/* "modes_changed" attaches or detaches, as the modes need; 0 or an error. It is called with the mutex held. */
void unspin_settings_init(int (*modes_changed)(void));
/* Calls modes_changed() after a VM has ended. */
int unspin_settings_modes_changed(void);

/* "vm" NULL: the defaults. */
const struct unspin_settings *unspin_settings_of(const struct unspin_vm *vm);
/* Sets a number. -ERANGE: out of bounds; *most then has the upper one. */
int unspin_settings_number(struct unspin_vm *vm, enum unspin_number number, u32 value, u32 *most);
int unspin_settings_mode(struct unspin_vm *vm, enum unspin_mode mode);
void unspin_settings_variant(struct unspin_vm *vm, u32 variant);
int unspin_settings_coscheduling(struct unspin_vm *vm, enum unspin_coscheduling coscheduling);
/* The index of the variant with this name, or -EINVAL. */
int unspin_settings_variant_find(const char *name);
const char *unspin_settings_variant_name(u32 variant);

/* Gives a new VM, not yet linked, the defaults. No lock. */
void unspin_settings_new_vm(struct unspin_vm *vm);
/* Gives a VM the defaults again once it is linked, because they may have changed meanwhile. */
void unspin_settings_linked_vm(struct unspin_vm *vm);
enum unspin_apply {
	UNSPIN_APPLY_GO_ON,	/* APLE continues within the bounds, unless its initial window changed */
	UNSPIN_APPLY_RESTART,	/* APLE starts over at its initial window */
	UNSPIN_APPLY_MODE,	/* the same, and a VM that was left to KVM is taken back, because its mode was written */
};
/* Applies the VM's settings to its vCPUs. */
void unspin_settings_apply(struct unspin_vm *vm, enum unspin_apply apply);
/* Sets every VM and the default to off, so that vCPUs restore KVM's windows. */
void unspin_settings_all_off(void);
/* Whether any VM has a mode other than off, or a new one would. */
bool unspin_settings_any_active(void);
/* Checks a VM that has more vCPUs now. Any context. */
void unspin_settings_size_check(struct unspin_vm *vm);
/* Call when KVM's own window becomes known or unknown, or windows are refused. Takes the mutex. */
void unspin_settings_vendor(void);

#endif
