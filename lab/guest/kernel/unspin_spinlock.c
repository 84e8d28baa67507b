// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * arch/x86/kernel/unspin_spinlock.c of the guests' kernel: the algorithms are those of core/locks, of
 * which unspin/ has copies.
 *
 * A free queued lock is 0, and so is a free and unused lock of each kind here. So the kind can change at a
 * moment when no lock is held.
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/hardirq.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/jump_label.h>
#include <linux/kvm_para.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <asm/smp.h>
#include <asm/tsc.h>

#define UNSPIN_LOCK_ENV_HEADER "../unspin_env.h"
#include "unspin/oticket.h"
#include "unspin/preemptable.h"
#include "unspin/pv_preemptable.h"
#include "unspin/ticket.h"

static_assert(sizeof(arch_spinlock_t) == sizeof(struct unspin_preemptable_lock));
static_assert(sizeof(arch_spinlock_t) == sizeof(struct unspin_pv_preemptable_lock));
static_assert(sizeof(arch_spinlock_t) == sizeof(struct unspin_oticket_lock));
static_assert(sizeof(arch_spinlock_t) == sizeof(struct unspin_ticket_lock));

enum unspin_kind {
	UNSPIN_NONE,
	UNSPIN_PREEMPTABLE,
	UNSPIN_PV_PREEMPTABLE,
	UNSPIN_OTICKET,
	UNSPIN_TICKET,
};

static const char *const unspin_names[] __initconst = {
	[UNSPIN_PREEMPTABLE] = "preemptable",
	[UNSPIN_PV_PREEMPTABLE] = "pv-preemptable",
	[UNSPIN_OTICKET] = "oticket",
	[UNSPIN_TICKET] = "ticket",
};

DEFINE_STATIC_KEY_FALSE(unspin_spinlocks);
EXPORT_SYMBOL(unspin_spinlocks);

static enum unspin_kind unspin_kind __ro_after_init;

/* Calls the function `does` of the lock that the kernel has. */
#define UNSPIN_CALL(does, word)									\
	(unspin_kind == UNSPIN_PREEMPTABLE ?							\
	 unspin_preemptable_##does((struct unspin_preemptable_lock *)(word)) :			\
	 unspin_kind == UNSPIN_PV_PREEMPTABLE ?							\
	 unspin_pv_preemptable_##does((struct unspin_pv_preemptable_lock *)(word)) :		\
	 unspin_kind == UNSPIN_OTICKET ?							\
	 unspin_oticket_##does((struct unspin_oticket_lock *)(word)) :				\
	 unspin_ticket_##does((struct unspin_ticket_lock *)(word)))

void __lockfunc unspin_spin_lock(arch_spinlock_t *lock)
{
	UNSPIN_CALL(lock, lock);
}
EXPORT_SYMBOL(unspin_spin_lock);

bool __lockfunc unspin_spin_trylock(arch_spinlock_t *lock)
{
	return UNSPIN_CALL(trylock, lock);
}
EXPORT_SYMBOL(unspin_spin_trylock);

void __lockfunc unspin_spin_unlock(arch_spinlock_t *lock)
{
	UNSPIN_CALL(unlock, lock);
}
EXPORT_SYMBOL(unspin_spin_unlock);

bool __lockfunc unspin_spin_is_locked(arch_spinlock_t *lock)
{
	return UNSPIN_CALL(is_locked, lock);
}
EXPORT_SYMBOL(unspin_spin_is_locked);

/* Requests that are not served yet, the holder's among them. */
static unsigned int unspin_in_line(arch_spinlock_t *lock)
{
	unsigned int both = atomic_read(&lock->val);

	switch (unspin_kind) {
	case UNSPIN_PREEMPTABLE:
		return unspin_preemptable_ahead(both, both >> 16);
	case UNSPIN_PV_PREEMPTABLE:
		return unspin_preemptable_ahead(both, both >> 17);
	case UNSPIN_OTICKET:
		return unspin_pv_ticket_ahead(both, both >> 16);
	default:
		return (unsigned short)((both >> 16) - both);
	}
}

bool __lockfunc unspin_spin_is_contended(arch_spinlock_t *lock)
{
	return unspin_in_line(lock) > 1;
}
EXPORT_SYMBOL(unspin_spin_is_contended);

static enum unspin_kind unspin_wanted __initdata;

static int __init unspin_parse(char *name)
{
	int kind = name ? match_string(unspin_names + 1, ARRAY_SIZE(unspin_names) - 1, name) : -1;

	if (kind < 0) {
		pr_warn("unspin: spinlock=%s is not a lock of this kernel\n", name ? name : "");
		return -EINVAL;
	}
	unspin_wanted = kind + 1;
	return 0;
}
early_param("spinlock", unspin_parse);

/* Called with one CPU, which has interrupts off and holds no spin lock. */
void __init unspin_spinlocks_init(void)
{
	bool halts = unspin_wanted == UNSPIN_PV_PREEMPTABLE || unspin_wanted == UNSPIN_OTICKET;

	if (!unspin_wanted)
		return;
	unspin_can_halt = kvm_para_available() && kvm_para_has_feature(KVM_FEATURE_PV_UNHALT);
	unspin_kind = unspin_wanted;
	static_branch_enable(&unspin_spinlocks);
	pr_info("unspin: spin locks: %s%s\n", unspin_names[unspin_kind],
		halts && !unspin_can_halt ? ", which cannot halt on this host" : "");
}
