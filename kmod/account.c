// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a vCPU's cycles go: CPU time, spinning that the processor stopped, and
 * the handling of those exits; and from them, once an epoch, APLE's next window.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.1.2-3.1.4. Assumes a
 * TSC that runs at one rate and alike on all CPUs, as KVM does for its own clock.
 */
#include "hot.h"
#include "trace.h"

/*
 * The hook saw a PLE exit; own thread, preemption off. The exit itself was a
 * little earlier: the last VM exit of this CPU, if the thread has stayed on it.
 */
void unspin_ple_exit(struct unspin_slot *slot)
{
	u64 exit = __this_cpu_read(unspin_cpu.exit_tsc);

	slot->exit_tsc = exit > slot->in_tsc ? exit : unspin_now();
	slot->exit_out_cycles = slot->out_cycles;
	slot->work.ple = 1;
	slot->complete = 0;
	unspin_count(slot, UNSPIN_C_PLE_EXITS, 1);
	unspin_count(slot, UNSPIN_C_SPIN_CYCLES, slot->window_cycles);
}

static void ple_exit_end(struct unspin_slot *slot, u64 now)
{
	u64 handled = now - slot->exit_tsc, out = slot->out_cycles - slot->exit_out_cycles;

	slot->work.ple = 0;
	if (now > slot->exit_tsc && handled > out)
		unspin_count(slot, UNSPIN_C_SWITCH_CYCLES, handled - out);
	slot->unreported_exits++;
}

/* Sums over the VM's vCPUs since they were made. Any context under RCU or with the VM held. */
void unspin_totals_read(struct unspin_vm *vm, struct unspin_totals *totals)
{
	struct unspin_slot *slot;
	u64 now = unspin_now();
	u32 c;

	memset(totals, 0, sizeof(*totals));
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		for (c = 0; c < UNSPIN_COUNTERS; c++)
			totals->count[c] += READ_ONCE(slot->count[c]);
		totals->cpu_cycles += unspin_run_cycles(READ_ONCE(slot->run), now);
	}
}

u32 unspin_window_mean(struct unspin_vm *vm)
{
	struct unspin_slot *slot;
	u64 sum = 0, count = 0;

	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		u32 window = READ_ONCE(slot->window_cycles);

		sum += window;
		count += window != 0;
	}
	return count ? sum / count : 0;
}

static void epoch_start(struct unspin_vm *vm, u64 now)
{
	atomic_set(&vm->epoch_exits, 0);
	WRITE_ONCE(vm->epoch_min_until,
		   now + div_u64((u64)vm->params.epoch_min_us * tsc_khz, USEC_PER_MSEC));
}

/* epoch_lock held. */
void unspin_epoch_restart(struct unspin_vm *vm)
{
	rcu_read_lock();
	unspin_totals_read(vm, &vm->epoch_base);
	rcu_read_unlock();
	epoch_start(vm, unspin_now());
}

static u64 since(u64 now, u64 base)
{
	return now > base ? now - base : 0;	/* a running vCPU's time may step back a little */
}

static void epoch_end(struct unspin_vm *vm, u64 now)
{
	struct aple_state before = vm->aple;
	struct unspin_totals totals;
	struct aple_epoch spent;
	u32 window, next;

	lockdep_assert_held(&vm->epoch_lock);
	unspin_totals_read(vm, &totals);
	spent.ple_exits = since(totals.count[UNSPIN_C_PLE_EXITS],
				vm->epoch_base.count[UNSPIN_C_PLE_EXITS]);
	spent.spin_cycles = since(totals.count[UNSPIN_C_SPIN_CYCLES],
				  vm->epoch_base.count[UNSPIN_C_SPIN_CYCLES]);
	spent.switch_cycles = since(totals.count[UNSPIN_C_SWITCH_CYCLES],
				    vm->epoch_base.count[UNSPIN_C_SWITCH_CYCLES]);
	spent.cpu_cycles = since(totals.cpu_cycles, vm->epoch_base.cpu_cycles);
	vm->epoch_base = totals;
	epoch_start(vm, now);
	vm->epochs++;

	if (vm->window_on) {
		window = before.window_cycles;
		next = pol_clamp_u32(aple_epoch_end(&vm->aple, &vm->params, &spent),
				     vm->params.window_min_cycles, vm->params.window_max_cycles);
		vm->last_ppm = vm->aple.last_ppm;
		if (next != vm->window_cycles) {
			WRITE_ONCE(vm->window_cycles, next);
			unspin_vm_kick_slots(vm);
		}
	} else {
		window = spent.ple_exits ? spent.spin_cycles / spent.ple_exits : 0;
		next = 0;
		vm->last_ppm = aple_inefficiency_ppm(&spent);
	}
	trace_unspin_epoch(vm, vm->epochs, vm->window_on, &before, window, &spent, vm->last_ppm,
			   next);
}

