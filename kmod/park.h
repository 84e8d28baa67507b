/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeping a vCPU from running while it is another's turn: its own thread sleeps, in kernel
 * mode, on its way into the guest. Its class, priority and affinity are never touched.
 */
#ifndef UNSPIN_PARK_H
#define UNSPIN_PARK_H

#include <linux/sched.h>

#include "state.h"

/* Once, while the module loads, and once at its end, nothing attached. 0 or an error. */
int unspin_park_init(void);
void unspin_park_deinit(void);

/*
 * Redirects the threads' way into guests, or no longer. "got_on" is told of each vCPU that is
 * kept from running and did not just spin before. May sleep. 0 or an error, said in the log.
 */
int unspin_park_attach(void (*got_on)(struct unspin_slot *slot));
int unspin_park_detach(void);

/* The thread that runs the vCPU goes to sleep when it is next on its way into the guest. */
static inline void unspin_park_mark(struct unspin_slot *slot, struct task_struct *task)
{
	WRITE_ONCE(slot->work.park, 1);
	set_tsk_thread_flag(task, TIF_NOTIFY_RESUME);
}
/* The vCPU runs though it may not: it goes to sleep on its way back into the guest. Any context, RCU. */
void unspin_park_request(struct unspin_slot *slot);
/* It sleeps for its turn: it looks again whether it may run. Any context, RCU. */
static inline void unspin_park_wake(struct unspin_slot *slot)
{
	struct task_struct *task = READ_ONCE(slot->held);

	if (task)
		wake_up_process(task);
}
/* At an entry into the guest with work.park set: own thread, interrupts off. */
void unspin_park_at_entry(struct unspin_slot *slot);

#endif
