// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the module touches the running kernel, and in which order it lets go.
 *
 * kvm_vcpu_on_spin() is hooked with ftrace_ops that may redirect: only real PLE
 * exits of VMs whose yields we direct go to unspin_on_spin(), every other call
 * runs KVM's own code. Tracepoints: sched_switch, kvm_entry, kvm_exit and
 * kvm_hypercall. With every VM in mode off none of these is attached. Two cold
 * functions stay hooked while the module is loaded, the making of a vCPU and the
 * end of a VM: without them a VM would have no directory to set its mode in.
 */
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/kvm_para.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>

#include "hot.h"

#define DRAIN_WARN_MS 10000
#define WATCH_PERIOD (HZ / 4)

DEFINE_PER_CPU(struct unspin_cpu, unspin_cpu);

static struct compat_text kvm_text;
static const struct preempt_ops *kvm_preempt_ops;	/* learnt at the first entry; kvm.ko is pinned */
static struct tracepoint *tp_switch, *tp_hypercall;
static bool attached;		/* under unspin_mutex */
static bool shut = true;		/* under unspin_mutex: not yet loaded, or about to go: nothing attaches */

/* kvm.ko exports these two tracepoints by name, its header is not in the headers package. */
extern struct tracepoint __tracepoint_kvm_entry;
extern struct tracepoint __tracepoint_kvm_exit;

static void watch_work_fn(struct work_struct *work);
/* Unbound: it must run although real-time tasks hold some CPU. */
static DECLARE_DELAYED_WORK(watch_work, watch_work_fn);

/* --- probes: preemption off --- */

static void notrace probe_kvm_exit(void *data, struct kvm_vcpu *vcpu)
{
	__this_cpu_write(unspin_cpu.exit_tsc, unspin_now());
}

static void notrace probe_kvm_entry(void *data, struct kvm_vcpu *vcpu)
{
	struct unspin_slot *slot = __this_cpu_read(unspin_cpu.cur);

	if (likely(slot && slot->vcpu == vcpu && !READ_ONCE(slot->work.any)))
		return;
	if (unlikely(!kvm_preempt_ops))
		WRITE_ONCE(kvm_preempt_ops, vcpu->preempt_notifier.ops);
	unspin_entry(vcpu, slot);
}

