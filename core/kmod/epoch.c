// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sums up once per epoch what a VM's vCPUs spent, and computes APLE's next window from it.
 *
 * Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.1.2-3.1.4. Assumes a
 * TSC that runs at one rate and is the same on all CPUs, as KVM does for its own clock.
 */
#include "hot.h"
#include "trace.h"

#include "epoch.h"

void unspin_totals_read(struct unspin_vm *vm, struct unspin_totals *totals)
{
	struct unspin_slot *slot;
	u64 now = unspin_now();
	u32 c;

	memset(totals, 0, sizeof(*totals));
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		for (c = 0; c < UNSPIN_COUNTERS_COUNT; c++)
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

/* So that all vCPUs together hold back at most an eighth of an epoch's exits. */
void unspin_epoch_batch(struct unspin_vm *vm)
{
	u32 nslots = max(READ_ONCE(vm->nslots), 1u);

	WRITE_ONCE(vm->report_batch, clamp(vm->params.epoch_ple_exits / (8 * nslots), 1u, 64u));
	WRITE_ONCE(vm->epoch_ple_exits, vm->params.epoch_ple_exits);
}

static void epoch_start(struct unspin_vm *vm, u64 now)
{
	atomic_set(&vm->epoch_exits, 0);
	WRITE_ONCE(vm->epoch_start_tsc, now);
	WRITE_ONCE(vm->epoch_min_until,
		   now + div_u64((u64)vm->params.epoch_min_us * tsc_khz, USEC_PER_MSEC));
}

void unspin_epoch_restart(struct unspin_vm *vm)
{
	rcu_read_lock();
	unspin_totals_read(vm, &vm->epoch_base);
	rcu_read_unlock();
	epoch_start(vm, unspin_now());
}

static u64 added(u64 now, u64 base)
{
	return now > base ? now - base : 0;	/* a running vCPU's time may step back a little */
}

static u64 counted(const struct unspin_vm *vm, const struct unspin_totals *totals,
		   enum unspin_counter counter)
{
	return added(totals->count[counter], vm->epoch_base.count[counter]);
}

static void epoch_end(struct unspin_vm *vm, u64 now)
{
	struct aple_state before = vm->aple;
	struct unspin_totals totals;
	struct aple_epoch spent;
	u32 window, next;

	lockdep_assert_held(&vm->epoch_lock);
	unspin_totals_read(vm, &totals);
	spent.ple_exits = counted(vm, &totals, UNSPIN_C_PLE_EXITS);
	spent.spin_cycles = counted(vm, &totals, UNSPIN_C_SPIN_CYCLES);
	spent.switch_cycles = counted(vm, &totals, UNSPIN_C_SWITCH_CYCLES);
	spent.cpu_cycles = added(totals.cpu_cycles, vm->epoch_base.cpu_cycles);
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

static bool epoch_is_full(const struct unspin_vm *vm, int exits, u64 now)
{
	return exits >= (int)READ_ONCE(vm->epoch_ple_exits) && now >= READ_ONCE(vm->epoch_min_until);
}

/* Whether the clock went back (suspend, or this host is a VM that was migrated). Then the epoch is void. */
static bool clock_went_back(const struct unspin_vm *vm, u64 now)
{
	return unlikely(now < READ_ONCE(vm->epoch_start_tsc)) &&
	       READ_ONCE(vm->epoch_start_tsc) - now > (u64)tsc_khz;	/* more than a millisecond */
}

static void epoch_end_or_restart(struct unspin_vm *vm, u64 now)
{
	if (clock_went_back(vm, now))
		unspin_epoch_restart(vm);
	else if (epoch_is_full(vm, atomic_read(&vm->epoch_exits), now))
		epoch_end(vm, now);
}

/* For VMs that are too large to be summed up with interrupts off. Holds the VM until it has run. */
void unspin_epoch_work(struct work_struct *work)
{
	struct unspin_vm *vm = container_of(work, struct unspin_vm, epoch_work);
	u64 now = unspin_now();

	raw_spin_lock(&vm->epoch_lock);
	rcu_read_lock();
	epoch_end_or_restart(vm, now);
	rcu_read_unlock();
	raw_spin_unlock(&vm->epoch_lock);
}

void unspin_epoch_report(struct unspin_slot *slot, u64 now)
{
	struct unspin_vm *vm = slot->vm;
	int exits;

	if (slot->unreported_exits < READ_ONCE(vm->report_batch))
		return;
	exits = atomic_add_return_relaxed(slot->unreported_exits, &vm->epoch_exits);
	slot->unreported_exits = 0;
	if (!epoch_is_full(vm, exits, now) && !clock_went_back(vm, now))
		return;
	if (READ_ONCE(vm->nslots) > HVS_SLOTS_MAX) {
		queue_work(system_unbound_wq, &vm->epoch_work);
		return;
	}
	/* Held where another vCPU ends the epoch or settings change: this batch need not end it. */
	if (!raw_spin_trylock(&vm->epoch_lock))
		return;
	epoch_end_or_restart(vm, now);
	raw_spin_unlock(&vm->epoch_lock);
}
