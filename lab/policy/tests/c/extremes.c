// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Every policy function at the borders of its types, for builds with sanitizers: a wrap
 * that the code does not define aborts the program. Prints a checksum, so that nothing is
 * optimised away and two builds can be compared.
 */
#include <stdio.h>

#include "aple.h"
#include "asym.h"
#include "credit.h"
#include "gang.h"
#include "hvs.h"
#include "kvm_stock.h"
#include "userspin.h"
#include "vcrd.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const pol_u64 border64[] = {
	0, 1, 2, 1000000, 0xffffffffu, 1ull << 32, 18446744073709ull, 18446744073710ull,
	1ull << 63, POL_U64_MAX - 1, POL_U64_MAX,
};
static const pol_u32 border32[] = {
	0, 1, 2, 4096, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu,
};

static pol_u32 sum;

static void note(pol_u32 value)
{
	pol_u32 mixed = sum << 5 | sum >> 27;

	sum = mixed ^ value;
}

static void aple_at(pol_u32 init, pol_u32 min, pol_u32 max, pol_u32 delta)
{
	struct aple_params params = { init, min, max, delta, 1, ~delta, 0 };
	struct aple_state state;
	size_t i;

	note((pol_u32)aple_params_check(&params));
	note(aple_window_complete(&params, init));
	aple_init(&state, &params);
	state.epochs = POL_U64_MAX - 1;
	state.rounds = POL_U64_MAX;
	for (i = 0; i < COUNT(border64); i++) {
		struct aple_epoch epoch = { POL_U64_MAX, border64[i], 1, border64[i] };

		note(aple_epoch_end(&state, &params, &epoch));
	}
}

static void aple(void)
{
	size_t i, j, k, l;

	for (i = 0; i < COUNT(border64); i++)
		for (j = 0; j < COUNT(border64); j++)
			for (k = 0; k < COUNT(border64); k++) {
				struct aple_epoch epoch = { 0, border64[i], border64[j],
							    border64[k] };

				note((pol_u32)aple_inefficiency_ppm(&epoch));
			}
	for (i = 0; i < COUNT(border32); i++)
		for (j = 0; j < COUNT(border32); j++)
			for (k = 0; k < COUNT(border32); k++)
				for (l = 0; l < COUNT(border32); l++)
					aple_at(border32[i], border32[j], border32[k], border32[l]);
}

static void asym_at(pol_u32 a, pol_u32 b, pol_u32 c, pol_u32 count)
{
	struct asym_params params = { a, b, c, a, b, c, a, b };
	struct asym_vcpu vcpus[8];
	struct asym_core cores[4];
	pol_u32 i;

	note((pol_u32)asym_params_check(&params));
	for (i = 0; i < COUNT(vcpus); i++) {
		asym_vcpu_init(&vcpus[i], &params, i % 6 == 5 ? border32[a % 8] : i % 4);
		vcpus[i].allocated_ns = border64[(a % 11 + 3 * i) % COUNT(border64)];
		vcpus[i].consumed_ns = border64[(b % 7 + i) % COUNT(border64)];
		vcpus[i].wakers = border64[i];
		vcpus[i].ready = (pol_u8)(i % 3 * 127);
	}
	for (i = 0; i < COUNT(cores); i++)
		cores[i].conflicts = border64[(c % 5 + i) % COUNT(border64)];
	asym_latency(vcpus, count, &params);
	note(asym_resolve_urgency(vcpus, count, cores, count % 5, &params));
	note(asym_resolve_time(vcpus, count, cores, count % 5, &params));
	asym_allocate(vcpus, count, &params, border64[(a % 9 + b % 3) % COUNT(border64)], b);
	note(asym_resolve_time(vcpus, count, cores, count % 5, &params));
	for (i = 0; i < COUNT(vcpus); i++) {
		note((pol_u32)vcpus[i].allocated_ns);
		note(vcpus[i].latency_us);
		note(vcpus[i].core);
	}
}

