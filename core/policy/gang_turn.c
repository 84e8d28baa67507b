// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * At the start of a turn: which VM owns which pCPUs, and where vCPUs should run. During a turn: which
 * vCPUs may run, and which may fill (policy/gang.h).
 */
#include "gang_free.h"
#include "gang_order.h"
#include "gang_rows.h"

_Static_assert(sizeof(struct gang_vm) == 48, "as in Rust");
_Static_assert(sizeof(struct gang_vcpu) == 24 + sizeof(void *), "as in Rust");
_Static_assert(sizeof(struct gang_cpu) == 88, "as in Rust");
_Static_assert(sizeof(struct gang_pool) == 120, "as in Rust");
_Static_assert(sizeof(struct gang_filler) == 16, "as in Rust");

/* --- pCPUs for a VM that is HIGH --- */

enum { NOWHERE, ALONE, SHARES };	/* gang_vcpu.placed: no target; alone on it; siblings wait behind it */

/*
 * Gives each vCPU that wants to run the pCPU it is on, if that is in the room. Of two on one pCPU, the
 * first gets it. Returns how many got none.
 */
static pol_u32 own_where_they_are(struct gang_host *host, pol_u32 who, const struct wish *wish)
{
	const struct gang_vm *vm = &host->vms[who];
	pol_u32 v, end = end_of(host, vm), missing = 0;

	for (v = vm->first; v < end; v++) {
		struct gang_vcpu *vcpu = &host->vcpus[v];
		const struct gang_cpu *cpu;

		vcpu->placed = NOWHERE;
		if (!wants(host, vcpu))
			continue;
		cpu = &host->cpus[vcpu->cpu];
		if (is_free(host, vcpu->cpu) && is_in_room(host, wish, vcpu->cpu)) {
			vcpu->placed = ALONE;
			take(host, vcpu->cpu, who, v);
			continue;
		}
		missing++;
		if (cpu->owner == who)
			host->vcpus[cpu->vcpu].placed = SHARES;
	}
	return missing;
}

static void disown(struct gang_host *host, pol_u32 who)
{
	pol_u32 v, end = end_of(host, &host->vms[who]);

	for (v = host->vms[who].first; v < end; v++) {
		if (host->vcpus[v].target == GANG_NONE)
			continue;
		give_back(host, host->vcpus[v].target);
		host->vcpus[v].target = GANG_NONE;
	}
}

/* The cache with most targets of a VM's vCPUs, or else with the first vCPU that wants to run. */
static void wish_of(struct gang_host *host, const struct gang_vm *vm, struct wish *wish)
{
	pol_u32 v, end = end_of(host, vm), most = 0, placed;

	wish->cache = wish->node = 0;
	wish->room = ANYWHERE;
	for (v = end; v > vm->first; v--)
		if (wants(host, &host->vcpus[v - 1]))
			wish_for(host, host->vcpus[v - 1].cpu, wish);
	for (v = vm->first; v < end; v++) {
		pol_u32 target = host->vcpus[v].target;

		if (target == GANG_NONE)
			continue;
		placed = ++first_of(host, host->cpus[target].cache)->placed;
		if (placed <= most)
			continue;
		most = placed;
		wish_for(host, target, wish);
	}
	for (v = vm->first; v < end; v++)
		if (host->vcpus[v].target != GANG_NONE)
			first_of(host, host->cpus[host->vcpus[v].target].cache)->placed = 0;
}

static pol_u8 any_alone(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++)
		if (host->vcpus[v].placed == ALONE)
			return 1;
	return 0;
}

/* The first pCPU of another cache or node that has room, or GANG_NONE. */
static pol_u32 other_with_room(const struct gang_host *host, const struct gang_vm *vm,
			       const struct wish *wish)
{
	const struct gang_vcpu *vcpu = &host->vcpus[vm->first];
	pol_u8 cache = wish->room == IN_CACHE;
	pol_u32 best = GANG_NONE, i;

	for (i = 0; vcpu->allowed && i < host->cpu_count; i++) {
		const struct gang_cpu *cpu = &host->cpus[i];

		if ((cache ? cpu->cache : cpu->node) != i || !(vcpu->allowed[i / 64] >> i % 64 & 1) ||
		    (cache ? cpu->cache_free : cpu->node_free) < vm->wanting)
			continue;
		if (cpu->node == wish->node)
			return i;
		best = best == GANG_NONE ? i : best;
	}
	return best;
}

/* Whether a cache, or a node, has room for a whole VM: the wish's, or else another. */
static pol_u8 find_room(const struct gang_host *host, const struct gang_vm *vm, pol_u32 room,
			struct wish *wish)
{
	pol_u32 other;

	wish->room = room;
	if ((room == IN_CACHE ? first_of(host, wish->cache)->cache_free :
				first_of(host, wish->node)->node_free) >= vm->wanting)
		return 1;
	other = other_with_room(host, vm, wish);
	if (other == GANG_NONE)
		return 0;
	wish_for(host, other, wish);
	wish->room = room;
	return 1;
}

