// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/module/unspin/: settings and counters, one value a file; docs/sysfs.md
 * is its reference. Nothing here dereferences a struct kvm or kvm_vcpu.
 */
#include <linux/sysfs.h>

#include "unspin.h"

#define WINDOW_CYCLES_MIN 16u
#define WINDOW_CYCLES_MAX (1u << 30)
#define EPOCH_PLE_EXITS_MAX (1u << 24)
#define EPOCH_MIN_US_MAX 1000000u

const char *const unspin_mode_names[UNSPIN_MODES] = { "off", "observe", "aple", "hvs", "apples" };

static const struct {
	const char *name;
	u32 flags;
} variants[] = {
	{ "hvs", HVS_QUORUM },
	{ "paper", 0 },
	{ "cpth-r", HVS_QUORUM | HVS_COUNTER_TIME_RESOURCE },
	{ "cpth-l", HVS_QUORUM | HVS_COUNTER_TIME_LOCK },
	{ "cch", HVS_QUORUM | HVS_COUNTER_CAUSALITY },
};

static struct kobject *default_kobj, *vms_kobj;

/* The VM of a directory below vms/; NULL for default/. */
static struct unspin_vm *vm_of(struct kobject *kobj)
{
	return kobj == default_kobj ? NULL : container_of(kobj, struct unspin_vm, kobj);
}

static struct unspin_settings *settings_of(struct kobject *kobj)
{
	struct unspin_vm *vm = vm_of(kobj);

	return vm ? &vm->set : &unspin_default;
}

/* --- settings: read --- */

static u32 number_get(const struct unspin_settings *set, enum unspin_field field)
{
	switch (field) {
	case UNSPIN_F_WINDOW_INIT:
		return set->aple.window_init_cycles;
	case UNSPIN_F_WINDOW_MIN:
		return set->aple.window_min_cycles;
	case UNSPIN_F_WINDOW_MAX:
		return set->aple.window_max_cycles;
	case UNSPIN_F_DELTA:
		return set->aple.delta_cycles;
	case UNSPIN_F_DELTA_MAX:
		return set->aple.delta_max_cycles;
	case UNSPIN_F_EPOCH_MIN:
		return set->aple.epoch_min_us;
	default:
		return set->aple.epoch_ple_exits;
	}
}

static const char *variant_name(u32 flags)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(variants); i++)
		if (variants[i].flags == flags)
			return variants[i].name;
	return "unknown";
}

/* --- settings: write; unspin_mutex held --- */

/*
 * One of the three bounds was written. One that would contradict it moves
 * along, so that the three may be written in any order.
 */
static void bounds_settle(struct aple_params *p, enum unspin_field field)
{
	switch (field) {
	case UNSPIN_F_WINDOW_INIT:
		p->window_min_cycles = min(p->window_min_cycles, p->window_init_cycles);
		p->window_max_cycles = max(p->window_max_cycles, p->window_init_cycles);
		break;
	case UNSPIN_F_WINDOW_MIN:
		p->window_max_cycles = max(p->window_max_cycles, p->window_min_cycles);
		p->window_init_cycles = max(p->window_init_cycles, p->window_min_cycles);
		break;
	default:
		p->window_min_cycles = min(p->window_min_cycles, p->window_max_cycles);
		p->window_init_cycles = min(p->window_init_cycles, p->window_max_cycles);
		break;
	}
	p->delta_cycles = min(p->delta_cycles, p->window_max_cycles);
	p->delta_max_cycles = min(p->delta_max_cycles, p->window_max_cycles);
}

static int number_set(struct unspin_settings *set, enum unspin_field field, u32 value)
{
	struct aple_params params = set->aple;

	switch (field) {
	case UNSPIN_F_WINDOW_INIT:
		params.window_init_cycles = value;
		bounds_settle(&params, field);
		break;
	case UNSPIN_F_WINDOW_MIN:
		params.window_min_cycles = value;
		bounds_settle(&params, field);
		break;
	case UNSPIN_F_WINDOW_MAX:
		params.window_max_cycles = value;
		bounds_settle(&params, field);
		break;
	case UNSPIN_F_DELTA:
		params.delta_cycles = value;
		break;
	case UNSPIN_F_DELTA_MAX:
		params.delta_max_cycles = value;
		break;
	case UNSPIN_F_EPOCH_MIN:
		params.epoch_min_us = value;
		break;
	default:
		params.epoch_ple_exits = value;
		break;
	}
	if (aple_params_check(&params))
		return -ERANGE;
	set->aple = params;
	return 0;
}

