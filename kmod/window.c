// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether windows can be controlled here, and by which vendor's way.
 *
 * Nothing in kvm_intel or kvm_amd is pointed to: they may be reloaded under the
 * module. What was learnt of one is dropped when it goes (no VM exists then) and
 * learnt again when one comes.
 */
#include <linux/sysfs.h>

#include "unspin.h"

const struct unspin_window_ops *unspin_window;
bool unspin_window_refused;	/* no new windows; those set are still put back */
u32 unspin_window_default_cycles;
static const char *unspin_window_none = "no KVM vendor module loaded";

/* Own module or vendor module under "name", with a reference to its kobject. */
static struct module_kobject *module_kobject_get(const char *name)
{
	struct kobject *kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);

	return kobj ? container_of(kobj, struct module_kobject, kobj) : NULL;
}

static DEFINE_MUTEX(window_probing);

static void window_probe(struct module *vendor, bool vmx)
{
	const struct unspin_window_ops *ops;
	const char *why = "unknown reason";

	mutex_lock(&window_probing);
	ops = vmx ? unspin_window_vmx_init(vendor, &why) : unspin_window_svm_init(vendor, &why);
	unspin_window_none = ops ? NULL : why;
	unspin_window_refused = false;
	WRITE_ONCE(unspin_window_default_cycles, ops ? ops->default_cycles : 0);
	WRITE_ONCE(unspin_window, ops);
	if (ops)
		pr_info("window control: %s, KVM starts from %u cycles\n", ops->name, ops->default_cycles);
	else
		pr_notice("no window control: %s; modes aple and apples keep KVM's window\n", why);
	mutex_unlock(&window_probing);
}

/* A check against the processor failed: the layout is not what was thought. Any context. */
void unspin_window_refuse(const char *why)
{
	unspin_window_none = why;
	WRITE_ONCE(unspin_window_refused, true);
	unspin_fail_open(NULL, why);
}

static int vendor_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *mod = data;
	bool vmx = !strcmp(mod->name, "kvm_intel");

	if (!vmx && strcmp(mod->name, "kvm_amd"))
		return NOTIFY_DONE;
	switch (state) {
	case MODULE_STATE_LIVE:
		window_probe(mod, vmx);
		break;
	case MODULE_STATE_GOING:
		WRITE_ONCE(unspin_window, NULL);
		unspin_window_none = "no KVM vendor module loaded";
		synchronize_rcu();	/* probes that read the pointer */
		break;
	}
	return NOTIFY_OK;
}

static struct notifier_block vendor_nb = { .notifier_call = vendor_notify };

/* May sleep. Finding no way to control windows is not an error. */
int unspin_window_init(void)
{
	static const char *const vendors[] = { "kvm_intel", "kvm_amd" };
	struct module_kobject *mk;
	u32 i;
	int err;

	/* First, so that none is missed; one that comes at this very moment is looked at twice. */
	err = register_module_notifier(&vendor_nb);
	if (err)
		return err;
	for (i = 0; i < ARRAY_SIZE(vendors); i++) {
		mk = module_kobject_get(vendors[i]);
		if (!mk)
			continue;
		if (mk->mod && try_module_get(mk->mod)) {
			window_probe(mk->mod, i == 0);
			module_put(mk->mod);
		}
		kobject_put(&mk->kobj);
	}
	return 0;
}

void unspin_window_deinit(void)
{
	unregister_module_notifier(&vendor_nb);
	WRITE_ONCE(unspin_window, NULL);
}

ssize_t unspin_window_describe(char *buf)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);

	if (ops && !READ_ONCE(unspin_window_refused))
		return sysfs_emit(buf, "%s\n", ops->name);
	return sysfs_emit(buf, "none: %s\n", READ_ONCE(unspin_window_none) ?: "unknown reason");
}
