// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds out whether windows can be controlled on this host, and in which vendor's way.
 *
 * No pointers into kvm_intel or kvm_amd are kept, because they may be reloaded while the module is
 * loaded. What is known of one is dropped when it unloads (no VM exists then), and found out again
 * when one loads.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/sysfs.h>

#include "fail_open.h"
#include "testing.h"
#include "window.h"

#define RESTORE_WAIT_MS 300	/* a busy vCPU enters within a tick or two */
#define MISMATCHES_MAX 8	/* in a row, of a vCPU without nested guests */
#define LOOKS_MAX 16		/* checks at each entry; later ones only after a switch-in */

const struct unspin_window_ops *unspin_window;
bool unspin_window_refused;
u32 unspin_window_default_cycles;

#ifdef UNSPIN_TEST
bool unspin_force_pause_intercept;
module_param_named(force_pause_intercept, unspin_force_pause_intercept, bool, 0600);
MODULE_PARM_DESC(force_pause_intercept, "for tests: every PAUSE exits, on emulators without a pause filter (AMD)");
#endif
UNSPIN_TEST_PARAM(uint, force_mismatches, 0600,
		  "so many checks of windows find another one in the processor");
UNSPIN_TEST_PARAM(uint, force_broken, 0600,
		  "so many checks of windows find that nothing is where it was thought");

static const char *window_none = "no KVM vendor module loaded";
static bool proven;	/* a vCPU's window matched, so the layout is right */
static const void *disagreed;	/* a vCPU whose window did not; never dereferenced */
static bool several_disagree;
static void (*vendor_changed)(void);
static DEFINE_MUTEX(probing);

/* The module called "name", with a reference to its kobject. */
static struct module_kobject *module_kobject_get(const char *name)
{
	struct kobject *kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);

	return kobj ? container_of(kobj, struct module_kobject, kobj) : NULL;
}

const void *unspin_window_param(const struct module *vendor, const char *name,
				const struct kernel_param_ops *type)
{
	unsigned int i;

	for (i = 0; i < vendor->num_kp; i++)
		if (!strcmp(vendor->kp[i].name, name) && vendor->kp[i].ops == type)
			return vendor->kp[i].arg;
	return NULL;
}

static void window_probe(struct module *vendor, bool vmx)
{
	struct unspin_window_ops *ops;
	const char *why = "unknown reason";

	mutex_lock(&probing);
	ops = vmx ? unspin_window_vmx_init(vendor, &why) : unspin_window_svm_init(vendor, &why);
	window_none = ops ? NULL : why;
	unspin_window_refused = proven = several_disagree = false;
	disagreed = NULL;
	WRITE_ONCE(unspin_window_default_cycles, ops ? ops->default_cycles : 0);
	WRITE_ONCE(unspin_window, ops);
	if (ops)
		pr_info("window control: %s, KVM starts from %u cycles\n", ops->name, ops->default_cycles);
	else
		pr_notice("no window control: %s; modes aple and apples keep KVM's window\n", why);
	mutex_unlock(&probing);
	vendor_changed();
}

/* Applies the settings anew: VMs have KVM's windows now. */
static void refused_work_fn(struct work_struct *work)
{
	vendor_changed();
}
static DECLARE_WORK(refused_work, refused_work_fn);

/* Gives up window control: a check against the processor showed that the layout is wrong. Any context. */
static void window_refuse(const char *why)
{
	if (xchg(&unspin_window_refused, true))	/* logged and counted once */
		return;
	window_none = why;
	unspin_fail_open(NULL, why);
	schedule_work(&refused_work);
}

/*
 * KVM and the processor have different windows for a vCPU. KVM itself causes this after a
 * nested guest ran: it wrote the window to the nested guest's VMCS, and writes it to the vCPU's
 * own one at its next change. If another vCPU of this host has matched, the layout is right, and
 * the next entry sets the window. Otherwise this vCPU is checked again, at every entry for a while
 * and then whenever it is switched in, and no window is set. The layout is taken to be wrong only
 * if no vCPU of this host has ever matched, several differ, and one that runs no nested guests
 * differs many times in a row.
 */
static void window_mismatch(struct unspin_slot *slot)
{
	bool nests = slot->nested || compat_may_nest(slot->vcpu);
	const void *first = cmpxchg(&disagreed, NULL, slot);

	if (first && first != slot)
		WRITE_ONCE(several_disagree, true);
	if (!slot->window_mismatches)
		unspin_fail_open_part(slot->vm, "the processor and KVM have different windows for a vCPU; checking again");
	slot->window_mismatches += slot->window_mismatches < U8_MAX;
	slot->work.refresh = slot->window_mismatches < LOOKS_MAX;
	if (nests && READ_ONCE(proven))
		slot->window_state = UNSPIN_WINDOW_GOOD;
	else if (!nests && !READ_ONCE(proven) && READ_ONCE(several_disagree) &&
		 slot->window_mismatches >= MISMATCHES_MAX)
		window_refuse("vcpu_vmx.ple_window is not what the VMCS holds");
}