/* Settings of a VM, or of default/ and all VMs that follow it, have changed. */
static void settings_changed(struct unspin_vm *vm, enum unspin_field field)
{
	if (vm) {
		vm->own |= BIT(field);
		unspin_vm_apply(vm, field == UNSPIN_F_MODE);
	} else {
		unspin_vms_inherit(field);
	}
}

static ssize_t bad_value(struct kobject *kobj, const char *file, const char *buf, const char *allowed,
			 int err)
{
	pr_warn_ratelimited("%s/%s: '%.*s' is not allowed, must be %s\n", kobject_name(kobj), file,
			    (int)min_t(size_t, strcspn(buf, "\n"), 32), buf, allowed);
	return err;
}

static ssize_t number_store(struct kobject *kobj, const char *file, enum unspin_field field,
			    const char *buf, size_t len)
{
	struct unspin_vm *vm = vm_of(kobj);
	u32 low = 0, high = 0, value;
	char allowed[64];
	int err;

	mutex_lock(&unspin_mutex);
	switch (field) {
	case UNSPIN_F_DELTA:
	case UNSPIN_F_DELTA_MAX:
		high = settings_of(kobj)->aple.window_max_cycles;
		break;
	case UNSPIN_F_EPOCH:
		low = 1;
		high = EPOCH_PLE_EXITS_MAX;
		break;
	case UNSPIN_F_EPOCH_MIN:
		high = EPOCH_MIN_US_MAX;
		break;
	default:
		low = WINDOW_CYCLES_MIN;
		high = WINDOW_CYCLES_MAX;
		break;
	}
	err = kstrtou32(buf, 10, &value);
	if (!err && (value < low || value > high))
		err = -ERANGE;
	if (!err)
		err = number_set(settings_of(kobj), field, value);
	if (!err)
		settings_changed(vm, field);
	mutex_unlock(&unspin_mutex);
	if (!err)
		return len;
	snprintf(allowed, sizeof(allowed), "a decimal number from %u to %u", low, high);
	return bad_value(kobj, file, buf, allowed, err);
}

#define SETTING_ATTR(_name, _field)							\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%u\n", number_get(settings_of(kobj), _field));		\
}											\
static ssize_t _name##_store(struct kobject *kobj, struct kobj_attribute *attr,		\
			     const char *buf, size_t len)				\
{											\
	return number_store(kobj, #_name, _field, buf, len);				\
}											\
static struct kobj_attribute _name##_attr = __ATTR_RW(_name)

SETTING_ATTR(window_init_cycles, UNSPIN_F_WINDOW_INIT);
SETTING_ATTR(window_min_cycles, UNSPIN_F_WINDOW_MIN);
SETTING_ATTR(window_max_cycles, UNSPIN_F_WINDOW_MAX);
SETTING_ATTR(delta_cycles, UNSPIN_F_DELTA);
SETTING_ATTR(delta_max_cycles, UNSPIN_F_DELTA_MAX);
SETTING_ATTR(epoch_ple_exits, UNSPIN_F_EPOCH);
SETTING_ATTR(epoch_min_us, UNSPIN_F_EPOCH_MIN);

static ssize_t mode_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", unspin_mode_names[settings_of(kobj)->mode]);
}

static ssize_t mode_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t len)
{
	int mode = sysfs_match_string(unspin_mode_names, buf);
	struct unspin_settings *set = settings_of(kobj);
	struct unspin_vm *vm = vm_of(kobj);
	enum unspin_mode before;
	int err;

	if (mode < 0)
		return bad_value(kobj, "mode", buf, "off, observe, aple, hvs or apples", -EINVAL);
	mutex_lock(&unspin_mutex);
	before = set->mode;
	set->mode = mode;
	settings_changed(vm, UNSPIN_F_MODE);
	err = unspin_attach_update();
	if (err) {
		set->mode = before;
		settings_changed(vm, UNSPIN_F_MODE);
	}
	mutex_unlock(&unspin_mutex);
	return err ?: len;
}
static struct kobj_attribute mode_attr = __ATTR_RW(mode);

