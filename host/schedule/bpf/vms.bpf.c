// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler for VMs: all threads of VMs on CPUs that no other tasks have for long. Each VM has one virtual
 * time, which goes with its weight. VMs whose vCPUs spin for each other have turns (plan.h). Holes in turns go to
 * others, until a sibling wakes up. Threads that wait are always in a queue of the kernel's.
 */
#include "wake.h"
#include "turn.h"

char _license[] SEC("license") = "GPL";

struct turn_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turn_timer);
} timers SEC(".maps");

/*
 * The distance of the two clocks of by_count(). Where the clock was read before, as after a pull from another CPU, it is
 * too large, and the timer charges later.
 */
static __always_inline u64 offset_of(const struct rq *rq, u64 now)
{
	return now - scx_bpf_now() + rq->clock - rq->clock_task;
}

/* A thread begins to run. What threads before it have paid beyond what the kernel counted, it has free, up to a slice. */
static __always_inline void begin_count(u32 cpu, u64 now)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	struct cpu *c = &cpus[bound(cpu)];
	u64 ahead = c->since > c->counted ? c->since - c->counted : 0;

	if (!rq)
		return;
	c->since = rq->clock_task + (ahead < SLICE_NS ? ahead : SLICE_NS);
	c->clock_offset = offset_of(rq, now);
	/* The timer charges nobody before that. */
	asm volatile("" ::: "memory");
}

/* The thread that runs pays for what the kernel has counted. It stops, or may go on. */
static __always_inline void charge_counted(u32 cpu, u32 may_go_on)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
	struct cpu *c = &cpus[bound(cpu)];

	if (!rq)
		return;
	c->counted = rq->clock_task;
	charge(cpu, c->counted);
	if (may_go_on)
		c->clock_offset = offset_of(rq, bpf_ktime_get_ns());
}

SEC("struct_ops/dispatch")
int BPF_PROG(dispatch, s32 on, struct task_struct *prev)
{
	u32 cpu = bound(on), before = NOBODY;

	if (!is_ours(cpu)) {
		/* Threads that may use no other CPU wait from before it was left, too. */
		cpus[cpu].elsewhere_last = !cpus[cpu].elsewhere_last;
		if (cpus[cpu].is_ours && cpus[cpu].elsewhere_last && take_any_others())
			return 0;
		if (!take_elsewhere() && cpus[cpu].is_ours)
			take_any_others();
		return 0;
	}
	if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
		before = id_of_task(prev);
		charge_counted(cpu, 1);
	}
	if (choose(cpu, before) && before != NOBODY && prev) {
		has_cpu(cpu, before);
		scx_bpf_task_set_slice(prev, SLICE_NS);
	}
	return 0;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(select_cpu, struct task_struct *p, s32 prev_cpu, u64 flags)
{
	u32 planned = planned_cpu(id_of_task(p));
	_Bool idle = 0;
	s32 cpu;

	if (planned != NOBODY) {
		if (scx_bpf_test_and_clear_cpu_idle(planned))
			dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, 0);
		return planned;
	}
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, flags, &idle);
	if (idle)
		dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, 0);
	return cpu;
}

