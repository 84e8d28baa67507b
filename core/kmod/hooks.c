// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the module touches the running kernel.
 *
 * kvm_vcpu_on_spin() is hooked with ftrace_ops that may redirect. Only real PLE exits of
 * VMs whose yields the module directs go to unspin_on_spin(); every other call runs KVM's
 * own code. The tracepoints are sched_switch, kvm_entry and kvm_hypercall. While every VM
 * is in mode off, none of these is attached. Two functions off the hot path stay hooked
 * while the module is loaded: the creation of a vCPU and the end of a VM. They make and
 * remove the VM's directory, in which its mode is set.
 *
 * Slots are looked up with preemption off, which is an RCU reader. sched_switch is called
 * with preemption off, kvm_entry with interrupts off. The other probes disable preemption
 * themselves, because some kernels call them with preemption on.
 */
#include <linux/kvm_para.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>
#include <trace/events/sched.h>

#include "entry.h"
#include "fail_open.h"
#include "guest_report.h"
#include "hooks.h"
#include "hot.h"
#include "park.h"
#include "pick.h"
#include "redirect.h"
#include "symbols.h"
#include "turn.h"
#include "unhook.h"
#include "vms.h"
#include "../uapi/unspin_guest.h"
/* The policy, unchanged. It is included so that what runs at every switch is inlined. */
#include "../policy/hvs.c"

static const struct preempt_ops *kvm_preempt_ops;	/* found at the first entry; kvm.ko is pinned */

/* --- probes --- */

static void notrace probe_kvm_entry(void *data, struct kvm_vcpu *vcpu)
{
	struct unspin_slot *slot = __this_cpu_read(unspin_cpu.cur);

	if (likely(slot && slot->vcpu == vcpu && !READ_ONCE(slot->work.any)))
		return;
	if (unlikely(!kvm_preempt_ops))
		WRITE_ONCE(kvm_preempt_ops, vcpu->preempt_notifier.ops);
	unspin_entry(vcpu, slot);
}

static void notrace probe_hypercall(void *data, unsigned long nr, unsigned long a0, unsigned long a1)
{
	struct unspin_slot *slot;

	preempt_disable_notrace();
	slot = __this_cpu_read(unspin_cpu.cur);
	if (slot && slot->vm->active) {
		if (nr == KVM_HC_KICK_CPU)
			unspin_count(slot, UNSPIN_C_HC_KICK, 1);
		else if (nr == KVM_HC_SCHED_YIELD)
			unspin_count(slot, UNSPIN_C_HC_SCHED_YIELD, 1);
		else if (nr == UNSPIN_GUEST_HYPERCALL && READ_ONCE(slot->vm->hears_guest))
			unspin_guest_report(slot, a0, a1);
	}
	preempt_enable_notrace();
}

/* The vCPU whose KVM_RUN this thread is inside, or NULL. Its run queue is locked. */
static __always_inline struct unspin_slot *slot_of_thread(const struct hlist_node *first)
{
	const struct preempt_notifier *notifier =
		hlist_entry(first, struct preempt_notifier, link);

	if (notifier->ops != READ_ONCE(kvm_preempt_ops))
		return NULL;
	return unspin_slot_find(container_of(notifier, struct kvm_vcpu, preempt_notifier));
}

/* The arguments are in the order of the probe's, so that none has to be moved. */
static noinline notrace void switch_of_vcpu(struct unspin_slot *out, bool preempt,
					    struct task_struct *prev, struct task_struct *next,
					    unsigned int prev_state, const struct hlist_node *first)
{
	struct unspin_slot *in = first ? slot_of_thread(first) : NULL;
	u64 now = unspin_now();

	/* If another thread runs that vCPU by now, the time is its. */
	if (unlikely(__this_cpu_read(unspin_cpu.in_turns)) && out && out->held == prev)
		unspin_turn_switched_out(out, !preempt && prev_state != TASK_RUNNING, now);

	/* The picked vCPU arrives: the one that leaves loses its core to the yield. */
	if (out)
		unspin_switched_out(out, prev, preempt || prev_state == TASK_RUNNING,
				    in && READ_ONCE(in->pick_pending) &&
				    in->pick_cpu == smp_processor_id(), now);
	if (in)
		unspin_switched_in(in, next, now);
	__this_cpu_write(unspin_cpu.cur, in);
}

/* switch_of_vcpu() on a CPU that has an owner in this turn. */
static noinline notrace void switch_in_turn(struct unspin_slot *out, bool preempt,
					    struct task_struct *prev, struct task_struct *next,
					    unsigned int prev_state, const struct hlist_node *first)
{
	struct unspin_slot *in;

	if (out || first)
		switch_of_vcpu(out, preempt, prev, next, prev_state, first);
	in = __this_cpu_read(unspin_cpu.cur);
	if (in)
		unspin_turn_switched_in(in, next, is_idle_task(prev));
	else if (is_idle_task(next))
		unspin_turn_went_idle();
}

/* The run queue lock is held, so this only stores. */
static void notrace probe_sched_switch(void *data, bool preempt, struct task_struct *prev,
			       struct task_struct *next, unsigned int prev_state)
{
	struct unspin_slot *out = __this_cpu_read(unspin_cpu.cur);
	const struct hlist_node *first = next->preempt_notifiers.first;

