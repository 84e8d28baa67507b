// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commits one fault per load. Each is harmless, and each is detected by one of the debug
 * kernel's checks. This proves that the checks work before a test relies on their silence.
 */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/timer.h>

static char *fault = "";
module_param(fault, charp, 0400);
MODULE_PARM_DESC(fault, "sleep, free, bounds, timer, rcu, leak or order");

static void may_sleep_with_preemption_off(void)
{
	preempt_disable();
	might_sleep();
	preempt_enable();
}

static void read_after_free(void)
{
	volatile u8 *bytes = kmalloc(64, GFP_KERNEL);

	kfree((void *)bytes);
	if (bytes)
		(void)bytes[1];
}

static void read_out_of_bounds(void)
{
	volatile u8 *bytes = kmalloc(60, GFP_KERNEL);
	size_t end = 60;

	OPTIMIZER_HIDE_VAR(end);
	if (bytes)
		(void)bytes[end];
	kfree((void *)bytes);
}

static void timer_fn(struct timer_list *timer)
{
}

/* The check removes the timer before its memory is freed. */
static void free_with_timer_pending(void)
{
	struct timer_list *timer = kmalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return;
	timer_setup(timer, timer_fn, 0);
	mod_timer(timer, jiffies + 3600 * HZ);
	kfree(timer);
}

static void read_rcu_without_lock(void)
{
	static int __rcu *pointer;

	if (rcu_dereference(pointer))
		pr_info("unexpected: the pointer is NULL\n");
}

static void keep_nothing_of_an_allocation(void)
{
	void *lost = kmalloc(100, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(lost);
}

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

/* One thread takes both, so nothing hangs. */
static void lock_in_both_orders(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static const struct {
	const char *name;
	void (*commit)(void);
} faults[] = {
	{ "sleep", may_sleep_with_preemption_off },
	{ "free", read_after_free },
	{ "bounds", read_out_of_bounds },
	{ "timer", free_with_timer_pending },
	{ "rcu", read_rcu_without_lock },
	{ "leak", keep_nothing_of_an_allocation },
	{ "order", lock_in_both_orders },
};

static int __init faulty_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (strcmp(fault, faults[i].name))
			continue;
		pr_warn("faulty: %s, on purpose\n", fault);
		faults[i].commit();
		return 0;
	}
	pr_err("faulty: unknown fault '%s'\n", fault);
	return -EINVAL;
}

static void __exit faulty_exit(void)
{
}

module_init(faulty_init);
module_exit(faulty_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Faults for the checks of a debug kernel to find");