/* Gives this vCPU the pCPU it is on, if the vCPU that has it as target can go to another. */
static pol_u8 make_room(struct gang_host *host, pol_u32 who, pol_u32 v, const struct wish *wish)
{
	pol_u32 here = host->vcpus[v].cpu, other, cpu;

	if (host->cpus[here].owner != who)
		return 0;
	other = host->cpus[here].vcpu;
	cpu = choose(host, &host->vcpus[other], wish);
	if (cpu == GANG_NONE)
		return 0;
	take(host, cpu, who, other);
	host->cpus[here].vcpu = v;
	host->vcpus[v].target = here;
	return 1;
}

/* Gives a pCPU to each vCPU that wants to run and has none yet. 0: one of them found none. */
static pol_u8 own_others(struct gang_host *host, pol_u32 who, const struct wish *wish)
{
	pol_u32 v, end = end_of(host, &host->vms[who]), cpu;

	for (v = host->vms[who].first; v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];

		if (vcpu->target != GANG_NONE || !wants(host, vcpu))
			continue;
		cpu = choose(host, vcpu, wish);
		if (cpu != GANG_NONE)
			take(host, cpu, who, v);
		else if (!make_room(host, who, v, wish))
			return 0;
	}
	return 1;
}

/* Moves a VM none of whose vCPUs is alone to one cache, or else to one node. 0: not all may run there. */
static pol_u8 gather(struct gang_host *host, pol_u32 who)
{
	const struct gang_vm *vm = &host->vms[who];
	struct wish wish;

	if (any_alone(host, vm))
		return 0;
	wish_of(host, vm, &wish);
	disown(host, who);
	if (!find_room(host, vm, IN_CACHE, &wish) && !find_room(host, vm, IN_NODE, &wish))
		return 0;
	own_where_they_are(host, who, &wish);
	return own_others(host, who, &wish);
}

/* Moves vCPUs that share a core with others to whole cores of the same cache. */
static void leave_second_threads(struct gang_host *host, pol_u32 who)
{
	pol_u32 v, end = end_of(host, &host->vms[who]), here, cpu;
	struct wish wish;

	for (v = host->vms[who].first; v < end; v++) {
		here = host->vcpus[v].target;
		if (here == GANG_NONE || first_of(host, host->cpus[here].core)->core_taken == 1 ||
		    !first_of(host, host->cpus[here].cache)->cache_whole)
			continue;
		wish_for(host, here, &wish);
		cpu = choose(host, &host->vcpus[v], &wish);
		if (cpu == GANG_NONE || host->cpus[cpu].cache != host->cpus[here].cache ||
		    first_of(host, host->cpus[cpu].core)->core_taken)
			continue;
		give_back(host, here);
		take(host, cpu, who, v);
	}
}

/* Gives a VM a pCPU for each vCPU that wants to run, or no pCPU at all. */
static pol_u8 own_cpus(struct gang_host *host, pol_u32 who, pol_u8 may_gather)
{
	static const struct wish anywhere = { 0, 0, ANYWHERE };
	struct wish wish;

	if (host->free_count < host->vms[who].wanting)
		return 0;
	if (!own_where_they_are(host, who, &anywhere))
		return 1;
	if (may_gather) {
		if (gather(host, who))
			return 1;
		disown(host, who);
		own_where_they_are(host, who, &anywhere);
	}
	wish_of(host, &host->vms[who], &wish);
	if (own_others(host, who, &wish))
		return 1;
	disown(host, who);
	return 0;
}

/* Whether each vCPU that wants to run has a pCPU without a sibling, so that none must move. */
static pol_u8 all_alone(struct gang_host *host, pol_u32 who)
{
	const struct gang_vm *vm = &host->vms[who];
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++) {
		struct gang_cpu *cpu;

		if (!wants(host, &host->vcpus[v]))
			continue;
		cpu = &host->cpus[host->vcpus[v].cpu];
		if (!cpu->usable || cpu->seen == who)
			return 0;
		cpu->seen = who;
	}
	return 1;
}

/* Finds the VMs with too few pCPUs even alone on the host. All pCPUs are free. Returns whether any is HIGH. */
static pol_u8 find_unplaced(struct gang_host *host)
{
	pol_u8 any = 0;
	pol_u32 i;

	for (i = 0; i < host->vm_count; i++) {
		struct gang_vm *vm = &host->vms[i];

		vm->unplaced = 0;
		if (!vm->high || !vm->wanting)
			continue;
		if (!all_alone(host, i)) {
			vm->unplaced = !own_cpus(host, i, 0);
			disown(host, i);
		}
		any |= gang_is_high(vm);
	}
	return any;
}

/* --- pCPUs for the group --- */

/* Gives the group every free pCPU on which a vCPU of this VM wants to run. Two on one pCPU share it. */
static void group_owns_cpus(struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++)
		if (wants(host, &host->vcpus[v]) && is_free(host, host->vcpus[v].cpu))
			take(host, host->vcpus[v].cpu, GANG_LOW, v);
}

