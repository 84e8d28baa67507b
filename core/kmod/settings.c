// SPDX-License-Identifier: GPL-2.0-only
/*
 * Settings: how they are written, inherited and applied to vCPUs. Only this file changes what an
 * administrator has set.
 */
#include <linux/string.h>

#include "epoch.h"
#include "fail_open.h"
#include "settings.h"
#include "window.h"

#define NAME(id, name, meaning) name,
const char *const unspin_mode_names[UNSPIN_MODES_COUNT] = { UNSPIN_MODES(NAME) };
const char *const unspin_coscheduling_names[UNSPIN_COSCHEDULINGS_COUNT] = { UNSPIN_COSCHEDULINGS(NAME) };
#undef NAME

#define INFO(id, file, least, most, value, unit, meaning) { #file, least, most },
const struct unspin_number_info unspin_number_info[UNSPIN_NUMBERS_COUNT] = { UNSPIN_NUMBERS(INFO) };
#undef INFO

#define VARIANT(id, name, flags, meaning) { name, flags },
static const struct {
	const char *name;
	u32 flags;
} variants[] = { UNSPIN_VARIANTS(VARIANT) };
#undef VARIANT

#define VALUE(id, file, least, most, value, unit, meaning) value,
static struct unspin_settings defaults = { .number = { UNSPIN_NUMBERS(VALUE) } };
#undef VALUE
static unsigned long defaults_own;	/* bits as in unspin_vm.own: set by an administrator */

#define BOUNDS (BIT(UNSPIN_N_WINDOW_INIT) | BIT(UNSPIN_N_WINDOW_MIN) | BIT(UNSPIN_N_WINDOW_MAX))

static int (*modes_changed)(void);

void unspin_settings_init(int (*changed)(void))
{
	modes_changed = changed;
}

int unspin_settings_modes_changed(void)
{
	return modes_changed();
}

const struct unspin_settings *unspin_settings_of(const struct unspin_vm *vm)
{
	return vm ? &vm->set : &defaults;
}

int unspin_settings_variant_find(const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(variants); i++)
		if (sysfs_streq(name, variants[i].name))
			return i;
	return -EINVAL;
}

const char *unspin_settings_variant_name(u32 variant)
{
	return variant < ARRAY_SIZE(variants) ? variants[variant].name : NULL;
}

static struct aple_params params_of(const u32 *number)
{
	return (struct aple_params){
		.window_init_cycles = number[UNSPIN_N_WINDOW_INIT],
		.window_min_cycles = number[UNSPIN_N_WINDOW_MIN],
		.window_max_cycles = number[UNSPIN_N_WINDOW_MAX],
		.delta_cycles = number[UNSPIN_N_DELTA],
		.delta_max_cycles = number[UNSPIN_N_DELTA_MAX],
		.epoch_ple_exits = number[UNSPIN_N_EPOCH],
		.epoch_min_us = number[UNSPIN_N_EPOCH_MIN],
	};
}

/* --- applying --- */

/* A VM whose vCPUs cannot all be found keeps KVM's selection; this is logged once. */
void unspin_settings_size_check(struct unspin_vm *vm)
{
	if (!READ_ONCE(vm->select_on) || READ_ONCE(vm->nslots) <= vm->nslots_max || vm->told_large)
		return;
	vm->told_large = 1;
	unspin_fail_open_part(vm, "it keeps KVM's selection: no memory for more than 64 vCPUs, or it has more than 4096");
}

