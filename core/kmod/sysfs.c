// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/module/unspin/: settings and counters, one value per file, generated from the lists of
 * uapi/unspin.h. docs/sysfs.md is their reference. Nothing here dereferences a struct kvm or
 * kvm_vcpu.
 */
#include <linux/module.h>
#include <linux/sysfs.h>

#include "epoch.h"
#include "fail_open.h"
#include "host_tasks.h"
#include "settings.h"
#include "sysfs.h"
#include "window.h"

static struct kobject *default_kobj, *vms_kobj;

/* The VM of a directory below vms/; NULL for default/. */
static struct unspin_vm *vm_of(struct kobject *kobj)
{
	return kobj == default_kobj ? NULL : container_of(kobj, struct unspin_vm, kobj);
}

static const struct unspin_settings *settings_of(struct kobject *kobj)
{
	return unspin_settings_of(vm_of(kobj));
}

static ssize_t bad_value(struct kobject *kobj, const char *file, const char *buf, const char *allowed,
			 int err)
{
	pr_warn_ratelimited("%s/%s: '%.*s' is not allowed, must be %s\n", kobject_name(kobj), file,
			    (int)min_t(size_t, strcspn(buf, "\n"), 32), buf, allowed);
	return err;
}

/* --- settings --- */

static ssize_t number_store(struct kobject *kobj, enum unspin_number number, const char *buf, size_t len)
{
	const struct unspin_number_info *info = &unspin_number_info[number];
	u32 value, most = info->most;
	char allowed[64];
	int err;

	err = kstrtou32(buf, 10, &value);
	if (!err) {
		mutex_lock(&unspin_mutex);
		err = unspin_settings_number(vm_of(kobj), number, value, &most);
		mutex_unlock(&unspin_mutex);
	}
	if (!err)
		return len;
	snprintf(allowed, sizeof(allowed), "a decimal number from %u to %u", info->least, most);
	return bad_value(kobj, info->file, buf, allowed, err);
}

#define NUMBER_ATTR(id, file, least, most, value, unit, meaning)				\
static ssize_t file##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%u\n", settings_of(kobj)->number[UNSPIN_N_##id]);	\
}											\
static ssize_t file##_store(struct kobject *kobj, struct kobj_attribute *attr,		\
			    const char *buf, size_t len)				\
{											\
	return number_store(kobj, UNSPIN_N_##id, buf, len);				\
}											\
static struct kobj_attribute file##_attr = __ATTR_RW(file);
UNSPIN_NUMBERS(NUMBER_ATTR)
#undef NUMBER_ATTR

#define WORD(id, name, ...) " " name
static ssize_t mode_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", unspin_mode_names[settings_of(kobj)->mode]);
}

static ssize_t mode_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t len)
{
	int mode = sysfs_match_string(unspin_mode_names, buf);
	int err;

	if (mode < 0)
		return bad_value(kobj, "mode", buf, "one of" UNSPIN_MODES(WORD), -EINVAL);
	mutex_lock(&unspin_mutex);
	err = unspin_settings_mode(vm_of(kobj), mode);
	mutex_unlock(&unspin_mutex);
	return err ?: len;
}
static struct kobj_attribute mode_attr = __ATTR_RW(mode);

static ssize_t hvs_variant_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", unspin_settings_variant_name(settings_of(kobj)->variant));
}

static ssize_t hvs_variant_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
				 size_t len)
{
	int variant = unspin_settings_variant_find(buf);

	if (variant < 0)
		return bad_value(kobj, "hvs_variant", buf, "one of" UNSPIN_VARIANTS(WORD), variant);
	mutex_lock(&unspin_mutex);
	unspin_settings_variant(vm_of(kobj), variant);
	mutex_unlock(&unspin_mutex);
	return len;
}
static struct kobj_attribute hvs_variant_attr = __ATTR_RW(hvs_variant);

static ssize_t coscheduling_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", unspin_coscheduling_names[settings_of(kobj)->coscheduling]);
}

static ssize_t coscheduling_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
				  size_t len)
{
	int coscheduling = sysfs_match_string(unspin_coscheduling_names, buf);
	int err;

	if (coscheduling < 0)
		return bad_value(kobj, "coscheduling", buf, "one of" UNSPIN_COSCHEDULINGS(WORD), -EINVAL);
	mutex_lock(&unspin_mutex);
	err = unspin_settings_coscheduling(vm_of(kobj), coscheduling);
	mutex_unlock(&unspin_mutex);
	return err ?: len;
}
static struct kobj_attribute coscheduling_attr = __ATTR_RW(coscheduling);
#undef WORD

