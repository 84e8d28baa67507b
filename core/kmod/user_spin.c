// SPDX-License-Identifier: GPL-2.0-only
/*
 * Detects spinning in user space, which the processor does not report.
 *
 * A look is an interrupt that takes a vCPU out of its guest. If the addresses of several looks
 * are close together, the vCPU is in a loop, and a loop with PAUSE in its code is a spin loop.
 * An interrupt cannot read a guest's memory, so the thread reads it on its way back (park.c).
 * A nested guest, a protected guest, and memory that cannot be read count as no loop.
 */
#include <linux/hrtimer.h>
#include <linux/kvm_host.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/srcu.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "compat/compat.h"
#include "symbols.h"
#include "user_spin.h"
#include "window.h"
#include "window_ops.h"

/* After a longer gap, older looks no longer count: the vCPU did something else meanwhile. */
#define FRESH_MS 100u
/* Older code is read again: another program may have other code at the same address. */
#define CODE_FRESH_MS 100u

static const struct userspin_params params = {
	.samples = USERSPIN_SAMPLES,
	.threshold = USERSPIN_THRESHOLD,
	.still = USERSPIN_STILL,
	.range_bytes = USERSPIN_RANGE_BYTES,
};

static DEFINE_PER_CPU(call_single_data_t, looks);	/* set at run time: the loader does not relocate pointers here */
static struct hrtimer timer;
static DEFINE_RAW_SPINLOCK(looks_lock);	/* protects the next two */
static bool wanted;
static bool ticks;		/* the timer runs, or its function will start it again */

/* --- in an interrupt of the vCPU's CPU --- */

/* "sampled" is stale once a VM is no longer judged: check both. */
static bool is_looked_at(const struct unspin_vm *vm)
{
	return READ_ONCE(vm->sampled) && READ_ONCE(vm->judged);
}

/* The vCPU that this interrupt took out of its guest, or NULL. */
static struct unspin_slot *interrupted(void)
{
	struct unspin_slot *slot = __this_cpu_read(unspin_cpu.cur);

	if (!slot || !is_looked_at(slot->vm) || slot->held != current ||
	    current->preempt_notifiers.first != &slot->vcpu->preempt_notifier.link ||
	    !compat_interrupted_in_guest(slot->vcpu) || compat_is_guest_mode(slot->vcpu))
		return NULL;
	return slot;
}

/*
 * Cuts a range to the part that lies in a page: returns its length, and sets *from to its start. Some
 * of the range lies in the page, which may be the last page of the address space.
 */
static u32 within_page(pol_u64 page, pol_u64 *from, u32 bytes)
{
	pol_u64 first = max(*from, page);

	bytes -= first - *from;
	*from = first;
	return min_t(u64, bytes, PAGE_SIZE - (first - page));
}

/* Reads some more in front, because later looks may show that the loop begins earlier. */
static void code_want(struct unspin_user *user, u64 low)
{
	pol_u64 from = low - min_t(u64, low, USERSPIN_RANGE_BYTES);

	user->code_bytes = 0;
	user->code_wanted_bytes = within_page(low & PAGE_MASK, &from, UNSPIN_CODE_BYTES);
	user->code_from = from;
	WRITE_ONCE(user->code_wanted, 1);
	set_tsk_thread_flag(current, TIF_NOTIFY_RESUME);
}

/*
 * Whether the loop that the looks show is a spin loop, as far as its code is known. To read code,
 * KVM walks the guest's page tables, sets Accessed bits there and brings pages into memory. So only
 * one page is read, the one with the loop's lowest look, while the vCPU is in it: the vCPU has just
 * fetched code from that page. Code of the loop in the next page is not read.
 */
static bool spins(struct unspin_user *user, u64 address, u64 now)
{
	struct userspin_verdict verdict;
	pol_u64 from;
	u32 bytes;

	userspin_judge(&user->state, &params, &verdict);
	bytes = userspin_code(&verdict, &from);
	if (!bytes || user->code_wanted)
		return false;
	bytes = within_page(verdict.low & PAGE_MASK, &from, bytes);
	if (now - user->code_tsc > (u64)tsc_khz * CODE_FRESH_MS || from < user->code_from ||
	    from + bytes - user->code_from > user->code_bytes) {
		if ((address ^ verdict.low) < PAGE_SIZE)
			code_want(user, verdict.low);
		return false;
	}
	return userspin_has_pause(user->code + (from - user->code_from), bytes);
}

