// SPDX-License-Identifier: GPL-2.0-only
/*
 * Livepatches go first. One function is redirected by one owner at a time, so the kernel would
 * refuse a livepatch of a function that the module has redirected, and it may mend a hole. So
 * the module releases all hooks while a livepatch is loaded, and then takes those that are
 * free.
 */
#include <linux/module.h>

#include "attach.h"
#include "fail_open.h"
#include "livepatch.h"
#include "settings.h"

static void step_aside(const struct module *patch)
{
	int err;

	mutex_lock(&unspin_mutex);
	err = unspin_attach_aside(true);
	mutex_unlock(&unspin_mutex);
	if (err)
		pr_warn("livepatch %s may be refused: a hook stays (%d)\n", patch->name, err);
}

/* It is loaded, or was refused, or has gone. */
static void come_back(const struct module *patch)
{
	int err;

	mutex_lock(&unspin_mutex);
	err = unspin_attach_aside(false);
	if (err) {
		unspin_fail_open(NULL, "a livepatch has a function that the module redirects, every VM is set to off");
		unspin_settings_all_off();
		unspin_attach_update();
	}
	mutex_unlock(&unspin_mutex);
	if (err)
		pr_warn("off because of livepatch %s (%d); the kernel refuses modes that need the function while it is there\n",
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