	__this_cpu_inc(unspin_cpu.switches);
	if (unlikely(__this_cpu_read(unspin_cpu.owner)))
		switch_in_turn(out, preempt, prev, next, prev_state, first);
	else if (unlikely(out || first))
		switch_of_vcpu(out, preempt, prev, next, prev_state, first);
}

static struct {
	struct tracepoint **tp;
	void *probe;
	bool on;
} probes[] = {
	{ &unspin_symbols.sched_switch, probe_sched_switch },
	{ &unspin_symbols.kvm_entry, probe_kvm_entry },
	{ &unspin_symbols.kvm_hypercall, probe_hypercall },
};

int unspin_probes_attach(void)
{
	u32 i;
	int err;

	check_trace_callback_type_sched_switch(probe_sched_switch);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = tracepoint_probe_register(*probes[i].tp, probes[i].probe, NULL);
		if (err)
			return err;
		probes[i].on = true;
	}
	return 0;
}

void unspin_probes_detach(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (probes[i].on)
			tracepoint_probe_unregister(*probes[i].tp, probes[i].probe, NULL);
		probes[i].on = false;
	}
	tracepoint_synchronize_unregister();
}

/* --- hooks --- */

/* PLE exits call from the vendor's module, hypercalls of Hyper-V and Xen from inside kvm.ko. */
static bool is_ple_exit(unsigned long caller)
{
	static unsigned long known;	/* the one place in the vendor's module that calls */

	if (likely(caller == READ_ONCE(known)))
		return true;
	if (within_module_core(caller, unspin_symbols.kvm))
		return false;
	WRITE_ONCE(known, caller);
	return true;
}

static void notrace hook_on_spin(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *op,
				 struct ftrace_regs *fregs)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)compat_ftrace_arg0(fregs);
	struct unspin_slot *slot;
	struct unspin_vm *vm;

	if (!is_ple_exit(parent_ip))
		return;
	preempt_disable_notrace();
	slot = __this_cpu_read(unspin_cpu.cur);
	if (unlikely(!slot || slot->vcpu != vcpu))
		slot = unspin_slot_find(vcpu);
	if (slot && slot->idx >= 0) {
		vm = slot->vm;
		if (READ_ONCE(vm->active)) {
			unspin_ple_exit(slot);
			if (unlikely(__this_cpu_read(unspin_cpu.filler)))
				unspin_turn_filler_spins(slot);
			if (READ_ONCE(vm->select_on) && READ_ONCE(vm->nslots) <= READ_ONCE(vm->nslots_max)) {
				unspin_redirect_begin(UNSPIN_REDIRECT_SPIN);
				compat_ftrace_set_ip(fregs, (unsigned long)unspin_on_spin);
			}
		}
	}
	preempt_enable_notrace();
}

/*
 * No recursion guard: the callback is for one function, and does not call it.
 * Permanent: kernel.ftrace_enabled cannot be cleared while the module is loaded. Otherwise
 * the module would miss the end of VMs.
 */
struct ftrace_ops unspin_on_spin_ops = {
	.func = hook_on_spin,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

static void notrace hook_vcpu_create(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	/* Charged to the memory cgroup of the process that makes the VM. */
	if (!unspin_slot_add((struct kvm_vcpu *)compat_ftrace_arg0(fregs), GFP_ATOMIC | __GFP_ACCOUNT))
		unspin_fail_open(NULL, "a vCPU cannot be followed: no memory, or its VM made too many");
}

static void notrace hook_vm_end(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *op,
				struct ftrace_regs *fregs)
{
	unspin_vm_end((const struct kvm *)compat_ftrace_arg0(fregs));
}

static struct ftrace_ops vcpu_create_ops = {
	.func = hook_vcpu_create,
	.flags = FTRACE_OPS_FL_PERMANENT,
};
static struct ftrace_ops vm_end_ops = {
	.func = hook_vm_end,
	.flags = FTRACE_OPS_FL_PERMANENT,
};

static int hook(struct ftrace_ops *ops, unsigned long address)
{
	int err = ftrace_set_filter_ip(ops, address, 0, 1);

	if (!err)
		err = register_ftrace_function(ops);
	if (err)
		ftrace_free_filter(ops);
	return err;
}

int unspin_hooks_init(void)
{
	int err = ftrace_set_filter_ip(&unspin_on_spin_ops, unspin_symbols.on_spin, 0, 0);

	if (err)
		return err;
	err = unspin_park_init();
	if (err)
		goto no_park;
	err = hook(&vm_end_ops, unspin_symbols.destroy_vm);
	if (err)
		goto no_vm_end;
	err = hook(&vcpu_create_ops, unspin_symbols.vcpu_create);
	if (err)
		goto no_vcpu_create;
	return 0;

no_vcpu_create:
	unspin_unhook_or_stay(&vm_end_ops);
no_vm_end:
	unspin_park_deinit();
no_park:
	ftrace_free_filter(&unspin_on_spin_ops);
	return err;
}

void unspin_hooks_deinit(void)
{
	unspin_unhook_or_stay(&vcpu_create_ops);
	unspin_unhook_or_stay(&vm_end_ops);
	unspin_park_deinit();
	ftrace_free_filter(&unspin_on_spin_ops);
}
