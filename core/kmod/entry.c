// SPDX-License-Identifier: GPL-2.0-only
/*
 * From a PLE exit to the VM entry after it: counts what the exit cost, and sets the window that
 * the processor gets with this entry.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.1.3 and 3.1.4.
 */
#include "entry.h"
#include "epoch.h"
#include "hot.h"
#include "park.h"
#include "testing.h"
#include "turn.h"
#include "vms.h"
#include "window.h"

/*
 * The hook saw a PLE exit; own thread, preemption off. The exit itself happened a little
 * earlier: KVM notes when, and the thread has stayed on its CPU since.
 */
void unspin_ple_exit(struct unspin_slot *slot)
{
	u64 exit = compat_last_exit_tsc(slot->vcpu), now = unspin_now();

	slot->exit_tsc = exit > slot->in_tsc && exit < now ? exit : now;
	slot->exit_out_cycles = 0;
	slot->work.ple = 1;
	slot->complete = 0;
	unspin_count(slot, UNSPIN_C_PLE_EXITS, 1);
	unspin_count(slot, UNSPIN_C_SPIN_CYCLES, slot->window_cycles);
}

static void ple_exit_end(struct unspin_slot *slot, u64 now)
{
	u64 handled = now - slot->exit_tsc, out = slot->exit_out_cycles;

	slot->work.ple = 0;
	if (now > slot->exit_tsc && handled > out)
		unspin_count(slot, UNSPIN_C_SWITCH_CYCLES, handled - out);
	slot->unreported_exits++;
}

/*
 * The VM's window, or a longer one for a vCPU that spins while no sibling waits for a CPU. In the
 * VM's own turn no sibling waits: they run or are idle, so leaving the CPU would help none.
 */
static u32 window_wanted(const struct unspin_slot *slot, bool ple)
{
	const struct aple_params *params = &slot->vm->params;
	u32 window = READ_ONCE(slot->vm->window_cycles);
	u32 kvm_window = READ_ONCE(unspin_window_default_cycles);

	if (__this_cpu_read(unspin_cpu.owner) == slot->vm)
		return aple_window_longest(params, kvm_window);
	if (!slot->complete)
		return window;
	/* Longer by this exit, or by earlier ones. */
	return max(window, ple ? aple_window_complete(params, slot->window_cycles, kvm_window) :
				 slot->window_cycles);
}

static void window_update(struct unspin_slot *slot, bool ple)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	struct kvm_vcpu *vcpu = slot->vcpu;
	struct unspin_vm *vm = slot->vm;
	u32 now_cycles;

	if (!unspin_window_checked(slot) || !ops)
		return;
	slot->work.refresh = 0;
	now_cycles = ops->get(vcpu);
	if (READ_ONCE(vm->window_on) && !READ_ONCE(unspin_window_refused)) {
		WRITE_ONCE(slot->window_touched, 1);
		now_cycles = ops->set(vcpu, window_wanted(slot, ple));
	} else if (slot->window_touched) {
		now_cycles = ops->set(vcpu, ops->default_cycles);
		WRITE_ONCE(slot->window_touched, 0);
	}
	if (unlikely(unspin_force_pause_intercept) && ops->force_pause) {
		ops->force_pause(vcpu, vm->active);
		WRITE_ONCE(slot->window_touched, vm->active);
	}
	WRITE_ONCE(slot->window_cycles, now_cycles);
}

/* Finds the vCPU: the thread of "cur" now runs another one, or this CPU did not know the thread. */
static struct unspin_slot *entry_of_other(struct kvm_vcpu *vcpu, struct unspin_slot *cur, u64 now)
{
	struct unspin_slot *slot;

	if (cur && cur->held == current) {
		unspin_run_stop(cur, now);
		if (__this_cpu_read(unspin_cpu.in_turns))
			unspin_turn_switched_out(cur, false, now);
		WRITE_ONCE(cur->out_tsc, now);
		unspin_waiting_add(cur, HVS_NOT_PREEMPTED);
	}
	slot = unspin_slot_find(vcpu);
	if (unlikely(!slot || slot->vm->kvm != vcpu->kvm))
		slot = unspin_slot_add(vcpu, GFP_ATOMIC);
	__this_cpu_write(unspin_cpu.cur, slot);
	if (!slot)
		return NULL;
	/* Another thread ran it up to now, and has kept its CPU since. */
	if (__this_cpu_read(unspin_cpu.in_turns) && slot->held && slot->held != current && !slot->out_tsc)
		WRITE_ONCE(slot->turn.ran_cycles, slot->turn.ran_cycles + now - slot->in_tsc);
	unspin_switched_in(slot, current, now);
	slot->work.refresh = 1;		/* it may have been switched out and in meanwhile */
	return slot;
}

/*
 * Handles kvm_entry where there is work: own thread, interrupts off, right before KVM writes a
 * changed window to the processor.
 */
void unspin_entry(struct kvm_vcpu *vcpu, struct unspin_slot *cur)
{
	struct unspin_slot *slot = cur;
	u64 now = unspin_now();
	bool ple;

	if (!slot || slot->vcpu != vcpu) {
		slot = entry_of_other(vcpu, cur, now);
		if (!slot)
			return;
	}
	/* Not earlier: a thread that is switched in inside KVM_RUN is known before its first entry. */
	if (unlikely(slot->idx < 0))
		unspin_slot_bind(slot);
	/* The xchg() is a full barrier: window and mode are read after the flag is cleared. */
	if (READ_ONCE(slot->work.remote))
		xchg(&slot->work.remote, 0);
	/* It may come from user space, where it was switched in like any other thread. */
	if (slot != cur && __this_cpu_read(unspin_cpu.owner))
		WRITE_ONCE(slot->work.park, 1);
	if (unlikely(READ_ONCE(slot->work.park)))
		unspin_park_at_entry(slot);
	if (READ_ONCE(slot->vm->active))
		unspin_run_start(slot, now);
	else
		unspin_run_stop(slot, now);
	ple = slot->work.ple;
	if (ple) {
		ple_exit_end(slot, now);
		unspin_epoch_report(slot, now);
	}
	if (unlikely(slot->held != current))
		unspin_slot_hold_current(slot);
	window_update(slot, ple);
}
