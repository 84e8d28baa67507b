// SPDX-License-Identifier: GPL-2.0-only
/*
 * unspin-guest: a Linux guest reports to the host that it waits too long for a spin lock, and for
 * how long its vCPUs should run together (uapi/unspin_guest.h; policy/vcrd.c learns the time).
 *
 * This is the Monitoring Module of ASMan (Weng, Liu, Yu, Li, HPDC 2011, sections 3.3 and 4.3)
 * for unmodified kernels: return probes on the slow paths of the queued lock, where every CPU
 * waits that does not get the lock at once. The kernel's tracepoint contention_begin leaves out
 * the first waiter, which spins on a bit of the lock, and test-and-set locks.
 *
 * A wait that is too long is reported while it lasts, by the next tick of a CPU that looks: a CPU that
 * spins with interrupts off cannot report itself. If no tick finds it, it is reported when it is over.
 * Ticks also end the time together (section 4.1). TSCs of the CPUs are compared with a threshold that
 * is much longer than they differ in guests of KVM.
 *
 * The probes run with preemption off, under locks of all kinds, in interrupts and ticks. So nothing here
 * allocates, sleeps or waits: a CPU that finds the learner busy leaves the report to the CPU that
 * holds it. In doubt the module does not load, or reports nothing.
 */
#include <linux/atomic.h>
#include <linux/cc_platform.h>
#include <linux/cpumask.h>
#include <linux/hash.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>
#include <asm/cpufeature.h>
#include <asm/kvm_para.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "../policy/vcrd.h"
#include "../uapi/unspin_guest.h"

#undef pr_fmt
#define pr_fmt(fmt) "unspin-guest: " fmt

static struct vcrd_params params = VCRD_PARAMS(VCRD_THRESHOLD_LOG2_CYCLES);
module_param_named(threshold_log2_cycles, params.threshold_log2_cycles, uint, 0444);
MODULE_PARM_DESC(threshold_log2_cycles, "a wait above 2^this TSC cycles is too long");

static bool reports = true;
module_param_named(report, reports, bool, 0444);
MODULE_PARM_DESC(report, "for tests: 0 only counts, outside of KVM too");

/* For statistics: waits, waits that were too long, and reports. */
struct counts {
	unsigned long waits, long_waits, reports;
};
static DEFINE_PER_CPU(struct counts, counts);

static struct vcrd_state learner;
static atomic_t learner_busy;
static u32 tsc_per_us;

/* Since when a CPU has waited, and the start of its newest wait that was reported; TSC, 0: none. */
struct wait {
	u64 since, reported;
};
static DEFINE_PER_CPU(struct wait, waits_of);

static atomic64_t high_until;	/* TSC; 0: the vCPUs need not run together */

/* How many other CPUs a tick looks at, so that its cost does not grow with their number. */
#define LOOKS 8

/* Any context, preemption off. The host ends the time by itself after twice as long, should no tick do it. */
static void report(u64 now)
{
	u64 us, at_us;

	if (atomic_xchg_acquire(&learner_busy, 1))
		return;
	at_us = div_u64(now, tsc_per_us);
	if (at_us < learner.event_us)	/* the TSC was set back: the last event is not in the future */
		learner.event_us = at_us;
	us = vcrd_event(&learner, &params, at_us, hash_64(now, 32));
	atomic64_set(&high_until, now + us * tsc_per_us);
	atomic_set_release(&learner_busy, 0);
	this_cpu_inc(counts.reports);
	if (reports)
		kvm_hypercall2(UNSPIN_GUEST_HYPERCALL, UNSPIN_GUEST_HIGH, 2 * us);
}

/*
 * Reports the wait of a CPU that began then, once: a tick of another CPU may still see a wait that is
 * over, and one of an interrupt is reported for the wait that it interrupted, too.
 */
static void long_wait(struct wait *wait, u64 since, u64 now)
{
	u64 before = READ_ONCE(wait->reported);

	/* After now: the TSC was set back, as it is when a guest wakes from hibernation. */
	if ((before >= since && before <= rdtsc()) || cmpxchg64(&wait->reported, before, since) != before)
		return;
	this_cpu_inc(counts.long_waits);
	report(now);
}

/* Entry of the kernel's tick: interrupts are off, and no lock of the scheduler is held. */
static int tick(struct kprobe *probe, struct pt_regs *regs)
{
	u64 now = rdtsc(), until = atomic64_read(&high_until);
	int own = smp_processor_id(), cpu = own;
	u32 i;

	if (until && now >= until && atomic64_cmpxchg(&high_until, until, 0) == until && reports)
		kvm_hypercall2(UNSPIN_GUEST_HYPERCALL, UNSPIN_GUEST_LOW, 0);
	for (i = 0; i <= LOOKS; i++) {
		struct wait *wait = per_cpu_ptr(&waits_of, cpu);
		u64 since = READ_ONCE(wait->since);

		if (since && now > since && vcrd_is_over_threshold(&params, now - since))
			long_wait(wait, since, now);
		cpu = cpumask_next(cpu, cpu_online_mask);
		if (cpu >= nr_cpu_ids)
			cpu = cpumask_first(cpu_online_mask);
		if (cpu == own)
			break;
	}
	return 0;
}
NOKPROBE_SYMBOL(tick);

