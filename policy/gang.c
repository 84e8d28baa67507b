// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "gang.h"

_Static_assert(sizeof(struct gang_vm) == 32, "as in Rust");
_Static_assert(sizeof(struct gang_vcpu) == 24 + sizeof(void *), "as in Rust");
_Static_assert(sizeof(struct gang_cpu) == 40, "as in Rust");
_Static_assert(sizeof(struct gang_use) == 24, "as in Rust");

#define WANTING_MAX (1u << 22)	/* more vCPUs of a candidate count as these: products fit */

static pol_u64 weight_of(const struct gang_vcpu *vcpu)
{
	return pol_clamp_u32(vcpu->weight, 1, GANG_WEIGHT_MAX);
}

static pol_u64 time_of(const struct gang_vcpu *vcpu)
{
	return vcpu->got < GANG_TIME_MAX ? vcpu->got : GANG_TIME_MAX;
}

/* The vCPUs of a VM, without any that are not there. */
static pol_u32 end_of(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 first = vm->first < host->vcpu_count ? vm->first : host->vcpu_count;
	pol_u32 left = host->vcpu_count - first;

	return first + (vm->count < left ? vm->count : left);
}

static pol_u8 is_there(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return vcpu->cpu < host->cpu_count;
}

static pol_u8 wants(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return vcpu->wants && is_there(host, vcpu);
}

/* --- the turn that ends --- */

static pol_u8 takes_part(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	return is_there(host, vcpu) && (vcpu->wants || vcpu->got);
}

static gang_s64 clamped(gang_s64 owed, pol_u64 clamp)
{
	gang_s64 bound = (gang_s64)(clamp < GANG_TIME_MAX ? clamp : GANG_TIME_MAX);

	return owed > bound ? bound : owed < -bound ? -bound : owed;
}

/* Towards 0. BPF has no signed division. */
static gang_s64 divided(gang_s64 owed, pol_u64 by)
{
	return owed < 0 ? -(gang_s64)((pol_u64)-owed / by) : (gang_s64)((pol_u64)owed / by);
}

/* Whether its time is the group's, whose vCPUs have run as the scheduler has them. */
static pol_u8 is_of_group(const struct gang_vm *vm, const struct gang_cpu *cpu)
{
	return !vm->high && cpu->owner >= GANG_LOW;
}

static void cpu_sum(struct gang_cpu *cpu, const struct gang_vcpu *vcpu, pol_u8 of_group)
{
	cpu->time += time_of(vcpu);
	cpu->weight += weight_of(vcpu);
	if (!of_group)
		return;
	cpu->group_time += time_of(vcpu);
	cpu->group_weight += weight_of(vcpu);
}

/* What each pCPU gave, and to how many, by weight. */
static void cpus_sum(struct gang_host *host)
{
	pol_u32 i, v;

	for (i = 0; i < host->cpu_count; i++) {
		host->cpus[i].time = host->cpus[i].weight = 0;
		host->cpus[i].group_time = host->cpus[i].group_weight = 0;
	}
	for (i = 0; i < host->vm_count; i++) {
		for (v = host->vms[i].first; v < end_of(host, &host->vms[i]); v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];
			struct gang_cpu *cpu;

			if (!takes_part(host, vcpu))
				continue;
			cpu = &host->cpus[vcpu->cpu];
			cpu_sum(cpu, vcpu, is_of_group(&host->vms[i], cpu));
		}
	}
}

/* What counts as a vCPU's time. */
static pol_u64 charge_of(const struct gang_vm *vm, const struct gang_vcpu *vcpu,
			 const struct gang_cpu *cpu)
{
	if (!is_of_group(vm, cpu))
		return time_of(vcpu);
	return pol_mul_div(cpu->group_time, weight_of(vcpu), cpu->group_weight);
}

static void vm_account(const struct gang_host *host, struct gang_vm *vm, pol_u64 clamp)
{
	pol_u32 v;

	vm->owed = clamped(vm->owed, GANG_TIME_MAX);
	vm->wanting = 0;
	for (v = vm->first; v < end_of(host, vm); v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];
		const struct gang_cpu *cpu;

		if (!takes_part(host, vcpu))
			continue;
		cpu = &host->cpus[vcpu->cpu];
		vm->wanting += !!vcpu->wants;
		vm->owed += (gang_s64)pol_mul_div(cpu->time, weight_of(vcpu), cpu->weight);
		vm->owed -= (gang_s64)charge_of(vm, vcpu, cpu);
	}
	vm->owed = vm->wanting ? clamped(vm->owed, pol_sat_mul(clamp, vm->wanting)) :
				  divided(vm->owed, 2);
}

void gang_account(struct gang_host *host, pol_u64 clamp)
{
	pol_u32 i;

	cpus_sum(host);
	for (i = 0; i < host->vm_count; i++)
		vm_account(host, &host->vms[i], clamp);
}

/* --- the turn that starts --- */