void unspin_settings_apply(struct unspin_vm *vm, enum unspin_apply apply)
{
	enum unspin_mode mode = vm->set.mode;
	bool window_on, restart;
	unsigned long flags;
	u32 window;

	raw_spin_lock_irqsave(&vm->epoch_lock, flags);
	if (apply == UNSPIN_APPLY_MODE) {
		vm->fail_open = 0;
		WRITE_ONCE(vm->refused_until_set, UNSPIN_REFUSED_NONE);
	}
	if ((vm->fail_open || vm->crowded) && mode != UNSPIN_OFF)
		mode = UNSPIN_OBSERVE;
	window_on = (mode == UNSPIN_APLE || mode == UNSPIN_APPLES) &&
		    READ_ONCE(unspin_window) && !READ_ONCE(unspin_window_refused);
	restart = apply != UNSPIN_APPLY_GO_ON || window_on != vm->window_on ||
		  vm->params.window_init_cycles != vm->set.number[UNSPIN_N_WINDOW_INIT];
	vm->params = params_of(vm->set.number);
	if (restart) {
		aple_init(&vm->aple, &vm->params);
		unspin_epoch_restart(vm);
	}
	window = pol_clamp_u32(vm->aple.window_cycles, vm->params.window_min_cycles,
			       vm->params.window_max_cycles);
	vm->aple.window_cycles = window;
	WRITE_ONCE(vm->window_cycles, window);
	WRITE_ONCE(vm->hvs_flags, variants[vm->set.variant].flags);
	WRITE_ONCE(vm->window_on, window_on);
	WRITE_ONCE(vm->select_on, mode == UNSPIN_HVS || mode == UNSPIN_APPLES);
	WRITE_ONCE(vm->active, mode != UNSPIN_OFF);
	WRITE_ONCE(vm->waits_for_turns, vm->set.number[UNSPIN_N_WAIT_FOR_TURNS] && !vm->fail_open);
	WRITE_ONCE(vm->gang_asked, vm->waits_for_turns && vm->set.mode != UNSPIN_OFF &&
				   vm->set.mode != UNSPIN_OBSERVE &&
				   vm->set.coscheduling != UNSPIN_COSCHEDULING_NONE);
	WRITE_ONCE(vm->hears_guest, vm->gang_asked && vm->set.coscheduling == UNSPIN_COSCHEDULING_VCRD);
	if (!vm->hears_guest)
		WRITE_ONCE(vm->high_until_tsc, 0);
	/* Other values of coscheduling: the planner of turns decides. */
	if (!vm->gang_asked)
		WRITE_ONCE(vm->gang_wanted, false);
	else if (vm->set.coscheduling == UNSPIN_COSCHEDULING_CON)
		WRITE_ONCE(vm->gang_wanted, true);
	unspin_epoch_batch(vm);
	raw_spin_unlock_irqrestore(&vm->epoch_lock, flags);

	unspin_settings_size_check(vm);
	unspin_vm_kick_slots(vm);
}

/* --- inheriting --- */

/* Limits the steps to the bounds, whichever of them the VM inherits. */
static void steps_fit(u32 *number)
{
	number[UNSPIN_N_DELTA] = min(number[UNSPIN_N_DELTA], number[UNSPIN_N_WINDOW_MAX]);
	number[UNSPIN_N_DELTA_MAX] = min(number[UNSPIN_N_DELTA_MAX], number[UNSPIN_N_WINDOW_MAX]);
}

static void numbers_inherit(struct unspin_vm *vm, unsigned long numbers)
{
	u32 n;

	/* The bounds make sense only together. */
	if (vm->own & BOUNDS)
		numbers &= ~BOUNDS;
	for (n = 0; n < UNSPIN_NUMBERS_COUNT; n++)
		if (numbers & ~vm->own & BIT(n))
			vm->set.number[n] = defaults.number[n];
	steps_fit(vm->set.number);
}

/* Passes new defaults on to VMs that have no value of their own. */
static void inherit(unsigned long what)
{
	struct unspin_vm *vm;

	if (what & BOUNDS)	/* writing one may have moved the others */
		what |= BOUNDS;
	/* VMs are freed by the workqueue after a grace period; apply does not sleep. */
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		if (!(what & ~vm->own))
			continue;
		if (what & ~vm->own & BIT(UNSPIN_OWN_MODE))
			vm->set.mode = defaults.mode;
		if (what & ~vm->own & BIT(UNSPIN_OWN_VARIANT))
			vm->set.variant = defaults.variant;
		if (what & ~vm->own & BIT(UNSPIN_OWN_COSCHEDULING))
			vm->set.coscheduling = defaults.coscheduling;
		numbers_inherit(vm, what);
		unspin_settings_apply(vm, what & BIT(UNSPIN_OWN_MODE) ? UNSPIN_APPLY_MODE :
							    UNSPIN_APPLY_GO_ON);
	}
	rcu_read_unlock();
}

/* Mode off in default/ applies to every VM, also to those with a mode of their own. */
static void modes_of_their_own_end(void)
{
	struct unspin_vm *vm;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		vm->own &= ~BIT(UNSPIN_OWN_MODE);
	rcu_read_unlock();
}

/* --- writing --- */

/* Whether writing this setting makes the module retry what it has refused. */
static bool is_asked_again(u32 bit)
{
	return bit == UNSPIN_OWN_MODE || bit == UNSPIN_OWN_COSCHEDULING || bit == UNSPIN_N_WAIT_FOR_TURNS;
}

/* Applies a change of a VM's settings, or of default/ and all VMs that inherit from it. */
static void changed(struct unspin_vm *vm, u32 bit)
{
	if (vm) {
		vm->own |= BIT(bit);
		unspin_settings_apply(vm, is_asked_again(bit) ? UNSPIN_APPLY_MODE : UNSPIN_APPLY_GO_ON);
	} else {
		defaults_own |= BIT(bit);
		inherit(BIT(bit));
	}
}