static void look_here(void)
{
	const struct unspin_window_ops *ops = READ_ONCE(unspin_window);
	struct unspin_slot *slot = interrupted();
	struct userspin_sample sample = { };
	struct unspin_where where;
	struct unspin_user *user;
	u64 now;

	if (!slot || !ops || READ_ONCE(unspin_window_refused) || !ops->where(slot->vcpu, &where))
		return;
	now = unspin_now();
	user = &slot->user;
	if (now - user->sampled_tsc > (u64)tsc_khz * FRESH_MS)
		userspin_init(&user->state);
	user->sampled_tsc = now;
	sample.address = where.address;
	sample.user = where.cpl == 3;
	userspin_add(&user->state, &sample);
	unspin_count(slot, UNSPIN_C_USER_SAMPLES, 1);
	if (sample.user && spins(user, sample.address, now))
		unspin_count(slot, UNSPIN_C_USER_SPINS, 1);
}

static void look_on_cpu(void *unused)
{
	look_here();
}

/* --- the timer of looks --- */

static void look_everywhere(void)
{
	int cpu;

	/* Interrupts are off, which keeps the slots. */
	for_each_online_cpu(cpu) {
		const struct unspin_slot *slot = READ_ONCE(per_cpu(unspin_cpu.cur, cpu));

		if (!slot || !is_looked_at(slot->vm))
			continue;
		/* This CPU looks itself: another interrupt would come after this one, and find no guest. */
		if (cpu == smp_processor_id())
			look_here();
		else
			smp_call_function_single_async(cpu, per_cpu_ptr(&looks, cpu));
	}
}

static enum hrtimer_restart look(struct hrtimer *of)
{
	enum hrtimer_restart restart = HRTIMER_NORESTART;

	look_everywhere();
	raw_spin_lock(&looks_lock);
	ticks = wanted;
	if (ticks) {
		hrtimer_forward_now(of, ns_to_ktime(UNSPIN_USER_LOOK_US * NSEC_PER_USEC));
		restart = HRTIMER_RESTART;
	}
	raw_spin_unlock(&looks_lock);
	return restart;
}

void unspin_user_looks(bool on)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&looks_lock, flags);
	wanted = on;
	if (wanted && !ticks) {
		ticks = true;
		hrtimer_start(&timer, ns_to_ktime(UNSPIN_USER_LOOK_US * NSEC_PER_USEC),
			      HRTIMER_MODE_REL_HARD);
	}
	raw_spin_unlock_irqrestore(&looks_lock, flags);
}

void unspin_user_begin(void)
{
	int cpu;

	wanted = ticks = false;
	for_each_possible_cpu(cpu)
		INIT_CSD(per_cpu_ptr(&looks, cpu), look_on_cpu, NULL);
	compat_hrtimer_setup(&timer, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
}

void unspin_user_end(void)
{
	hrtimer_cancel(&timer);
	kick_all_cpus_sync();	/* waits for looks that were requested */
}

/* --- the vCPU's own thread --- */

/* Reads bytes of one page into "to". Returns their number, or 0 if not all could be read. */
static u32 guest_read(struct kvm_vcpu *vcpu, u64 from, u8 *to, u32 bytes)
{
	int (*read)(struct kvm_vcpu *vcpu, u64 address, void *to, unsigned int bytes, void *exception) =
		(void *)unspin_symbols.read_guest;
	u64 exception[16] = { };	/* room for struct x86_exception, which the guest does not get */

	int err;

	/* Memory that is not there would have to be fetched, for as long as its program likes. */
	pagefault_disable();
	err = read(vcpu, from, to, bytes, exception);
	pagefault_enable();
	return err ? 0 : bytes;
}

void unspin_user_code_read(struct unspin_slot *slot)
{
	struct kvm_vcpu *vcpu = slot->vcpu;
	struct unspin_user *user = &slot->user;
	u8 code[UNSPIN_CODE_BYTES];
	unsigned long flags;
	u32 bytes;
	int idx;

	if (likely(!READ_ONCE(user->code_wanted)))
		return;
	idx = srcu_read_lock(&vcpu->kvm->srcu);
	bytes = guest_read(vcpu, user->code_from, code, user->code_wanted_bytes);
	srcu_read_unlock(&vcpu->kvm->srcu, idx);
	local_irq_save(flags);
	memcpy(user->code, code, bytes);
	user->code_bytes = bytes;
	user->code_tsc = unspin_now();
	WRITE_ONCE(user->code_wanted, 0);
	local_irq_restore(flags);
}