static ssize_t hvs_variant_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", variant_name(settings_of(kobj)->hvs_flags));
}

static ssize_t hvs_variant_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
				 size_t len)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(variants); i++) {
		if (!sysfs_streq(buf, variants[i].name))
			continue;
		mutex_lock(&unspin_mutex);
		settings_of(kobj)->hvs_flags = variants[i].flags;
		settings_changed(vm_of(kobj), UNSPIN_F_VARIANT);
		mutex_unlock(&unspin_mutex);
		return len;
	}
	return bad_value(kobj, "hvs_variant", buf, "hvs, paper, cpth-r, cpth-l or cch", -EINVAL);
}
static struct kobj_attribute hvs_variant_attr = __ATTR_RW(hvs_variant);

static struct attribute *setting_attrs[] = {
	&mode_attr.attr,
	&window_init_cycles_attr.attr,
	&window_min_cycles_attr.attr,
	&window_max_cycles_attr.attr,
	&delta_cycles_attr.attr,
	&delta_max_cycles_attr.attr,
	&epoch_ple_exits_attr.attr,
	&epoch_min_us_attr.attr,
	&hvs_variant_attr.attr,
	NULL,
};
static const struct attribute_group setting_group = { .attrs = setting_attrs };

/* --- counters of a VM, since its last reset --- */

static void totals_since_reset(struct unspin_vm *vm, struct unspin_totals *totals)
{
	struct unspin_totals base;
	u32 c;

	raw_spin_lock_irq(&vm->epoch_lock);
	unspin_totals_read(vm, totals);
	base = vm->reset_base;
	raw_spin_unlock_irq(&vm->epoch_lock);
	for (c = 0; c < UNSPIN_COUNTERS; c++)
		totals->count[c] -= base.count[c];
	totals->cpu_cycles -= min(totals->cpu_cycles, base.cpu_cycles);
}

static u64 counter_since_reset(struct kobject *kobj, enum unspin_counter counter)
{
	struct unspin_totals totals;

	totals_since_reset(vm_of(kobj), &totals);
	return totals.count[counter];
}

static u64 cpu_cycles_get(struct unspin_vm *vm)
{
	struct unspin_totals totals;

	totals_since_reset(vm, &totals);
	return totals.cpu_cycles;
}

/* Over all the time since reset: waste as section 3.1.3 defines it, summed before it is divided. */
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

	if (READ_ONCE(vm->window_on))
		return READ_ONCE(vm->window_cycles);
	rcu_read_lock();
	window = unspin_window_mean(vm);
	rcu_read_unlock();
	return window;
}

/* Root only: cycle counts of a VM tell what it does to whoever may read them. */
#define COUNTER_ATTR(_name, _counter)							\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%llu\n", counter_since_reset(kobj, _counter));		\
}											\
static struct kobj_attribute _name##_attr = __ATTR_RO_MODE(_name, 0400)

#define VALUE_ATTR(_name, _value)							\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	struct unspin_vm *vm = vm_of(kobj);						\
											\
	return sysfs_emit(buf, "%llu\n", (u64)(_value));				\
}											\
static struct kobj_attribute _name##_attr = __ATTR_RO_MODE(_name, 0400)

