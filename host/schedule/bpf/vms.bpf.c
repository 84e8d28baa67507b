// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler for VMs: all threads of VMs on CPUs that no other tasks have for long. Each VM has one virtual
 * time, which goes with its weight. VMs whose vCPUs spin for each other have turns (plan.h). Holes in turns go to
 * others, until a sibling wakes up. Threads that wait are always in a queue of the kernel's.
 */
#include "choose.h"

char _license[] SEC("license") = "GPL";

/* What a VM must be owed more than another before a thread of its that wakes up takes the other's CPU. */
#define PREEMPT_NS MS

struct turn_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turn_timer);
} timers SEC(".maps");

SEC("struct_ops/dispatch")
int BPF_PROG(dispatch, s32 on, struct task_struct *prev)
{
	u32 cpu = bound(on), before = NOBODY;

	if (!cpus[cpu].is_ours)
		return 0;
	if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
		before = id_of_task(prev);
		charge(cpu, bpf_ktime_get_ns());
	}
	if (choose(cpu, before) && before != NOBODY && prev) {
		has_cpu(cpu, before);
		scx_bpf_task_set_slice(prev, config.slice_ns);
	}
	return 0;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(select_cpu, struct task_struct *p, s32 prev_cpu, u64 flags)
{
	u32 id = id_of_task(p), planned;
	_Bool idle = 0;
	s32 cpu;

	if (id != NOBODY) {
		planned = planned_cpu(id);
		if (planned != NOBODY) {
			if (scx_bpf_test_and_clear_cpu_idle(planned))
				scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, config.slice_ns, 0);
			return planned;
		}
	}
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, flags, &idle);
	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, config.slice_ns, 0);
	return cpu;
}

/* A CPU in a gang's turn that none of its siblings uses, for a vCPU of the gang that woke up. */
__noinline u32 claim(u32 id)
{
	u32 i;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i), of, pinned = unit_of(id)->pinned;
		struct cpu *c = &cpus[bound(cpu)];
		struct vm *v;

		if (c->is_off || (pinned != NOBODY && pinned != cpu))
			continue;
		of = c->planned;
		if (of != NOBODY) {
			v = vm_of(of);
			if (vm_part(of) != vm_part(id) || (v->waits | v->runs) & bit(unit_part(of)))
				continue;
		} else if (c->id != NOBODY && !c->fills && !is_gang(vm_of(c->id)) &&
			   vm_of(c->id)->vt < vm_of(id)->vt) {
			continue;	/* it is owed more */
		}
		c->planned = id;
		unit_of(id)->planned = cpu;
		return cpu;
	}
	return NOBODY;
}

/* A CPU that is idle, which is no longer known as that; NOBODY if there is none. */
__noinline u32 idle_cpu(u32 id)
{
	u32 i, pinned = unit_of(id)->pinned;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i);

		if (cpus[bound(cpu)].id == NOBODY && (pinned == NOBODY || pinned == cpu) &&
		    scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return NOBODY;
}

/*
 * The CPU of the thread that is owed least, if it is owed less than this one. Other threads of a VM also come
 * before a vCPU of it that has had more.
 */
__noinline u32 victim(u32 id, u64 now)
{
	u64 most = vm_of(id)->vt + (unit_part(id) == OTHERS ? 0 : PREEMPT_NS);
	u64 unit_most = unit_of(id)->vt + PREEMPT_NS;
	u32 i, best = NOBODY, own = NOBODY;

	bpf_for(i, 0, config.cpu_count) {
		u32 cpu = cpu_at(i), pinned = unit_of(id)->pinned, of;
		struct cpu *c = &cpus[bound(cpu)];
		u64 key, since = c->since;

		of = c->id;
		if (of == NOBODY || (pinned != NOBODY && pinned != cpu))
			continue;
		if (vm_part(of) == vm_part(id)) {
			if (unit_part(id) == OTHERS && unit_part(of) != OTHERS && unit_of(of)->vt > unit_most) {
				unit_most = unit_of(of)->vt;
				own = cpu;
			}
			continue;
		}
		key = vm_of(of)->vt + (now > since ? now - since : 0) * 100 / weight_of(of);
		if (c->fills)
			key |= LAST;
		else if (c->planned == of)
			key = key > config.turn_ns ? key - config.turn_ns : 0;
		if (key > most) {
			most = key;
			best = cpu;
		}
	}
	return best != NOBODY ? best : own;
}