SEC("struct_ops/enqueue")
int BPF_PROG(enqueue, struct task_struct *p, u64 flags)
{
	u32 id = id_of_task(p), cpu;
	struct vm *v;
	struct unit *u;

	/* A stranger, or a VM's thread that has been pinned elsewhere. */
	if (!is_ours(scx_bpf_task_cpu(p))) {
		dsq_insert(p, ELSEWHERE, SLICE_NS, flags);
		return 0;
	}
	v = vm_of(id);
	u = unit_of(id);
	lift(v, u);
	if (unit_part(id) == OTHERS ? scx_bpf_dsq_nr_queued(QUEUE + id) <= 0 : !(v->waits & bit(unit_part(id))))
		u->ready_at = bpf_ktime_get_ns();
	__sync_fetch_and_or(&v->waits, bit(unit_part(id)));
	dsq_insert(p, QUEUE + id, SLICE_NS, flags);
	cpu = planned_cpu(id);
	if (cpu == NOBODY && v->in_turn && unit_part(id) != OTHERS && turn_counts() && is_gang(v))
		cpu = claim(id);
	if (cpu != NOBODY) {
		if (cpus[bound(cpu)].fills)
			__sync_fetch_and_add(&report.returned, 1);
		/* Who was chosen there before it, because it is late or owed more, has a slice. */
		if (cpus[bound(cpu)].id != id && (flags & SCX_ENQ_WAKEUP || (u32)scx_bpf_task_cpu(p) != cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return 0;
	}
	cpu = idle_cpu(p);
	if (cpu != NOBODY) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return 0;
	}
	if (!(flags & SCX_ENQ_WAKEUP) || (unit_part(id) != OTHERS && is_gang(v)))
		return 0;
	preempt(p, id);
	return 0;
}

SEC("struct_ops/running")
int BPF_PROG(running, struct task_struct *p)
{
	u32 id = id_of_task(p), cpu = bound(scx_bpf_task_cpu(p)), vm;
	struct cpu *c = &cpus[cpu];
	u64 now = bpf_ktime_get_ns();
	struct vm *v;
	struct unit *u;

	v = vm_of(id);
	u = unit_of(id);
	begin_count(cpu, now);
	c->id = id;
	if (unit_part(id) != OTHERS)
		__sync_fetch_and_and(&v->waits, ~bit(unit_part(id)));
	/* After the CPU's id: see look_at_others(). */
	if (is_ours(cpu))
		__sync_fetch_and_or(&v->runs, bit(unit_part(id)));
	u->cpu = cpu;
	u->weight = p->scx.weight;
	lift(v, u);
	if (c->late == LATE_NEXT) {
		c->late = LATE_DONE;
		scx_bpf_task_set_slice(p, MS);
	} else if (p->scx.slice > SLICE_NS) {
		/* The kernel queued it by itself, because it could not migrate. */
		scx_bpf_task_set_slice(p, SLICE_NS);
	}
	if (unit_part(id) != OTHERS && u->ready_at) {
		vm = vm_part(id);
		asm volatile("" : "+r"(vm));
		__sync_fetch_and_add(&report.vms[vm & (VMS_MAX - 1)].waited_ns, time_since(u->ready_at, now));
		u->ready_at = 0;
	}
	/*
	 * Who was to have this CPU has it, or was not asked for: the kernel took a thread that was there already. That
	 * one waits like others now. It may not block wake-ups here, nor be preferred when it no longer wakes up. One that
	 * was preferred after the choice is chosen like others, too: its kick still comes.
	 */
	c->prefer = NOBODY;
	has_cpu(cpu, id);
	return 0;
}

SEC("struct_ops/stopping")
int BPF_PROG(stopping, struct task_struct *p, _Bool runnable)
{
	u32 id = id_of_task(p), cpu = bound(scx_bpf_task_cpu(p));
	u64 now = bpf_ktime_get_ns();

	charge_counted(cpu, 0);
	cpus[cpu].id = NOBODY;
	note_off(unit_of(id), runnable, now);
	__sync_fetch_and_and(&vm_of(id)->runs, ~bit(unit_part(id)));
	return 0;
}

SEC("struct_ops/quiescent")
int BPF_PROG(quiescent, struct task_struct *p, u64 flags)
{
	u32 id = id_of_task(p);
	struct vm *v = vm_of(id);
	u64 now, end = turn_end;

	if (unit_part(id) == OTHERS)
		return 0;
	__sync_fetch_and_and(&v->waits, ~bit(unit_part(id)));
	/* One whose CPUs or nice value change is back at once. */
	if (!(flags & SCX_DEQ_SLEEP) || !is_owed(id))
		return 0;
	/* It pays for the time that is kept for it, or for its gang, up to the next plan. */
	__sync_fetch_and_and(&v->owed, ~bit(unit_part(id)));
	now = bpf_ktime_get_ns();
	if (now < end)
		__sync_fetch_and_sub(&unit_of(id)->owed, end - now);
	return 0;
}

/* KVM holds the locks of both run queues: what follows is left to dispatch(). */
SEC("struct_ops/yield")
_Bool BPF_PROG(yield, struct task_struct *from, struct task_struct *to)
{
	u32 f = id_of_task(from), t, cpu = bound(scx_bpf_task_cpu(from));

	if (!to) {
		cpus[cpu].yielded = 1;
		scx_bpf_task_set_slice(from, 0);
		return 0;
	}
	t = id_of_task(to);
	if (unit_part(f) == OTHERS || unit_part(t) == OTHERS || vm_part(f) != vm_part(t) ||
	    planned_cpu(f) == cpu || !vcpus_in(vm_of(f)->waits))
		return 0;
	/* A VM that is owed less than others leaves the CPU to them. */
	if (vm_of(f)->vt <= vnow + by_weight(f, SLICE_NS))
		cpus[cpu].spinner = f;
	cpus[cpu].yielded = 1;
	scx_bpf_task_set_slice(from, 0);
	return 1;
}

/* Which CPUs a thread may use: when it comes to SCHED_EXT, and when that changes. */
SEC("struct_ops/set_cpumask")
int BPF_PROG(set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	u32 id = id_of_task(p), i, choices = zero, bits = 8 * bpf_core_type_size(struct cpumask);
	struct unit *u = unit_of(id);

	if (unit_part(id) == OTHERS)
		return 0;
	bpf_for(i, 0, bits < CPUS_MAX ? bits : CPUS_MAX) {
		u64 *word = &u->mask[i >> 6 & (MASK_WORDS - 1)];

		if (bpf_cpumask_test_cpu(i, cpumask))
			*word |= 1ull << (i & 63);
		else
			*word &= ~(1ull << (i & 63));
	}
	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i);

		if (!may_use(u, cpu))
			continue;
		choices++;
		/* Where it waits if it has not run on one of these yet. */
		if (!may_use(u, u->cpu))
			u->cpu = cpu;
	}
	u->choices = choices;
	return 0;
}