/* Gives free pCPUs to its vCPUs that wait for one. "behind": only to those behind others of the group. */
static void group_spreads(struct gang_host *host, const struct gang_vm *vm, pol_u8 behind)
{
	pol_u32 v, end = end_of(host, vm), cpu;
	struct wish wish;

	for (v = vm->first; host->free_count && v < end; v++) {
		const struct gang_vcpu *vcpu = &host->vcpus[v];

		if (vcpu->target != GANG_NONE || !wants(host, vcpu))
			continue;
		if (behind && host->cpus[vcpu->cpu].owner != GANG_LOW)
			continue;
		wish_for(host, vcpu->cpu, &wish);
		cpu = choose(host, vcpu, &wish);
		if (cpu != GANG_NONE)
			take(host, cpu, GANG_LOW, v);
	}
}

/* vCPUs without a pCPU of their own run where they are, if the group owns that pCPU. */
static void group_stays(struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm);

	for (v = vm->first; v < end; v++) {
		struct gang_vcpu *vcpu = &host->vcpus[v];

		if (vcpu->target == GANG_NONE && is_there(host, vcpu) &&
		    host->cpus[vcpu->cpu].owner == GANG_LOW)
			vcpu->target = vcpu->cpu;
	}
}

/* --- the turn that starts --- */

static void place(struct gang_host *host, pol_u32 who)
{
	if (gang_is_high(&host->vms[who])) {
		own_cpus(host, who, 1);
		leave_second_threads(host, who);
	} else {
		group_owns_cpus(host, &host->vms[who]);
		group_spreads(host, &host->vms[who], 1);
	}
}

/* Call once all are placed, because the order depends on earlier turns. */
static void note_turn(struct gang_host *host)
{
	pol_u32 i;

	host->turn = host->turn < ~(pol_u32)0 ? host->turn + 1 : 1;
	for (i = 0; i < host->cpu_count; i++)
		if (host->cpus[i].owner < GANG_LOW)
			host->vms[host->cpus[i].owner].last_turn = host->turn;
}

static void note_group(struct gang_host *host)
{
	pol_u32 i;

	for (i = 0; i < host->cpu_count; i++)
		if (host->cpus[i].owner == GANG_LOW)
			host->cpus[i].low_last_turn = host->turn;
}

/* Keeps free pCPUs for sleeping vCPUs whose VM has a turn: where they are, or anywhere. */
static void keep_for_sleepers(struct gang_host *host, pol_u8 anywhere)
{
	pol_u32 i, v, end, cpu;
	struct wish wish;

	for (i = 0; host->free_count && i < host->vm_count; i++) {
		const struct gang_vm *vm = &host->vms[i];

		if (!gang_is_high(vm) || vm->last_turn != host->turn)
			continue;
		if (anywhere)
			wish_of(host, vm, &wish);
		end = end_of(host, vm);
		for (v = vm->first; v < end; v++) {
			const struct gang_vcpu *vcpu = &host->vcpus[v];

			if (vcpu->target != GANG_NONE || vcpu->held_back || !is_there(host, vcpu))
				continue;
			cpu = is_free(host, vcpu->cpu) ? vcpu->cpu :
			      anywhere ? choose(host, vcpu, &wish) : GANG_NONE;
			if (cpu != GANG_NONE)
				take(host, cpu, i, v);
		}
	}
}

/* Places the rest after all VMs had their choice: vCPUs that want to run before those that sleep. */
static void place_rest(struct gang_host *host, pol_u32 count)
{
	pol_u32 i;

	keep_for_sleepers(host, 0);
	for (i = 0; i < count; i++)
		if (!gang_is_high(&host->vms[host->order[i]]))
			group_spreads(host, &host->vms[host->order[i]], 0);
	keep_for_sleepers(host, 1);
	for (i = 0; i < host->vm_count; i++)
		if (!gang_is_high(&host->vms[i]))
			group_stays(host, &host->vms[i]);
}

pol_u8 gang_turn(struct gang_host *host)
{
	pol_u32 count, i;
	pol_u8 any_high;

	all_free(host);
	any_high = find_unplaced(host);
	count = sort_vms(host);
	if (!any_high || count < 2)
		return 0;
	for (i = 0; i < count; i++)
		place(host, host->order[i]);
	note_turn(host);
	place_rest(host, count);
	note_group(host);
	return 1;
}

pol_u8 gang_may_run(const struct gang_host *host, pol_u32 vm, pol_u32 cpu)
{
	pol_u32 owner = cpu < host->cpu_count ? host->cpus[cpu].owner : GANG_NONE;

	if (owner == GANG_NONE || vm >= host->vm_count)
		return 1;
	return owner == (gang_is_high(&host->vms[vm]) ? vm : GANG_LOW);
}

/* --- holes --- */

pol_u32 gang_fill(const struct gang_filler *candidates, pol_u32 count)
{
	pol_u32 best = GANG_NONE, i;

	for (i = 0; i < count && i < GANG_FILLERS_MAX; i++) {
		if (candidates[i].lock)
			continue;
		if (best == GANG_NONE || candidates[i].owed > candidates[best].owed)
			best = i;
	}
	return best;
}