/* A wait in an interrupt of a wait counts for the outer one. */
static int wait_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	u64 now = rdtsc();

	*(u64 *)instance->data = now;
	this_cpu_inc(counts.waits);
	if (!this_cpu_read(waits_of.since))
		this_cpu_write(waits_of.since, now);
	return 0;
}
NOKPROBE_SYMBOL(wait_begins);

static int wait_ends(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	u64 begun = *(u64 *)instance->data, now = rdtsc();

	if (this_cpu_read(waits_of.since) == begun)
		this_cpu_write(waits_of.since, 0);
	if (now > begun && vcrd_is_over_threshold(&params, now - begun))
		long_wait(this_cpu_ptr(&waits_of), begun, now);
	return 0;
}
NOKPROBE_SYMBOL(wait_ends);

#define SLOW_PATH(name) { .kp.symbol_name = name, .entry_handler = wait_begins, \
			  .handler = wait_ends, .data_size = sizeof(u64) }
static struct kretprobe slow_paths[] = {
	SLOW_PATH("native_queued_spin_lock_slowpath"),	/* waiters spin, in a queue or test-and-set */
	SLOW_PATH("__pv_queued_spin_lock_slowpath"),	/* they halt after a while */
};
static bool probed[ARRAY_SIZE(slow_paths)];

/* The kernel's tick, by its names: the second until 6.9. */
static struct kprobe ticks[] = {
	{ .symbol_name = "sched_tick", .pre_handler = tick },
	{ .symbol_name = "scheduler_tick", .pre_handler = tick },
};
static struct kprobe *ticking;

/* --- counts in /sys/module/unspin_guest/parameters/ --- */

static int count_get(char *buffer, const struct kernel_param *kp)
{
	unsigned long offset = (unsigned long)kp->arg, sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*(unsigned long *)((char *)per_cpu_ptr(&counts, cpu) + offset));
	return sysfs_emit(buffer, "%lu\n", sum);
}

static const struct kernel_param_ops count_ops = { .get = count_get };

#define COUNT(name, meaning) \
	module_param_cb(name, &count_ops, (void *)offsetof(struct counts, name), 0444); \
	MODULE_PARM_DESC(name, meaning)
COUNT(waits, "waits for a spin lock so far; read only");
COUNT(long_waits, "those that were too long; read only");
COUNT(reports, "reports to the host; read only");

/* --- loading and unloading --- */

/* Why this guest cannot report, or NULL. */
static const char *no_use(void)
{
	if (reports && !kvm_para_available())
		return "this is no guest of KVM";
	/* Hypercalls of such a guest take another path, on which the host ignores them. */
	if (cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT))
		return "this guest is protected from its host";
	if (!boot_cpu_has(X86_FEATURE_TSC) || tsc_khz < USEC_PER_MSEC)
		return "the TSC's rate is not known";
	if (vcrd_params_check(&params))
		return "threshold_log2_cycles is 0 to 63";
	return NULL;
}

static void probes_remove(void)
{
	u32 i;

	if (ticking)
		unregister_kprobe(ticking);
	for (i = 0; i < ARRAY_SIZE(slow_paths); i++)
		if (probed[i])
			unregister_kretprobe(&slow_paths[i]);
}

static void tick_probe(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ticks) && !ticking; i++)
		if (!register_kprobe(&ticks[i]))
			ticking = &ticks[i];
	if (!ticking)
		pr_notice("the tick cannot be probed: waits are reported when they are over\n");
}

static int __init unspin_guest_init(void)
{
	const char *why = no_use();
	u32 i, count = 0;
	int err;

	if (why) {
		pr_err("not loading: %s\n", why);
		return -ENODEV;
	}
	tsc_per_us = tsc_khz / USEC_PER_MSEC;
	vcrd_init(&learner, &params);
	for (i = 0; i < ARRAY_SIZE(slow_paths); i++) {
		/* A CPU may wait in a thread, a softirq, an interrupt and an NMI at the same time. */
		slow_paths[i].maxactive = 4 * num_possible_cpus();
		err = register_kretprobe(&slow_paths[i]);
		probed[i] = !err;
		count += !err;
		if (err)
			pr_notice("%s cannot be probed: error %d\n", slow_paths[i].kp.symbol_name, err);
	}
	if (count) {
		tick_probe();
		return 0;
	}
	pr_err("not loading: no slow path of this kernel's spin lock can be probed\n");
	return -ENODEV;
}

static void __exit unspin_guest_exit(void)
{
	probes_remove();
	if (reports)
		kvm_hypercall2(UNSPIN_GUEST_HYPERCALL, UNSPIN_GUEST_LOW, 0);
}

module_init(unspin_guest_init);
module_exit(unspin_guest_exit);

MODULE_DESCRIPTION("Reports long waits for spin locks to unspin on the host");
MODULE_LICENSE("GPL");
MODULE_VERSION(UNSPIN_VERSION);