#define NUMBER_ENTRY(id, file, ...) &file##_attr.attr,
static struct attribute *setting_attrs[] = {
	&mode_attr.attr, UNSPIN_NUMBERS(NUMBER_ENTRY) &hvs_variant_attr.attr, &coscheduling_attr.attr,
	NULL,
};
#undef NUMBER_ENTRY
static const struct attribute_group setting_group = { .attrs = setting_attrs };

/* --- counters of a VM since its last reset --- */

static void totals_since_reset(struct unspin_vm *vm, struct unspin_totals *totals)
{
	struct unspin_totals base;
	u32 c;

	raw_spin_lock(&vm->epoch_lock);
	unspin_totals_read(vm, totals);
	base = vm->reset_base;
	raw_spin_unlock(&vm->epoch_lock);
	for (c = 0; c < UNSPIN_COUNTERS_COUNT; c++)
		totals->count[c] -= base.count[c];
	totals->cpu_cycles -= min(totals->cpu_cycles, base.cpu_cycles);
}

static u64 counter_since_reset(struct kobject *kobj, enum unspin_counter counter)
{
	struct unspin_totals totals;

	totals_since_reset(vm_of(kobj), &totals);
	return totals.count[counter];
}

/* Over the time since the reset: the waste of section 3.1.3, summed up before it is divided. */
static u64 inefficiency_avg_get(struct unspin_vm *vm)
{
	struct unspin_totals totals;
	struct aple_epoch all;

	totals_since_reset(vm, &totals);
	all.ple_exits = totals.count[UNSPIN_C_PLE_EXITS];
	all.spin_cycles = totals.count[UNSPIN_C_SPIN_CYCLES];
	all.switch_cycles = totals.count[UNSPIN_C_SWITCH_CYCLES];
	all.cpu_cycles = totals.cpu_cycles;
	return aple_inefficiency_ppm(&all);
}

static u64 window_get(struct unspin_vm *vm)
{
	u32 window;

	/* A work item clears window_on later; report KVM's window already. */
	if (READ_ONCE(vm->window_on) && !READ_ONCE(unspin_window_refused))
		return READ_ONCE(vm->window_cycles);
	rcu_read_lock();
	window = unspin_window_mean(vm);
	rcu_read_unlock();
	return window;
}

#define REASON(id, reason) reason,

#define VALUE_NAME(id, file, kind, meaning) VALUE_##id,
enum value { UNSPIN_VALUES(VALUE_NAME) };
#undef VALUE_NAME

static u64 value_get(struct unspin_vm *vm, enum value value)
{
	struct unspin_totals totals;

	switch (value) {
	case VALUE_CPU_CYCLES:
		totals_since_reset(vm, &totals);
		return totals.cpu_cycles;
	case VALUE_INEFFICIENCY_LAST:
		return READ_ONCE(vm->last_ppm);
	case VALUE_INEFFICIENCY_AVG:
		return inefficiency_avg_get(vm);
	case VALUE_WINDOW:
		return window_get(vm);
	case VALUE_EPOCHS:
		return READ_ONCE(vm->epochs);
	case VALUE_ROUNDS:
		return READ_ONCE(vm->aple.rounds);
	case VALUE_VCRD:
		return READ_ONCE(vm->gang_wanted);
	case VALUE_TURNS:
		return READ_ONCE(vm->turns) - vm->turns_base;
	case VALUE_TURN_CYCLES:
		return READ_ONCE(vm->turn_cycles) - vm->turn_cycles_base;
	case VALUE_FAIL_OPEN:
		return atomic64_read(&vm->fail_open_events);
	}
	return 0;
}

/* For root only, because cycle counts reveal what a VM does. */
#define READ_ONLY_ATTR(file, value)							\
static ssize_t file##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%llu\n", (u64)(value));					\
}											\
static struct kobj_attribute file##_attr = __ATTR_RO_MODE(file, 0400);

#define COUNTER_ATTR(id, file, meaning) READ_ONLY_ATTR(file, counter_since_reset(kobj, UNSPIN_C_##id))
#define VALUE_ATTR(id, file, kind, meaning) READ_ONLY_ATTR(file, value_get(vm_of(kobj), VALUE_##id))
UNSPIN_COUNTERS(COUNTER_ATTR)
UNSPIN_VALUES(VALUE_ATTR)
#undef COUNTER_ATTR
#undef VALUE_ATTR