/*
 * Moves the other two bounds where they would contradict the one that was written, so that the three
 * may be written in any order.
 */
static void bounds_settle(u32 *number, enum unspin_number written)
{
	u32 *init = &number[UNSPIN_N_WINDOW_INIT], *least = &number[UNSPIN_N_WINDOW_MIN];
	u32 *most = &number[UNSPIN_N_WINDOW_MAX];

	if (written == UNSPIN_N_WINDOW_INIT) {
		*least = min(*least, *init);
		*most = max(*most, *init);
	} else if (written == UNSPIN_N_WINDOW_MIN) {
		*most = max(*most, *least);
		*init = max(*init, *least);
	} else {
		*least = min(*least, *most);
		*init = min(*init, *most);
	}
	steps_fit(number);
}

int unspin_settings_number(struct unspin_vm *vm, enum unspin_number n, u32 value, u32 *most)
{
	struct unspin_settings *set = vm ? &vm->set : &defaults;
	u32 number[UNSPIN_NUMBERS_COUNT];
	struct aple_params params;

	*most = unspin_number_info[n].most;
	if (n == UNSPIN_N_DELTA || n == UNSPIN_N_DELTA_MAX)
		*most = set->number[UNSPIN_N_WINDOW_MAX];
	if (value < unspin_number_info[n].least || value > *most)
		return -ERANGE;
	memcpy(number, set->number, sizeof(number));
	number[n] = value;
	if (BOUNDS & BIT(n))
		bounds_settle(number, n);
	params = params_of(number);
	if (aple_params_check(&params))
		return -ERANGE;
	memcpy(set->number, number, sizeof(number));
	changed(vm, n);
	return 0;
}

int unspin_settings_mode(struct unspin_vm *vm, enum unspin_mode mode)
{
	struct unspin_settings *set = vm ? &vm->set : &defaults;
	unsigned long *own = vm ? &vm->own : &defaults_own, own_before = *own;
	enum unspin_mode before = set->mode;
	int err;

	if (!vm && mode == UNSPIN_OFF)
		modes_of_their_own_end();
	set->mode = mode;
	changed(vm, UNSPIN_OWN_MODE);
	err = modes_changed();
	/* Mode off takes effect even if a hook cannot be released: the hook lets KVM's own code run. */
	if (err && mode != UNSPIN_OFF) {
		set->mode = before;
		changed(vm, UNSPIN_OWN_MODE);
		*own = own_before;
		modes_changed();	/* detaches what was attached before it failed */
	}
	return err;
}

void unspin_settings_variant(struct unspin_vm *vm, u32 variant)
{
	struct unspin_settings *set = vm ? &vm->set : &defaults;

	set->variant = variant;
	changed(vm, UNSPIN_OWN_VARIANT);
}

int unspin_settings_coscheduling(struct unspin_vm *vm, enum unspin_coscheduling coscheduling)
{
	struct unspin_settings *set = vm ? &vm->set : &defaults;
	enum unspin_coscheduling before = set->coscheduling;
	int err;

	set->coscheduling = coscheduling;
	changed(vm, UNSPIN_OWN_COSCHEDULING);
	err = modes_changed();
	if (err) {
		set->coscheduling = before;
		changed(vm, UNSPIN_OWN_COSCHEDULING);
	}
	return err;
}

/* --- new VMs and vendor modules --- */

void unspin_settings_new_vm(struct unspin_vm *vm)
{
	vm->set = defaults;
	unspin_settings_apply(vm, UNSPIN_APPLY_MODE);
}

void unspin_settings_linked_vm(struct unspin_vm *vm)
{
	if (vm->own || !memcmp(&vm->set, &defaults, sizeof(vm->set)))
		return;
	vm->set = defaults;
	unspin_settings_apply(vm, UNSPIN_APPLY_MODE);
	modes_changed();	/* it may have been the last VM with a mode other than off */
}

void unspin_settings_all_off(void)
{
	struct unspin_vm *vm;

	defaults.mode = UNSPIN_OFF;
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		vm->set.mode = UNSPIN_OFF;
		unspin_settings_apply(vm, UNSPIN_APPLY_MODE);
	}
	rcu_read_unlock();
}

bool unspin_settings_any_active(void)
{
	bool any = defaults.mode != UNSPIN_OFF;
	struct unspin_vm *vm;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		any |= READ_ONCE(vm->active);
	rcu_read_unlock();
	return any;
}

void unspin_settings_vendor(void)
{
	struct unspin_vm *vm;

	mutex_lock(&unspin_mutex);
	/* Window control is a property of the host, not of a VM. */
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		unspin_settings_apply(vm, UNSPIN_APPLY_GO_ON);
	rcu_read_unlock();
	mutex_unlock(&unspin_mutex);
}