static void asym_all(void)
{
	size_t i, j, k;
	pol_u32 count;

	for (i = 0; i < COUNT(border32); i++)
		for (j = 0; j < COUNT(border32); j++)
			for (k = 0; k < COUNT(border32); k++)
				for (count = 0; count <= 8; count++)
					asym_at(border32[i], border32[j], border32[k], count);
}

static void credit_at(pol_u32 a, pol_u32 b, pol_u32 c, pol_u32 count)
{
	struct credit_params params = { a, b, c, a, b };
	struct credit_vm vms[3] = { { 0 } };
	struct credit_vcpu vcpus[8] = { { 0 } };
	struct credit_pcpu pcpus[4];
	struct credit_host host = {
		vcpus, vms, pcpus, &params, count, count % 4, count % 5, 0,
	};
	pol_u32 i;

	note((pol_u32)credit_params_check(&params));
	for (i = 0; i < COUNT(vms); i++) {
		vms[i].weight = border32[(a % 5 + i) % 8];
		vms[i].high = (pol_u8)(i * 127);
	}
	for (i = 0; i < COUNT(vcpus); i++) {
		pol_u64 half = border64[(c % 7 + i) % COUNT(border64)] / 2;

		vcpus[i].credit = i % 2 ? (pol_s64)half : -(pol_s64)half - 1;
		vcpus[i].vm = i % 5 == 4 ? border32[i] : i % 4;
		vcpus[i].pcpu = i % 6 == 5 ? border32[i] : i % 2;
		vcpus[i].runnable = (pol_u8)(i % 7 * 42);
	}
	note(credit_assign(&host));
	for (i = 0; i < 4; i++) {
		struct credit_decision decision;

		credit_pick(&host, i, border32[c % 8], i < 2, &decision);
		note(decision.vcpu);
		note(decision.migrated);
		note(decision.raised);
	}
	for (i = 0; i < COUNT(vcpus); i++) {
		credit_charge(&vcpus[i], &params, border64[i + b % 4]);
		note((pol_u32)(vcpus[i].credit & 0xffffffff));
		note(vcpus[i].pcpu);
	}
}

static void credit(void)
{
	size_t i, j, k;
	pol_u32 count;

	for (i = 0; i < COUNT(border32); i++)
		for (j = 0; j < COUNT(border32); j++)
			for (k = 0; k < COUNT(border32); k++)
				for (count = 0; count <= 8; count++)
					credit_at(border32[i], border32[j], border32[k], count);
}

static void gang_note(const struct gang_host *host)
{
	pol_u32 i;

	for (i = 0; i < host->vm_count; i++) {
		note((pol_u32)(host->vms[i].owed & 0xffffffff));
		note(host->vms[i].last_turn);
		note(host->vms[i].unplaced);
	}
	for (i = 0; i < host->vcpu_count; i++)
		note(host->vcpus[i].target);
	for (i = 0; i < host->cpu_count; i++) {
		note(host->cpus[i].owner);
		note(host->cpus[i].vcpu);
		note(gang_may_run(host, i, i));
	}
	note(gang_may_run(host, GANG_NONE, 0));
	note(gang_may_run(host, 0, GANG_NONE));
	note(host->turn);
}

static void gang_cpus_at(struct gang_cpu *cpus, pol_u32 a, pol_u32 b)
{
	pol_u32 i;

	for (i = 0; i < 4; i++) {
		cpus[i].core = a % 3 ? i / 2 * 2 : border32[(b % 8 + i) % 8];
		cpus[i].cache = b % 3 ? i / 2 * 2 : border32[(a % 8 + i) % 8];
		cpus[i].node = a % 2 ? 0 : border32[i];
		cpus[i].usable = (pol_u8)((b % 5 + i) % 5 * 63);
	}
}