static __always_inline int is_of_host(struct task_struct *p)
{
	return p->pid && p->policy != SCHED_EXT;
}

/* Counts time of the host's tasks. Threads that were given a CPU which one of them takes go where there is one. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bound(bpf_get_smp_processor_id());
	struct cpu *c = &cpus[cpu];
	u64 now;

	if (!c->is_ours)
		return 0;
	now = bpf_ktime_get_ns();
	charge_host(cpu, now);
	c->host_since = is_of_host(next) ? now : 0;
	if (!is_of_host(next))
		return 0;
	if (prev->policy == SCHED_EXT && prev->scx.flags & SCX_TASK_QUEUED)
		__sync_fetch_and_add(&report.pushed, 1);
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) <= 0)
		return 0;
	reenqueue_local();
	return 0;
}

SEC("struct_ops/cpu_online")
int BPF_PROG(cpu_online, s32 cpu)
{
	cpus[bound(cpu)].is_off = 0;
	return 0;
}

SEC("struct_ops/cpu_offline")
int BPF_PROG(cpu_offline, s32 cpu)
{
	cpus[bound(cpu)].is_off = 1;
	return 0;
}

static int turn_over(void *map, u32 *key, struct turn_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), end = turn_end;

	look_at_host(now);
	if (end <= now + MS / 10 || !goes_on())
		end = plan(now);
	else
		wake_idle();
	now = bpf_ktime_get_ns();
	end = end > now ? end - now : MS / 10;
	bpf_timer_start(&timer->timer, end < LOOK_NS ? end : LOOK_NS, 0);
	return 0;
}

/* KVM looks for a vCPU that a spinning one could yield to. */
SEC("fentry/kvm_vcpu_on_spin")
int BPF_PROG(spins)
{
	u32 tid = bpf_get_current_pid_tgid(), *found = bpf_map_lookup_elem(&threads, &tid), vm;

	if (!found)
		return 0;
	unit_of(*found)->in_exit = 1;
	vm = *found >> 6;
	asm volatile("" : "+r"(vm));
	__sync_fetch_and_add(&report.vms[vm & (VMS_MAX - 1)].spins, 1);
	return 0;
}