static void notrace probe_hypercall(void *data, unsigned long nr)
{
	struct unspin_slot *slot = __this_cpu_read(unspin_cpu.cur);

	if (!slot || !slot->vm->active)
		return;
	if (nr == KVM_HC_KICK_CPU)
		unspin_count(slot, UNSPIN_C_HC_KICK, 1);
	else if (nr == KVM_HC_SCHED_YIELD)
		unspin_count(slot, UNSPIN_C_HC_SCHED_YIELD, 1);
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

static noinline notrace void switch_of_vcpu(struct unspin_slot *out, const struct hlist_node *first,
				    bool preempted, struct task_struct *prev,
				    struct task_struct *next)
{
	struct unspin_slot *in = first ? slot_of_thread(first) : NULL;
	u64 now = unspin_now();

	if (out)
		unspin_switched_out(out, prev, preempted, now);
	if (in)
		unspin_switched_in(in, next, now);
	__this_cpu_write(unspin_cpu.cur, in);
}

/* Run queue lock held: stores only. */
static void notrace probe_sched_switch(void *data, bool preempt, struct task_struct *prev,
			       struct task_struct *next, unsigned int prev_state)
{
	struct unspin_slot *out = __this_cpu_read(unspin_cpu.cur);
	const struct hlist_node *first = next->preempt_notifiers.first;

	__this_cpu_inc(unspin_cpu.switches);
	if (likely(!out && !first))
		return;
	switch_of_vcpu(out, first, preempt || prev_state == TASK_RUNNING, prev, next);
}

/* --- the hook --- */

static void notrace hook_on_spin(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *op,
				 struct ftrace_regs *fregs)
{
	struct kvm_vcpu *vcpu = (struct kvm_vcpu *)compat_ftrace_arg0(fregs);
	struct unspin_slot *slot;
	struct unspin_vm *vm;

	/* Hyper-V and Xen hypercalls call from inside kvm.ko; PLE exits come from the vendor's module. */
	if (parent_ip - kvm_text.start < kvm_text.size)
		return;
	preempt_disable_notrace();
	slot = __this_cpu_read(unspin_cpu.cur);
	if (unlikely(!slot || slot->vcpu != vcpu))
		slot = unspin_slot_find(vcpu);
	if (slot && slot->idx >= 0) {
		vm = slot->vm;
		if (READ_ONCE(vm->active)) {
			unspin_ple_exit(slot);
			if (READ_ONCE(vm->select_on) && READ_ONCE(vm->nslots) <= HVS_SLOTS_MAX) {
				WRITE_ONCE(slot->in_flight, 1);
				compat_ftrace_set_ip(fregs, (unsigned long)unspin_on_spin);
			}
		}
	}
	preempt_enable_notrace();
}

/*
 * No recursion to guard against: the callback is for one function, which it does
 * not call. Permanent: kernel.ftrace_enabled cannot be cleared under the module,
 * which would miss the end of VMs.
 */
static struct ftrace_ops on_spin_ops = {
	.func = hook_on_spin,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

static void notrace hook_vcpu_create(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	/* Whoever may make VMs makes this too: it counts as theirs. */
	if (!unspin_slot_add((struct kvm_vcpu *)compat_ftrace_arg0(fregs), GFP_ATOMIC | __GFP_ACCOUNT))
		unspin_fail_open(NULL, "no memory for a vCPU");
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

/* A function KVM does not export: a kprobe that is never armed resolves its name (a filter by name is slow). */
static unsigned long function_address(const char *name)
{
	struct kprobe probe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };
	unsigned long address;

	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	return address;
}

static int hook_by_name(struct ftrace_ops *ops, const char *name)
{
	unsigned long address = function_address(name);
	int err;

	if (address - kvm_text.start >= kvm_text.size) {
		pr_err("%s is not found in kvm\n", name);
		return -ENOENT;
	}
	err = ftrace_set_filter_ip(ops, address, 0, 1);
	if (!err)
		err = register_ftrace_function(ops);
	if (err)
		ftrace_free_filter(ops);
	return err;
}

/* For good: up to 6.12 at least, ftrace_free_filter() leaves ops with pointers to what it freed. */
static void unhook(struct ftrace_ops *ops)
{
	unregister_ftrace_function(ops);	/* waits for callbacks */
	ftrace_free_filter(ops);
}

/* --- self-check --- */

static noinline __noclone int selfcheck_original(int x)
{
	barrier();
	return x + 1;
}

static noinline __noclone int selfcheck_replacement(int x)
{
	barrier();
	return x + 2;
}

static void notrace selfcheck_callback(unsigned long ip, unsigned long parent_ip,
				       struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	if ((int)compat_ftrace_arg0(fregs) == 40)
		compat_ftrace_set_ip(fregs, (unsigned long)selfcheck_replacement);
}

static struct ftrace_ops selfcheck_ops = {
	.func = selfcheck_callback,
	.flags = FTRACE_OPS_FL_IPMODIFY,
};

/* Proves on a function of our own that the hook sees arguments, redirects, passes through and lets go. */
int unspin_selfcheck(void)
{
	int (*volatile call)(int) = selfcheck_original;
	bool good;
	int err;

	err = ftrace_set_filter_ip(&selfcheck_ops, (unsigned long)selfcheck_original, 0, 0);
	if (err)
		return err;
	err = register_ftrace_function(&selfcheck_ops);
	if (err) {
		ftrace_free_filter(&selfcheck_ops);
		return err;
	}
	good = call(40) == 42 && call(7) == 8;
	unhook(&selfcheck_ops);
	good &= call(40) == 41;
	return good ? 0 : -EIO;
}

/* --- attaching and letting go; unspin_mutex held --- */

static struct {
	struct tracepoint **tp;
	void *probe;
	bool on;
} probes[4];

static int probes_attach(void)
{
	u32 i;
	int err;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (!*probes[i].tp)
			continue;
		err = tracepoint_probe_register(*probes[i].tp, probes[i].probe, NULL);
		if (err)
			return err;
		probes[i].on = true;
	}
	return 0;
}

static void probes_detach(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (probes[i].on)
			tracepoint_probe_unregister(*probes[i].tp, probes[i].probe, NULL);
		probes[i].on = false;
	}
	tracepoint_synchronize_unregister();
}

static int attach(void)
{
	int err;

	err = probes_attach();
	if (err)
		goto no_probes;
	err = register_ftrace_function(&on_spin_ops);
	if (err) {
		pr_err("cannot hook kvm_vcpu_on_spin (%d)%s\n", err,
		       err == -EBUSY ? ": a livepatch has it, or kernel.ftrace_enabled is 0" : "");
		goto no_probes;
	}
	attached = true;
	queue_delayed_work(system_unbound_wq, &watch_work, WATCH_PERIOD);
	return 0;

no_probes:
	probes_detach();
	unspin_slots_quiesce();
	return err;
}