COUNTER_ATTR(ple_exits, UNSPIN_C_PLE_EXITS);
COUNTER_ATTR(wasteful_spin_cycles, UNSPIN_C_SPIN_CYCLES);
COUNTER_ATTR(wasteful_switch_cycles, UNSPIN_C_SWITCH_CYCLES);
COUNTER_ATTR(yields_resource_waiter, UNSPIN_C_YIELD_RESOURCE);
COUNTER_ATTR(yields_lock_waiter, UNSPIN_C_YIELD_LOCK);
COUNTER_ATTR(yields_yielded, UNSPIN_C_YIELD_YIELDED);
COUNTER_ATTR(yields_none, UNSPIN_C_YIELD_NONE);
COUNTER_ATTR(yields_gave_way, UNSPIN_C_GAVE_WAY);
COUNTER_ATTR(yields_failed, UNSPIN_C_YIELD_FAILED);
COUNTER_ATTR(picks_ran_next, UNSPIN_C_RAN_NEXT);
COUNTER_ATTR(hypercalls_kick, UNSPIN_C_HC_KICK);
COUNTER_ATTR(hypercalls_sched_yield, UNSPIN_C_HC_SCHED_YIELD);
VALUE_ATTR(cpu_cycles, cpu_cycles_get(vm));
VALUE_ATTR(inefficiency_last_ppm, READ_ONCE(vm->last_ppm));
VALUE_ATTR(inefficiency_avg_ppm, inefficiency_avg_get(vm));
VALUE_ATTR(window_cycles, window_get(vm));
VALUE_ATTR(epochs, READ_ONCE(vm->epochs));
VALUE_ATTR(rounds, READ_ONCE(vm->aple.rounds));
VALUE_ATTR(fail_open_events, atomic64_read(&vm->fail_open_events));

static ssize_t reset_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t len)
{
	struct unspin_vm *vm = vm_of(kobj);

	if (!sysfs_streq(buf, "1"))
		return bad_value(kobj, "reset", buf, "1", -EINVAL);
	mutex_lock(&unspin_mutex);
	unspin_vm_apply(vm, true);
	raw_spin_lock_irq(&vm->epoch_lock);
	unspin_totals_read(vm, &vm->reset_base);
	vm->epochs = 0;
	vm->last_ppm = 0;
	atomic64_set(&vm->fail_open_events, 0);
	raw_spin_unlock_irq(&vm->epoch_lock);
	mutex_unlock(&unspin_mutex);
	return len;
}
static struct kobj_attribute reset_attr = __ATTR_WO(reset);

static struct attribute *counter_attrs[] = {
	&ple_exits_attr.attr,
	&wasteful_spin_cycles_attr.attr,
	&wasteful_switch_cycles_attr.attr,
	&cpu_cycles_attr.attr,
	&inefficiency_last_ppm_attr.attr,
	&inefficiency_avg_ppm_attr.attr,
	&window_cycles_attr.attr,
	&epochs_attr.attr,
	&rounds_attr.attr,
	&yields_resource_waiter_attr.attr,
	&yields_lock_waiter_attr.attr,
	&yields_yielded_attr.attr,
	&yields_none_attr.attr,
	&yields_gave_way_attr.attr,
	&yields_failed_attr.attr,
	&picks_ran_next_attr.attr,
	&hypercalls_kick_attr.attr,
	&hypercalls_sched_yield_attr.attr,
	&fail_open_events_attr.attr,
	&reset_attr.attr,
	NULL,
};
static const struct attribute_group counter_group = { .attrs = counter_attrs };

static const struct attribute_group *vm_groups[] = { &setting_group, &counter_group, NULL };

static void vm_kobj_release(struct kobject *kobj)
{
	unspin_vm_release(container_of(kobj, struct unspin_vm, kobj));
}

const struct kobj_type unspin_vm_ktype = {
	.sysfs_ops = &kobj_sysfs_ops,
	.release = vm_kobj_release,
	.default_groups = vm_groups,
};

/* May sleep. The VM is linked. */
int unspin_sysfs_vm_add(struct unspin_vm *vm)
{
	int err = kobject_add(&vm->kobj, vms_kobj, "%d-%u", vm->pid, vm->number);

	if (err)
		unspin_fail_open(vm, "no directory for a VM");
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

static ssize_t fail_open_total_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", atomic64_read(&unspin_fail_open_total));
}
static struct kobj_attribute fail_open_total_attr = __ATTR_RO(fail_open_total);

static const struct attribute *const module_attrs[] = {
	&live_objects_attr.attr,
	&window_control_attr.attr,
	&fail_open_total_attr.attr,
	NULL,
};

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