static ssize_t turns_refused_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	static const char *const reasons[] = { UNSPIN_REFUSALS(REASON) };
	const struct unspin_vm *vm = vm_of(kobj);
	enum unspin_refusal why = READ_ONCE(vm->refused);

	/* The planner may not run while no VM has turns. */
	if (why == UNSPIN_REFUSED_NONE && vm->set.coscheduling != UNSPIN_COSCHEDULING_NONE) {
		why = READ_ONCE(vm->refused_until_set);
		if (vm->fail_open)
			why = UNSPIN_REFUSED_LEFT_TO_KVM;
		else if (!READ_ONCE(vm->waits_for_turns))
			why = UNSPIN_REFUSED_NOT_WAITING;
	}
	return sysfs_emit(buf, "%s\n", reasons[why]);
}
static struct kobj_attribute turns_refused_attr = __ATTR_RO_MODE(turns_refused, 0400);

static ssize_t reset_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t len)
{
	struct unspin_vm *vm = vm_of(kobj);

	if (!sysfs_streq(buf, "1"))
		return bad_value(kobj, "reset", buf, "1", -EINVAL);
	mutex_lock(&unspin_mutex);
	unspin_settings_apply(vm, UNSPIN_APPLY_RESTART);
	raw_spin_lock(&vm->epoch_lock);
	unspin_totals_read(vm, &vm->reset_base);
	vm->epochs = 0;
	vm->last_ppm = 0;
	vm->turns_base = READ_ONCE(vm->turns);
	vm->turn_cycles_base = READ_ONCE(vm->turn_cycles);
	atomic64_set(&vm->fail_open_events, 0);
	raw_spin_unlock(&vm->epoch_lock);
	mutex_unlock(&unspin_mutex);
	return len;
}
static struct kobj_attribute reset_attr = __ATTR_WO(reset);

#define ENTRY(id, file, ...) &file##_attr.attr,
static struct attribute *counter_attrs[] = {
	UNSPIN_COUNTERS(ENTRY) UNSPIN_VALUES(ENTRY)
	&turns_refused_attr.attr, &reset_attr.attr, NULL,
};
static const struct attribute_group counter_group = { .attrs = counter_attrs };

const struct attribute_group *unspin_vm_groups[] = { &setting_group, &counter_group, NULL };

/* May sleep. The VM must be linked. */
int unspin_sysfs_vm_add(struct unspin_vm *vm)
{
	int err = kobject_add(&vm->kobj, vms_kobj, "%d-%u", vm->pid, vm->number);

	if (err)
		unspin_fail_open(vm, "its directory in sysfs cannot be made");
	return err;
}

/* --- the module's own values --- */

static ssize_t live_objects_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", atomic_read(&unspin_live_objects));
}
static struct kobj_attribute live_objects_attr = __ATTR_RO(live_objects);

static ssize_t window_control_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return unspin_window_describe(buf);
}
static struct kobj_attribute window_control_attr = __ATTR_RO(window_control);

static ssize_t turns_excluded_cpus_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return unspin_host_tasks_describe(buf);
}
static struct kobj_attribute turns_excluded_cpus_attr = __ATTR_RO(turns_excluded_cpus);

static ssize_t fail_open_total_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", atomic64_read(&unspin_fail_open_total));
}
static struct kobj_attribute fail_open_total_attr = __ATTR_RO(fail_open_total);

static const struct attribute *const module_attrs[] = { UNSPIN_MODULE_VALUES(ENTRY) NULL };
#undef ENTRY

int unspin_sysfs_init(void)
{
	struct kobject *module = &THIS_MODULE->mkobj.kobj;
	int err = -ENOMEM;

	default_kobj = kobject_create_and_add("default", module);
	vms_kobj = kobject_create_and_add("vms", module);
	if (!default_kobj || !vms_kobj)
		goto out;
	err = sysfs_create_group(default_kobj, &setting_group);
	if (err)
		goto out;
	err = sysfs_create_files(module, (const struct attribute **)module_attrs);
	if (err)
		goto out;
	return 0;
out:
	kobject_put(default_kobj);
	kobject_put(vms_kobj);
	return err;
}

/* Waits for readers and writers; VMs' directories are gone already. */
void unspin_sysfs_deinit(void)
{
	sysfs_remove_files(&THIS_MODULE->mkobj.kobj, (const struct attribute **)module_attrs);
	kobject_put(vms_kobj);
	kobject_put(default_kobj);
}