SEC("struct_ops/enqueue")
int BPF_PROG(enqueue, struct task_struct *p, u64 flags)
{
	u32 id = id_of_task(p), cpu;
	struct vm *v;
	struct unit *u;

	/* It has been pinned elsewhere: no CPU of ours could run it. */
	if (id == NOBODY || !cpus[bound(scx_bpf_task_cpu(p))].is_ours) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, config.slice_ns, flags);
		return 0;
	}
	v = vm_of(id);
	u = unit_of(id);
	u->pinned = p->nr_cpus_allowed == 1 && unit_part(id) != OTHERS ? (u32)scx_bpf_task_cpu(p) : NOBODY;
	lift(v, u);
	if (!(v->waits & bit(unit_part(id))))
		u->ready_at = bpf_ktime_get_ns();
	__sync_fetch_and_or(&v->waits, bit(unit_part(id)));
	scx_bpf_dsq_insert(p, QUEUE + id, config.slice_ns, flags);
	cpu = planned_cpu(id);
	if (cpu == NOBODY && v->in_turn && unit_part(id) != OTHERS && is_gang(v)) {
		cpu = claim(id);
		if (cpu != NOBODY)
			__sync_fetch_and_add(&report.returned, 1);
	}
	if (cpu != NOBODY) {
		if (cpus[bound(cpu)].id != id)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return 0;
	}
	cpu = idle_cpu(id);
	if (cpu != NOBODY) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return 0;
	}
	if (!(flags & SCX_ENQ_WAKEUP) || (unit_part(id) != OTHERS && is_gang(v)))
		return 0;
	cpu = victim(id, bpf_ktime_get_ns());
	if (cpu != NOBODY) {
		if (unit_part(id) == OTHERS)
			cpus[bound(cpu)].prefer = id;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

SEC("struct_ops/running")
int BPF_PROG(running, struct task_struct *p)
{
	u32 id = id_of_task(p), cpu = bound(scx_bpf_task_cpu(p));
	struct cpu *c = &cpus[cpu];
	struct vm *v;
	struct unit *u;

	if (id == NOBODY)
		return 0;
	v = vm_of(id);
	u = unit_of(id);
	if (unit_part(id) != OTHERS || !scx_bpf_dsq_nr_queued(QUEUE + id))
		__sync_fetch_and_and(&v->waits, ~bit(unit_part(id)));
	__sync_fetch_and_or(&v->runs, bit(unit_part(id)));
	u->cpu = cpu;
	u->weight = p->scx.weight;
	lift(v, u);
	if (c->late == LATE_NEXT) {
		c->late = LATE_DONE;
		scx_bpf_task_set_slice(p, MS);
	}
	has_cpu(cpu, id);
	c->since = bpf_ktime_get_ns();
	c->id = id;
	return 0;
}

SEC("struct_ops/stopping")
int BPF_PROG(stopping, struct task_struct *p, _Bool runnable)
{
	u32 id = id_of_task(p), cpu = bound(scx_bpf_task_cpu(p));

	charge(cpu, bpf_ktime_get_ns());
	cpus[cpu].id = NOBODY;
	if (id != NOBODY)
		__sync_fetch_and_and(&vm_of(id)->runs, ~bit(unit_part(id)));
	return 0;
}

SEC("struct_ops/quiescent")
int BPF_PROG(quiescent, struct task_struct *p, u64 flags)
{
	u32 id = id_of_task(p);

	if (id != NOBODY && unit_part(id) != OTHERS)
		__sync_fetch_and_and(&vm_of(id)->waits, ~bit(unit_part(id)));
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
	if (f == NOBODY || t == NOBODY || vm_part(f) != vm_part(t) || planned_cpu(f) == cpu ||
	    !(vm_of(t)->waits & bit(unit_part(t))))
		return 0;
	cpus[cpu].prefer = t;
	cpus[cpu].yielded = 1;
	scx_bpf_task_set_slice(from, 0);
	__sync_fetch_and_add(&report.yields, 1);
	return 1;
}

/* A task of a higher class takes a CPU: threads that were given it go where there is one. */
SEC("struct_ops/cpu_release")
int BPF_PROG(cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	if (scx_bpf_reenqueue_local())
		__sync_fetch_and_add(&report.pushed, 1);
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

	if (end <= now + MS / 10 || !goes_on())
		end = plan(now);
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
	vm = *found >> 6;
	asm volatile("" : "+r"(vm));
	__sync_fetch_and_add(&report.vms[vm & (VMS_MAX - 1)].spins, 1);
	return 0;
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
		if (c->prefer != NOBODY && vm_part(c->prefer) == vm)
			c->prefer = NOBODY;
	}
	bpf_for(i, 0, UNITS) {
		struct unit *u = unit_of(id_of(vm, i));

		u->vt = u->ready_at = 0;
		u->planned = u->next = u->pinned = NOBODY;
		u->weight = 0;
	}
	v->vt = vnow;
	v->waits = v->runs = v->late = v->unit_vt = v->looked_ran = v->looked_spins = 0;
	v->gang_until = v->apart_until = 0;
	v->gang = v->in_turn = 0;
	asm volatile("" : "+r"(vm));
	r = &report.vms[vm & (VMS_MAX - 1)];
	r->ran_ns = r->filled_ns = r->spins = r->gangs = 0;
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

		c->id = c->planned = c->next = c->prefer = NOBODY;
	}
	bpf_for(i, 0, config.cpu_count)
		cpus[bound(cpu_at(i))].is_ours = 1;
	bpf_for(i, 0, VMS_MAX * UNITS) {
		struct unit *u = unit_of(i);

		u->planned = u->next = u->pinned = NOBODY;
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
	.cpu_release = (void *)cpu_release,
	.cpu_online = (void *)cpu_online,
	.cpu_offline = (void *)cpu_offline,
	.init = (void *)init,
	.exit = (void *)exited,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "unspin",
};
