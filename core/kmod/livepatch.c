// SPDX-License-Identifier: GPL-2.0-only
/*
 * Livepatches take precedence. Only one owner at a time can redirect a function, so the kernel
 * would refuse a livepatch of a function that the module redirects. But the livepatch may fix a
 * security hole. So the module releases all hooks while a livepatch is being loaded, and afterwards
 * attaches again those whose functions are free.
 */
#include <linux/module.h>

#include "attach.h"
#include "fail_open.h"
#include "livepatch.h"
#include "settings.h"

/* Livepatches that are being loaded; under unspin_mutex. No more than these are known at a time. */
static const struct module *coming[8];

/* Notes that a livepatch is being loaded, or no longer is. Returns whether any is. */
static bool note(const struct module *patch, bool comes)
{
	bool any = false;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(coming); i++) {
		if (comes && !coming[i]) {
			coming[i] = patch;
			return true;
		}
		if (!comes && coming[i] == patch)
			coming[i] = NULL;
		any |= !!coming[i];
	}
	return any || comes;
}

static void step_aside(const struct module *patch)
{
	int err;

	mutex_lock(&unspin_mutex);
	err = unspin_attach_aside(note(patch, true));
	mutex_unlock(&unspin_mutex);
	if (err)
		pr_warn("the kernel may refuse livepatch %s: a hook cannot be released (%d)\n", patch->name, err);
}

/* The livepatch is loaded, was refused, or was removed. */
static void come_back(const struct module *patch)
{
	int err;

	mutex_lock(&unspin_mutex);
	err = unspin_attach_aside(note(patch, false));
	if (err) {
		unspin_fail_open(NULL, "a livepatch redirects a function that the module needs, all VMs are set to off");
		unspin_settings_all_off();
		unspin_attach_update();
	}
	mutex_unlock(&unspin_mutex);
	if (err)
		pr_warn("all VMs set to off: livepatch %s redirects a function that their modes need (%d)\n",
			patch->name, err);
}

static int livepatch_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *patch = data;

	if (!is_livepatch_module(patch))
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING)
		step_aside(patch);
	else if (state == MODULE_STATE_LIVE || state == MODULE_STATE_GOING)
		come_back(patch);
	return NOTIFY_OK;
}

static struct notifier_block livepatch_nb = { .notifier_call = livepatch_notify };

int unspin_livepatch_init(void)
{
	return register_module_notifier(&livepatch_nb);
}

void unspin_livepatch_deinit(void)
{
	unregister_module_notifier(&livepatch_nb);
}