/* A PLE exit has been handled: hand it to the VM's epoch, a batch at a time. */
static void epoch_report(struct unspin_slot *slot, u64 now)
{
	struct unspin_vm *vm = slot->vm;
	int exits;

	if (slot->unreported_exits < READ_ONCE(vm->report_batch))
		return;
	exits = atomic_add_return_relaxed(slot->unreported_exits, &vm->epoch_exits);
	slot->unreported_exits = 0;
	if (exits < (int)READ_ONCE(vm->epoch_ple_exits) || now < READ_ONCE(vm->epoch_min_until))
		return;
	/* Another vCPU ends the epoch, or settings change: leave it to them, or to the next batch. */
	if (!raw_spin_trylock(&vm->epoch_lock))
		return;
	if (atomic_read(&vm->epoch_exits) >= (int)vm->epoch_ple_exits && now >= vm->epoch_min_until)
		epoch_end(vm, now);
	raw_spin_unlock(&vm->epoch_lock);
}

/* The VM's window; longer for a vCPU that spins while no sibling is missing. */
static u32 window_wanted(const struct unspin_slot *slot, bool ple)
{
	u32 window = READ_ONCE(slot->vm->window_cycles);

	if (!slot->complete)
		return window;
	/* Grown by this exit, or by those before. */
	return max(window, ple ? aple_window_complete(&slot->vm->params, slot->window_cycles) :
				 slot->window_cycles);
}

static void window_update(struct kvm_vcpu *vcpu, struct unspin_slot *slot, bool ple)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	struct unspin_vm *vm = slot->vm;
	u32 now_cycles;

	if (!ops || slot->window_state == UNSPIN_WINDOW_REFUSED) {
		slot->work.refresh = 0;
		return;
	}
	if (compat_is_guest_mode(vcpu))	/* the nested guest's window is its own hypervisor's */
		return;			/* refresh stays: look again at the next entry */
	if (slot->window_state == UNSPIN_WINDOW_UNCHECKED) {
		slot->window_state = ops->check(vcpu);
		if (slot->window_state != UNSPIN_WINDOW_GOOD) {
			/* Unchecked still: KVM has a window to write first, look again then. */
			slot->work.refresh = slot->window_state == UNSPIN_WINDOW_UNCHECKED;
			return;
		}
	}
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

/* The thread of "cur" now runs another vCPU, or this CPU did not know whose thread it is. */
static struct unspin_slot *entry_of_other(struct kvm_vcpu *vcpu, struct unspin_slot *cur, u64 now)
{
	struct unspin_slot *slot;

	if (cur && cur->task == current)
		unspin_run_stop(cur, now);
	slot = unspin_slot_find(vcpu);
	if (unlikely(!slot))
		slot = unspin_slot_add(vcpu, GFP_ATOMIC);
	__this_cpu_write(unspin_cpu.cur, slot);
	if (!slot)
		return NULL;
	unspin_switched_in(slot, current, now);
	slot->work.refresh = 1;		/* it may have been switched while nobody looked */
	return slot;
}

/*
 * kvm_entry with something to look at: own thread, interrupts off, right before
 * KVM writes a changed window to the processor.
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
	/* Here, not above: a thread switched in inside KVM_RUN is known before its first entry. */
	if (unlikely(slot->idx < 0))
		unspin_slot_bind(slot);
	/* A full barrier, so that window and mode are read after the flag is cleared. */
	if (READ_ONCE(slot->work.remote))
		xchg(&slot->work.remote, 0);
	if (READ_ONCE(slot->vm->active))
		unspin_run_start(slot, now);
	else
		unspin_run_stop(slot, now);
	ple = slot->work.ple;
	if (ple) {
		ple_exit_end(slot, now);
		epoch_report(slot, now);
	}
	window_update(vcpu, slot, ple);
}