SEC("fexit/kvm_vcpu_on_spin")
int BPF_PROG(spun)
{
	u32 tid = bpf_get_current_pid_tgid(), *found = bpf_map_lookup_elem(&threads, &tid);

	if (found)
		unit_of(*found)->in_exit = 0;
	return 0;
}

/* Whether the kernel can take threads away from a CPU that a task of the host takes. The command asks at first. */
SEC("syscall")
int can_take_back(void *unused)
{
	return reenqueue_forms();
}

/* The command is about to give this number to another VM. */
SEC("syscall")
int forget_vm(u32 *number)
{
	u32 i, vm = *number & (VMS_MAX - 1);
	struct vm *v = vm_of(vm << 6);
	struct vm_report *r;

	bpf_for(i, 0, CPUS_MAX) {
		struct cpu *c = &cpus[bound(i)];

		if (c->planned != NOBODY && vm_part(c->planned) == vm)
			c->planned = NOBODY;
		if (c->held != NOBODY && vm_part(c->held) == vm)
			c->held = NOBODY;
		if (c->prefer != NOBODY && vm_part(c->prefer) == vm)
			c->prefer = NOBODY;
		if (c->spinner != NOBODY && vm_part(c->spinner) == vm)
			c->spinner = NOBODY;
	}
	bpf_for(i, 0, UNITS) {
		struct unit *u = unit_of(id_of(vm, i));

		u->vt = u->ready_at = u->off_at = u->owed = 0;
		u->planned = u->next = NOBODY;
		u->weight = 0;
		u->category = u->mark = u->in_exit = 0;
		may_use_all(u);
	}
	v->vt = vnow;
	v->waits = v->runs = v->late = v->owed = v->unit_vt = v->looked_ran = v->looked_spins = 0;
	v->gang_until = v->apart_until = 0;
	v->gang = v->in_turn = 0;
	asm volatile("" : "+r"(vm));
	r = &report.vms[vm & (VMS_MAX - 1)];
	r->ran_ns = r->filled_ns = r->waited_ns = r->spins = r->gangs = 0;
	return 0;
}

SEC("struct_ops.s/init")
int BPF_PROG(init)
{
	struct turn_timer *timer;
	u32 i, key = 0;
	int error;

	bpf_for(i, 0, CPUS_MAX) {
		struct cpu *c = &cpus[bound(i)];

		c->id = c->planned = c->next = c->held = c->prefer = c->spinner = NOBODY;
	}
	bpf_for(i, 0, config.cpu_count)
		cpus[bound(cpu_at(i))].is_ours = 1;
	ours = config.cpu_count;
	error = scx_bpf_create_dsq(ELSEWHERE, -1);
	if (error)
		return error;
	bpf_for(i, 0, VMS_MAX * UNITS) {
		struct unit *u = unit_of(i);

		u->planned = u->next = NOBODY;
		may_use_all(u);
		error = scx_bpf_create_dsq(QUEUE + i, -1);
		if (error)
			return error;
	}
	timer = bpf_map_lookup_elem(&timers, &key);
	if (!timer)
		return -1;
	error = bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC);
	if (error)
		return error;
	bpf_timer_set_callback(&timer->timer, turn_over);
	return bpf_timer_start(&timer->timer, LOOK_NS, 0);
}

SEC("struct_ops/exit")
int BPF_PROG(exited, struct scx_exit_info *info)
{
	note_ending(&report.ending, info);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops vms_ops = {
	.select_cpu = (void *)select_cpu,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.quiescent = (void *)quiescent,
	.yield = (void *)yield,
	.set_cpumask = (void *)set_cpumask,
	.cpu_online = (void *)cpu_online,
	.cpu_offline = (void *)cpu_offline,
	.init = (void *)init,
	.exit = (void *)exited,
	/*
	 * Without the last two the kernel puts such threads back on the CPU that switched() takes them from. It ends a
	 * scheduler in which that happens to one again and again.
	 */
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "unspin",
};
