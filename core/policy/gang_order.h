/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The order in which VMs get pCPUs when a turn starts. Only policy/gang_turn.c includes it.
 */
#ifndef UNSPIN_POLICY_GANG_ORDER_H
#define UNSPIN_POLICY_GANG_ORDER_H

#include "gang_rows.h"

#define WANTING_MAX (1u << 22)	/* more vCPUs count as this, so that products fit */

/* Turn numbers wrap from the last one to 1. */
static inline pol_u32 turns_since(const struct gang_host *host, pol_u32 turn)
{
	return host->turn >= turn ? host->turn - turn : ~(turn - host->turn);
}

/* Turns since its last one. For a LOW VM: of the pCPU on which the group has waited longest. */
static inline pol_u32 waited(const struct gang_host *host, const struct gang_vm *vm)
{
	pol_u32 v, end = end_of(host, vm), most = 0, turns;

	if (gang_is_high(vm))
		return turns_since(host, vm->last_turn);
	for (v = vm->first; v < end; v++) {
		if (!wants(host, &host->vcpus[v]))
			continue;
		turns = turns_since(host, host->cpus[host->vcpus[v].cpu].low_last_turn);
		most = turns > most ? turns : most;
	}
	return most;
}

/* It has had as much time as a turn gives, and no turn for long; gang.h says why. */
static inline pol_u8 comes_first(const struct gang_vm *vm)
{
	return gang_is_high(vm) && vm->apart_enough && vm->waited >= GANG_APART_TURNS;
}

/*
 * Orders by: whether it comes first; what is owed per vCPU that wants to run; the time since its last
 * turn; its index.
 */
static inline pol_u8 comes_before(const struct gang_host *host, pol_u32 i, pol_u32 k)
{
	const struct gang_vm *a = &host->vms[i], *b = &host->vms[k];
	gang_s64 left = clamped(a->owed, GANG_TIME_MAX) * pol_clamp_u32(b->wanting, 0, WANTING_MAX);
	gang_s64 right = clamped(b->owed, GANG_TIME_MAX) * pol_clamp_u32(a->wanting, 0, WANTING_MAX);

	if (comes_first(a) != comes_first(b))
		return comes_first(a);
	if (left != right)
		return left > right;
	return a->waited != b->waited ? a->waited > b->waited : i < k;
}

/* Restores the heap below "root"; the VM that comes last is on top. */
static inline void sift(struct gang_host *host, pol_u32 root, pol_u32 count)
{
	pol_u32 *order = host->order, child, top = order[root];

	for (; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && comes_before(host, order[child], order[child + 1]))
			child++;
		if (!comes_before(host, top, order[child]))
			break;
		order[root] = order[child];
	}
	order[root] = top;
}

/* Sorts the VMs that want to run. Returns how many there are. */
static inline pol_u32 sort_vms(struct gang_host *host)
{
	pol_u32 count = 0, i, last;

	for (i = 0; i < host->vm_count; i++) {
		if (!host->vms[i].wanting)
			continue;
		host->vms[i].waited = waited(host, &host->vms[i]);
		host->order[count++] = i;
	}
	for (i = count / 2; i > 0; i--)
		sift(host, i - 1, count);
	for (i = count; i > 1; i--) {
		last = host->order[0];
		host->order[0] = host->order[i - 1];
		host->order[i - 1] = last;
		sift(host, 0, i - 1);
	}
	return count;
}

#endif