/* Redirected calls may sleep for long, but each ends when its vCPU's thread runs again. */
static void drain(void)
{
	u32 waited;

	for (waited = 0; unspin_any_in_flight(); waited++) {
		if (waited == DRAIN_WARN_MS)
			pr_warn("still waiting for vCPUs inside a directed yield\n");
		usleep_range(900, 1100);
	}
	/* The last instructions after in_flight was cleared. */
	synchronize_rcu_tasks();
}

static void detach(void)
{
	unspin_windows_restore();
	unregister_ftrace_function(&on_spin_ops);
	drain();
	probes_detach();
	unspin_slots_quiesce();
	attached = false;
}

static bool anyone_active(void)
{
	struct unspin_vm *vm;
	bool any = unspin_default.mode != UNSPIN_OFF;

	rcu_read_lock();
	list_for_each_entry_rcu(vm, &unspin_vms, all)
		any |= READ_ONCE(vm->active);
	rcu_read_unlock();
	return any;
}

/* Attaches or lets go as the VMs' modes want it. unspin_mutex held; may sleep. */
int unspin_attach_update(void)
{
	bool wanted = !shut && anyone_active();

	if (wanted && !attached)
		return attach();
	if (!wanted && attached)
		detach();
	return 0;
}

/* Loading is done. A mode may have been written before: its error is the module's. unspin_mutex held. */
int unspin_attach_open(void)
{
	shut = false;
	return unspin_attach_update();
}

/* For good: VMs have been set to off. unspin_mutex held. */
void unspin_detach(void)
{
	shut = true;
	unspin_attach_update();
}

static void watch_work_fn(struct work_struct *work)
{
	bool again;

	unspin_watch();
	mutex_lock(&unspin_mutex);
	again = attached;
	mutex_unlock(&unspin_mutex);
	if (again)
		queue_delayed_work(system_unbound_wq, &watch_work, WATCH_PERIOD);
}

static void find_switch(struct tracepoint *tp, void *priv)
{
	if (!strcmp(tp->name, "sched_switch"))
		tp_switch = tp;
}

/* Called at once for every module that has tracepoints, kvm.ko among them. */
static int tracepoints_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	struct tp_module *tp_mod = data;
	struct tracepoint *tp;
	int i;

	if (state != MODULE_STATE_COMING || strcmp(tp_mod->mod->name, "kvm"))
		return NOTIFY_DONE;
	kvm_text = compat_module_text(tp_mod->mod);
	for (i = 0; i < tp_mod->mod->num_tracepoints; i++) {
		tp = tracepoint_ptr_deref(&tp_mod->mod->tracepoints_ptrs[i]);
		if (!strcmp(tp->name, "kvm_hypercall"))
			tp_hypercall = tp;
	}
	return NOTIFY_OK;
}

int unspin_hooks_init(void)
{
	static struct tracepoint *tp_entry = &__tracepoint_kvm_entry, *tp_exit = &__tracepoint_kvm_exit;
	static struct notifier_block nb = { .notifier_call = tracepoints_notify };
	int err;

	for_each_kernel_tracepoint(find_switch, NULL);
	err = register_tracepoint_module_notifier(&nb);
	if (err)
		return err;
	unregister_tracepoint_module_notifier(&nb);
	if (!tp_switch || !kvm_text.size ||
	    (unsigned long)kvm_vcpu_on_spin - kvm_text.start >= kvm_text.size) {
		pr_err("%s is not found\n", !tp_switch ? "the tracepoint sched_switch" :
		       !kvm_text.size ? "kvm with its tracepoints" : "kvm_vcpu_on_spin in kvm");
		return -ENOENT;
	}
	probes[0].tp = &tp_switch;
	probes[0].probe = probe_sched_switch;
	probes[1].tp = &tp_exit;
	probes[1].probe = probe_kvm_exit;
	probes[2].tp = &tp_entry;
	probes[2].probe = probe_kvm_entry;
	probes[3].tp = &tp_hypercall;
	probes[3].probe = probe_hypercall;

	err = ftrace_set_filter_ip(&on_spin_ops, (unsigned long)kvm_vcpu_on_spin, 0, 0);
	if (err)
		return err;
	err = hook_by_name(&vm_end_ops, "kvm_arch_destroy_vm");
	if (err)
		goto no_vm_end;
	err = hook_by_name(&vcpu_create_ops, "kvm_arch_vcpu_create");
	if (err)
		goto no_vcpu_create;
	return 0;

no_vcpu_create:
	unhook(&vm_end_ops);
no_vm_end:
	ftrace_free_filter(&on_spin_ops);
	return err;
}

void unspin_hooks_deinit(void)
{
	cancel_delayed_work_sync(&watch_work);
	unhook(&vcpu_create_ops);
	unhook(&vm_end_ops);
	ftrace_free_filter(&on_spin_ops);
}

bool unspin_attached(void)
{
	return attached;
}