static void gang_at(pol_u32 a, pol_u32 b, pol_u32 c, pol_u32 count)
{
	const pol_u64 allowed = border64[c % 9];
	struct gang_vm vms[4] = { { 0 } };
	struct gang_vcpu vcpus[8] = { { 0 } };
	struct gang_cpu cpus[4] = { { 0 } };
	pol_u32 order[4];
	pol_u64 free[1];
	struct gang_pool pools[GANG_POOLS_MAX];
	struct gang_host host = { vms, vcpus, cpus, order, free, pools, count % 5, count, b % 5, a, b, c };
	pol_u32 i;

	for (i = 0; i < COUNT(vms); i++) {
		pol_u64 half = border64[(a % 7 + 3 * i) % COUNT(border64)] / 2;

		vms[i].owed = i % 2 ? (gang_s64)half : -(gang_s64)half - 1;
		vms[i].first = i == 3 ? border32[b % 8] : 2 * i;
		vms[i].count = border32[(c % 5 + i) % 8];
		vms[i].last_turn = border32[(b % 3 + i) % 8];
		vms[i].high = (pol_u8)(i % 3 * 127);
		vms[i].wanting = border32[(a % 3 + i) % 8];
	}
	for (i = 0; i < COUNT(vcpus); i++) {
		vcpus[i].got = border64[(a % 11 + i) % COUNT(border64)];
		vcpus[i].allowed = i % 3 ? &allowed : (void *)0;
		vcpus[i].weight = border32[(b % 5 + i) % 8];
		vcpus[i].cpu = i % 6 == 5 ? border32[i] : i % 4;
		vcpus[i].wants = (pol_u8)((c % 4 + i) % 4 * 85);
		vcpus[i].held_back = (pol_u8)((b % 4 + i) % 4 == 0 ? 255 : 0);
	}
	gang_cpus_at(cpus, a, b);
	note(gang_turn(&host));
	for (i = 0; i < 4; i++) {
		gang_account(&host, border64[(c % 6 + i) % COUNT(border64)]);
		note(gang_turn(&host));
		gang_note(&host);
	}
}

static void gang_fill_at(pol_u32 a, pol_u32 count)
{
	struct gang_filler candidates[GANG_FILLERS_MAX + 1] = { { 0 } };
	pol_u32 i;

	for (i = 0; i < COUNT(candidates); i++) {
		candidates[i].owed = (gang_s64)(border64[(a % 11 + i) % COUNT(border64)] / 2);
		candidates[i].lock = (pol_u8)((a % 3 + i) % 3 * 127);
	}
	note(gang_fill(candidates, count));
}

static void gang_use_at(pol_u64 a, pol_u64 b, pol_u64 c)
{
	struct gang_use use = { (gang_s64)a, (gang_s64)b, 0, { 0 } };

	note(gang_use(&use, (gang_s64)c, a));
	note(gang_use(&use, (gang_s64)b, c));
	gang_use_begin(&use, a);
	note((pol_u32)use.of_all);
}

static void gang(void)
{
	size_t i, j, k;
	pol_u32 count;

	for (i = 0; i < COUNT(border64); i++)
		for (j = 0; j < COUNT(border64); j++)
			for (k = 0; k < COUNT(border64); k++)
				gang_use_at(border64[i], border64[j], border64[k]);
	for (i = 0; i < COUNT(border32); i++)
		for (count = 0; count <= GANG_FILLERS_MAX + 1; count++)
			gang_fill_at(border32[i], count);

	for (i = 0; i < COUNT(border32); i++)
		for (j = 0; j < COUNT(border32); j++)
			for (k = 0; k < COUNT(border32); k++)
				for (count = 0; count <= 8; count++)
					gang_at(border32[i], border32[j], border32[k], count);
}