/* Checks a vCPU's window; tests can force the result. */
static enum unspin_window_check check(const struct unspin_window_ops *ops, struct kvm_vcpu *vcpu,
				      const char **why)
{
	enum unspin_window_check found = ops->check(vcpu, why);

	if (found != UNSPIN_CHECK_GOOD)
		return found;
	if (unlikely(unspin_test_take(force_mismatches)))
		return UNSPIN_CHECK_MISMATCH;
	if (unlikely(unspin_test_take(force_broken))) {
		*why = "a test wants it so";
		return UNSPIN_CHECK_BROKEN;
	}
	return found;
}

bool unspin_window_checked(struct unspin_slot *slot)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	enum unspin_window_check found;
	const char *why = NULL;

	if (!ops || slot->window_state == UNSPIN_WINDOW_REFUSED) {
		slot->work.refresh = 0;
		return false;
	}
	if (compat_is_guest_mode(slot->vcpu)) {	/* the window of a nested guest belongs to its hypervisor */
		slot->nested = 1;
		slot->work.refresh = 1;		/* the vCPU's own window is checked at its next entry */
		return false;
	}
	if (slot->window_state == UNSPIN_WINDOW_GOOD)
		return true;
	found = check(ops, slot->vcpu, &why);
	switch (found) {
	case UNSPIN_CHECK_GOOD:
		slot->window_state = UNSPIN_WINDOW_GOOD;
		slot->window_mismatches = 0;
		WRITE_ONCE(proven, true);
		return true;
	case UNSPIN_CHECK_LATER:
		slot->work.refresh = 1;
		return false;
	case UNSPIN_CHECK_NONE:
		slot->window_state = UNSPIN_WINDOW_REFUSED;
		slot->work.refresh = 0;
		return false;
	case UNSPIN_CHECK_MISMATCH:
		window_mismatch(slot);
		return false;
	case UNSPIN_CHECK_BROKEN:
		slot->window_state = UNSPIN_WINDOW_REFUSED;
		slot->work.refresh = 0;
		window_refuse(why);
		return false;
	}
	return false;
}

/* --- restoring --- */

static bool is_touched(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->window_touched);
}

static void restore_remote(void)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	struct unspin_slot *slot;
	struct unspin_vm *vm;
	unsigned long flags;

	if (!ops)
		return;
	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all) {
		list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
			if (!READ_ONCE(slot->window_touched))
				continue;
			/* The lock keeps a linked vCPU. Take it for one vCPU at a time, because interrupts are off. */
			raw_spin_lock_irqsave(&unspin_lock, flags);
			if (unspin_slot_alive(slot)) {
				ops->restore_remote(slot->vcpu);
				WRITE_ONCE(slot->window_touched, 0);
			}
			raw_spin_unlock_irqrestore(&unspin_lock, flags);
		}
	}
	rcu_read_unlock();
}

void unspin_windows_restore(void)
{
	u32 waited;

	synchronize_rcu();	/* entries that saw the old mode have noted that they set a window */
	for (waited = 0; waited < RESTORE_WAIT_MS && unspin_any_slot(is_touched); waited += 5)
		usleep_range(4000, 6000);
	restore_remote();
}

/* --- vendor modules load and unload --- */

static int vendor_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *mod = data;
	bool vmx = !strcmp(mod->name, "kvm_intel");

	if (!vmx && strcmp(mod->name, "kvm_amd"))
		return NOTIFY_DONE;
	if (state == MODULE_STATE_LIVE) {
		window_probe(mod, vmx);
	} else if (state == MODULE_STATE_GOING) {
		WRITE_ONCE(unspin_window, NULL);
		window_none = "no KVM vendor module loaded";
		synchronize_rcu();	/* waits for probes that read the pointer */
	}
	return NOTIFY_OK;
}

static struct notifier_block vendor_nb = { .notifier_call = vendor_notify };

/* May sleep. Finding no way to control windows is not an error. */
int unspin_window_init(void (*changed)(void))
{
	static const char *const vendors[] = { "kvm_intel", "kvm_amd" };
	struct module_kobject *mk;
	u32 i;
	int err;

	vendor_changed = changed;
	/* Registered first, so that no module is missed. One that loads right now is probed twice. */
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
	cancel_work_sync(&refused_work);
	WRITE_ONCE(unspin_window, NULL);
}

ssize_t unspin_window_describe(char *buf)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);

	if (ops && !READ_ONCE(unspin_window_refused))
		return sysfs_emit(buf, "%s\n", ops->name);
	return sysfs_emit(buf, "none: %s\n", READ_ONCE(window_none) ?: "unknown reason");
}