struct candidate {
	gang_s64 owed;
	pol_u32 wanting;
	pol_u32 vm;
};

/* Nobody: wanting is 0. */
static void of_vm(const struct gang_host *host, pol_u32 i, struct candidate *c)
{
	const struct gang_vm *vm = &host->vms[i];

	c->owed = clamped(vm->owed, GANG_TIME_MAX);
	c->wanting = pol_clamp_u32(vm->wanting, 0, WANTING_MAX);
	c->vm = i;
}

/* The last number of a turn is followed by 1. */
static pol_u32 turns_since(const struct gang_host *host, pol_u32 turn)
{
	return host->turn >= turn ? host->turn - turn : ~(turn - host->turn);
}

/* Turns since its last. A VM that is LOW waits where the group has had none for longest. */
static pol_u32 waited(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, most = 0, turns;

	if (vm->high)
		return turns_since(host, vm->last_turn);
	for (v = vm->first; v < end_of(host, vm); v++) {
		if (!wants(host, &host->vcpus[v]))
			continue;
		turns = turns_since(host, host->cpus[host->vcpus[v].cpu].low_last_turn);
		most = turns > most ? turns : most;
	}
	return most;
}

/*
 * By what is owed for each vCPU that wants to run; of equals, who has not had a turn for longer;
 * of these by index.
 */
static pol_u8 comes_before(const struct gang_host *host, const struct candidate *a,
			   const struct candidate *b)
{
	gang_s64 left = a->owed * (gang_s64)b->wanting, right = b->owed * (gang_s64)a->wanting;
	pol_u32 a_waited, b_waited;

	if (left != right)
		return left > right;
	a_waited = waited(host, &host->vms[a->vm]);
	b_waited = waited(host, &host->vms[b->vm]);
	return a_waited != b_waited ? a_waited > b_waited : a->vm < b->vm;
}

/* Who comes next after "last" (NULL: who comes first), which may be "next". Nobody: wanting is 0. */
static void next_candidate(const struct gang_host *host, const struct candidate *last,
			   struct candidate *next)
{
	struct candidate best = { 0, 0, GANG_NONE }, c;
	pol_u32 i;

	for (i = 0; i < host->vm_count; i++) {
		of_vm(host, i, &c);
		if (!c.wanting || (last && !comes_before(host, last, &c)))
			continue;
		if (!best.wanting || comes_before(host, &c, &best))
			best = c;
	}
	*next = best;
}

/* A pCPU without an owner where the vCPU may run. GANG_NONE: none. */
static pol_u32 free_cpu(const struct gang_host *host, const struct gang_vcpu *vcpu)
{
	pol_u32 i;

	for (i = 0; vcpu->allowed && i < host->cpu_count; i++)
		if (host->cpus[i].owner == GANG_NONE && vcpu->allowed[i / 64] >> i % 64 & 1)
			return i;
	return GANG_NONE;
}

/* Each vCPU that wants to run gets the pCPU it is on; of two on one, the first. */
static void own_where_they_are(struct gang_host *host, pol_u32 who)
{
	const struct gang_vm *vm = &host->vms[who];
	pol_u32 v;

	for (v = vm->first; v < end_of(host, vm); v++) {
		struct gang_vcpu *vcpu = &host->vcpus[v];

		vcpu->placed = wants(host, vcpu) && host->cpus[vcpu->cpu].owner == GANG_NONE;
		if (vcpu->placed)
			host->cpus[vcpu->cpu].owner = who;
	}
}

/* A free pCPU for a vCPU, or for the one of its VM that has the pCPU it is on: that one makes room. */
static pol_u32 find_cpu(struct gang_host *host, const struct gang_vm *vm, struct gang_vcpu *vcpu)
{
	pol_u32 cpu = free_cpu(host, vcpu), v;

	for (v = vm->first; cpu == GANG_NONE && v < end_of(host, vm); v++) {
		struct gang_vcpu *other = &host->vcpus[v];

		if (!other->placed || other->cpu != vcpu->cpu)
			continue;
		cpu = free_cpu(host, other);
		vcpu->placed = cpu != GANG_NONE;
		other->placed = !vcpu->placed;
		break;
	}
	return cpu;
}

/* Gives a VM a pCPU for each vCPU that wants to run. 0: one of them found none. */
static pol_u8 own_cpus(struct gang_host *host, pol_u32 who)
{
	const struct gang_vm *vm = &host->vms[who];
	pol_u8 all = 1;
	pol_u32 v, cpu;

	own_where_they_are(host, who);
	for (v = vm->first; v < end_of(host, vm); v++) {
		if (host->vcpus[v].placed || !wants(host, &host->vcpus[v]))
			continue;
		cpu = find_cpu(host, vm, &host->vcpus[v]);
		if (cpu == GANG_NONE)
			all = 0;
		else
			host->cpus[cpu].owner = who;
	}
	return all;
}