static void hvs_large(const struct hvs_slot *slots)
{
	static struct hvs_waiting waiting;
	static const pol_u32 vcpus[] = { 0, 1, 64, 65, HVS_VCPUS_MAX, HVS_VCPUS_MAX + 1, ~0u };
	pol_u32 caller, flags, at, count;
	struct hvs_look look;
	size_t i;

	for (i = 0; i < HVS_LISTS * HVS_WORDS; i++)
		waiting.off[i % HVS_LISTS][i / HVS_LISTS] = border64[i % COUNT(border64)];
	for (at = 0; at < COUNT(vcpus); at++)
		for (caller = 0; caller < COUNT(border32); caller++)
			for (flags = 0; flags <= HVS_FLAGS_ALL; flags++) {
				waiting.known = border32[flags % COUNT(border32)];
				for (i = 0; i < HVS_LISTS; i++)
					waiting.next[i] = (pol_u16)border32[(flags + i) % COUNT(border32)];
				hvs_look(&waiting, vcpus[at], border32[caller], flags, &look);
				note(look.count);
				note(look.running);
				note(look.preempted);
				for (count = 0; count <= HVS_SLOTS_MAX + 1; count += 13)
					note((pol_u32)hvs_pick_looked(slots, count, &look, 0, flags));
			}
}

static void hvs(void)
{
	struct hvs_slot slots[HVS_SLOTS_MAX + 1] = { { 0 } };
	pol_u32 count, caller, flags;
	size_t i;

	for (i = 0; i < COUNT(slots); i++) {
		slots[i].preempted_at = border64[i % COUNT(border64)];
		slots[i].category = (pol_u8)(i % 7 == 6 ? 255 : i % 7);
		slots[i].ready = (pol_u8)(i * 85);
		slots[i].running = (pol_u8)(i % 2);
		slots[i].cpu = (pol_u16)(i % 3 == 0 ? 65535 : i * 63);
		slots[i].user_mode = (pol_u8)(i % 5 * 51);
	}
	for (count = 0; count <= HVS_SLOTS_MAX + 1; count++)
		for (caller = 0; caller < COUNT(border32); caller++)
			for (flags = 0; flags <= HVS_FLAGS_ALL + 1; flags++)
				note((pol_u32)hvs_pick(slots, count, border32[caller],
						       border64[flags % COUNT(border64)], flags));
	hvs_large(slots);
	for (flags = 0; flags <= HVS_FLAGS_ALL; flags++)
		for (i = 0; i < 8; i++) {
			pol_u8 mark = (pol_u8)(i / 2 % 2 * 255);

			note(hvs_category_on_preempt((pol_u8)(i % 2 * 255), (pol_u8)(i / 4 * 255),
						     &mark, flags));
			note(mark);
		}
}

static void search(pol_u32 count, pol_u32 caller, pol_u32 last, enum kvm_stock_variant variant)
{
	struct kvm_stock_vcpu vcpus[8] = { { 0 } };
	struct kvm_stock_search state = {
		.variant = variant, .count = count, .caller = caller, .kernel_mode_only = 1,
	};
	pol_s32 index;
	size_t i;

	for (i = 0; i < COUNT(vcpus); i++) {
		vcpus[i].ready = 1;
		vcpus[i].preempted = 1;
		vcpus[i].in_kernel = (pol_u8)(i % 3);
		vcpus[i].in_spin_loop = (pol_u8)(i % 2);
	}
	kvm_stock_search_init(&state, vcpus, last);
	/* A result that nobody asked for changes nothing. */
	kvm_stock_search_result(&state, &last, 1);
	while ((index = kvm_stock_search_next(&state, vcpus)) >= 0) {
		note((pol_u32)index);
		kvm_stock_search_result(&state, &last, index % 3 - 1);
	}
	kvm_stock_search_deinit(&state, vcpus);
	note(last);
}