static void disown_cpus(struct gang_host *host, pol_u32 who)
{
	pol_u32 i;

	for (i = 0; i < host->cpu_count; i++)
		if (host->cpus[i].owner == who)
			host->cpus[i].owner = GANG_NONE;
}

/* The group has every free pCPU where a vCPU of this VM wants to run. */
static void group_owns_cpus(struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v;

	for (v = vm->first; v < end_of(host, vm); v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];

		if (wants(host, vcpu) && host->cpus[vcpu->cpu].owner == GANG_NONE)
			host->cpus[vcpu->cpu].owner = GANG_LOW;
	}
}

/* The first has what it needs, even where it has more vCPUs than pCPUs; others all or nothing. */
static void place(struct gang_host *host, pol_u32 who, pol_u8 first)
{
	if (!host->vms[who].high)
		group_owns_cpus(host, &host->vms[who]);
	else if (!own_cpus(host, who) && !first)
		disown_cpus(host, who);
}

/* Not before all are placed: their order is by the turns before. */
static void note_turn(struct gang_host *host)
{
	pol_u32 i;

	host->turn = host->turn < ~(pol_u32)0 ? host->turn + 1 : 1;
	for (i = 0; i < host->cpu_count; i++) {
		if (host->cpus[i].owner == GANG_LOW)
			host->cpus[i].low_last_turn = host->turn;
		else if (host->cpus[i].owner != GANG_NONE)
			host->vms[host->cpus[i].owner].last_turn = host->turn;
	}
}

/* pCPUs that are left are kept for vCPUs that sleep there and whose VM has a turn. */
static void keep_for_sleepers(struct gang_host *host)
{
	pol_u32 i, v;

	for (i = 0; i < host->vm_count; i++) {
		const struct gang_vm *vm = &host->vms[i];

		if (!vm->high || vm->last_turn != host->turn)
			continue;
		for (v = vm->first; v < end_of(host, vm); v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];

			if (is_there(host, vcpu) && host->cpus[vcpu->cpu].owner == GANG_NONE)
				host->cpus[vcpu->cpu].owner = i;
		}
	}
}

static pol_u8 any_high(const struct gang_host *host)
{
	pol_u32 i;

	for (i = 0; i < host->vm_count; i++)
		if (host->vms[i].high && host->vms[i].wanting)
			return 1;
	return 0;
}

pol_u8 gang_turn(struct gang_host *host)
{
	struct candidate c, rival;
	pol_u32 i;

	for (i = 0; i < host->cpu_count; i++)
		host->cpus[i].owner = GANG_NONE;
	next_candidate(host, (void *)0, &c);
	next_candidate(host, &c, &rival);
	if (!any_high(host) || !rival.wanting)
		return 0;
	place(host, c.vm, 1);
	for (c = rival; c.wanting; next_candidate(host, &c, &c))
		place(host, c.vm, 0);
	note_turn(host);
	keep_for_sleepers(host);
	return 1;
}

pol_u8 gang_may_run(const struct gang_host *host, pol_u32 vm, pol_u32 cpu)
{
	pol_u32 owner = cpu < host->cpu_count ? host->cpus[cpu].owner : GANG_NONE;

	if (owner == GANG_NONE || vm >= host->vm_count)
		return 1;
	return owner == (host->vms[vm].high ? vm : GANG_LOW);
}

/* --- holes --- */

pol_u32 gang_fill(const struct gang_host *host, pol_u32 cpu)
{
	pol_u32 best = GANG_NONE, best_vm = 0, i, v;

	for (i = 0; i < host->vm_count; i++) {
		for (v = host->vms[i].first; v < end_of(host, &host->vms[i]); v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];

			if (!vcpu->parked || vcpu->lock || vcpu->cpu != cpu || !is_there(host, vcpu))
				continue;
			if (best == GANG_NONE || host->vms[i].owed > host->vms[best_vm].owed) {
				best = v;
				best_vm = i;
			}
		}
	}
	return best;
}

/* --- tasks of the host --- */

static gang_s64 mean(gang_s64 before, gang_s64 of_turn)
{
	before = clamped(before, GANG_TIME_MAX);
	return before + divided(of_turn - before, GANG_USE_TURNS);
}

void gang_use_begin(struct gang_use *use, pol_u64 turn)
{
	use->of_host = 0;
	use->of_all = (gang_s64)(turn < GANG_TIME_MAX ? turn : GANG_TIME_MAX);
	use->used = 0;
}

pol_u8 gang_use(struct gang_use *use, gang_s64 of_host, pol_u64 turn)
{
	gang_s64 length = (gang_s64)(turn < GANG_TIME_MAX ? turn : GANG_TIME_MAX);

	use->of_host = mean(use->of_host, clamped(of_host, turn));
	use->of_all = mean(use->of_all, length);
	if (use->of_host * 100 > use->of_all * GANG_USE_MOST_PERCENT)
		use->used = 1;
	else if (use->of_host * 100 < use->of_all * GANG_USE_AGAIN_PERCENT)
		use->used = 0;
	return use->used;
}