static void kvm_stock(void)
{
	pol_u32 variant, count;
	size_t i, j, k, l, m;

	for (variant = KVM_STOCK_3_19; variant <= KVM_STOCK_6_19; variant++)
		for (i = 0; i < COUNT(border32); i++)
			for (j = 0; j < COUNT(border32); j++) {
				for (count = 0; count <= 8; count++)
					search(count, border32[i], border32[j], variant);
				for (k = 0; k < COUNT(border32); k++)
					for (l = 0; l < COUNT(border32); l++)
						for (m = 0; m < COUNT(border32); m++) {
							struct kvm_stock_window_params params = {
								border32[i], border32[j],
								border32[k], border32[l],
							};

							note(kvm_stock_window_grow(&params, variant,
										   border32[m]));
							note(kvm_stock_window_shrink(&params, variant,
										     border32[m]));
						}
			}
}

static void userspin_at(pol_u32 a, pol_u32 b, pol_u32 c)
{
	struct userspin_params params = { a, b, c, a };
	struct userspin_verdict verdict;
	struct userspin_state state;
	pol_u64 from;
	size_t i;

	note((pol_u32)userspin_params_check(&params));
	userspin_init(&state);
	for (i = 0; i < 4 * COUNT(border64); i++) {
		pol_u64 at = border64[i % COUNT(border64)];
		struct userspin_sample sample = { at, at, (pol_u8)(i % 3), { 0 } };

		if (i == 30)
			state.next = state.count = c;
		userspin_add(&state, &sample);
		userspin_judge(&state, &params, &verdict);
		note(verdict.kind + verdict.in_range);
		note(userspin_code(&verdict, &from));
		verdict.low = at;
		verdict.kind = USERSPIN_LOOP;
		note(userspin_code(&verdict, &from));
		verdict.high = border64[(i + b) % COUNT(border64)];
		note(userspin_code(&verdict, &from));
	}
}

static void userspin(void)
{
	size_t i, j, k;

	note((pol_u32)userspin_digest(border64, COUNT(border64)));
	note(userspin_has_pause((const pol_u8 *)border64, sizeof(border64)));
	for (i = 0; i < COUNT(border32); i++)
		for (j = 0; j < COUNT(border32); j++)
			for (k = 0; k < COUNT(border32); k++)
				userspin_at(border32[i], border32[j], border32[k]);
}

static void vcrd_at(pol_u32 values, pol_u32 a, pol_u32 b, pol_u32 c)
{
	struct vcrd_params params = { b, values, a, b, c, a, b, c };
	struct vcrd_state state;
	size_t i;

	note((pol_u32)vcrd_params_check(&params));
	vcrd_init(&state, &params);
	for (i = 0; i < 2 * COUNT(border64); i++) {
		pol_u64 at = border64[i / 2];

		/* More and fewer values than at the start, and a clock that runs back. */
		params.values = border32[i % COUNT(border32)];
		note((pol_u32)vcrd_event(&state, &params, i % 5 ? at : 0, border32[i % 8]));
		note(vcrd_is_high(&state, at));
		note(vcrd_is_over_threshold(&params, at));
	}
}

static void vcrd(void)
{
	size_t i, j, k, l;

	for (i = 0; i < COUNT(border64); i++)
		for (j = 0; j < COUNT(border64); j++)
			for (k = 0; k < COUNT(border64); k++)
				note((pol_u32)pol_mul_div(border64[i], border64[j], border64[k]));
	for (i = 0; i < COUNT(border32); i++)
		for (j = 0; j < COUNT(border32); j++)
			for (k = 0; k < COUNT(border32); k++)
				for (l = 0; l < COUNT(border32); l++)
					vcrd_at(border32[i], border32[j], border32[k], border32[l]);
}

int main(void)
{
#ifdef WRAP_ONCE
	sum = border32[7];
	sum += border32[1];
#endif
	aple();
	asym_all();
	credit();
	gang();
	hvs();
	kvm_stock();
	userspin();
	vcrd();
	printf("%08x\n", (unsigned int)sum);
	return 0;
}
