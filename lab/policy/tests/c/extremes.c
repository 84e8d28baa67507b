// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Every policy function, on structures that are filled with the borders of types by chance, for builds
 * with sanitizers: a wrap that the code does not define aborts the program. Prints a checksum, so that
 * nothing is optimised away and two builds can be compared.
 */
#include <stdio.h>
#include <string.h>

#include "aple.h"
#include "asym.h"
#include "credit.h"
#include "demand.h"
#include "gang.h"
#include "hvs.h"
#include "kvm_stock.h"
#include "userspin.h"
#include "vcrd.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FILL(what) fill(&(what), sizeof(what))
#define NOTE(what) note(&(what), sizeof(what))

static const pol_u64 border64[] = {
	0, 1, 2, 1000000, 0xffffffffu, 1ull << 32, 18446744073709ull, 18446744073710ull,
	1ull << 63, POL_U64_MAX - 1, POL_U64_MAX,
};
static const pol_u32 border32[] = {
	0, 1, 2, 4096, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu,
};
static const pol_u8 border8[] = { 0, 1, 2, 127, 255 };

static pol_u32 sum;

static void note(const void *what, size_t bytes)
{
	const pol_u8 *all = what;
	size_t i;

	for (i = 0; i < bytes; i++)
		sum = (sum << 5 | sum >> 27) ^ all[i];
}

static void note_number(pol_u64 number)
{
	NOTE(number);
}

/* The same numbers every time (xorshift), below `n`. */
static pol_u32 draw(size_t n)
{
	static pol_u32 state = 1;

	state ^= state << 13 & 0xffffffffu;
	state ^= state >> 17;
	state ^= (state & 0x7ffffff) << 5;
	return (pol_u32)(state % n);
}

static pol_u64 any64(void)
{
	return border64[draw(COUNT(border64))];
}

static pol_u32 any32(void)
{
	return border32[draw(COUNT(border32))];
}

/* Eight bytes at a time: a number, two numbers, or eight. */
static void fill(void *what, size_t bytes)
{
	pol_u8 word[8];
	pol_u32 number;
	pol_u64 large;
	size_t i, at;

	for (at = 0; at < bytes; at += sizeof(word)) {
		switch (draw(3)) {
		case 0:
			large = any64();
			memcpy(word, &large, sizeof(word));
			break;
		case 1:
			for (i = 0; i < 2; i++) {
				number = any32();
				memcpy(word + 4 * i, &number, sizeof(number));
			}
			break;
		default:
			for (i = 0; i < sizeof(word); i++)
				word[i] = border8[draw(COUNT(border8))];
		}
		memcpy((pol_u8 *)what + at, word, bytes - at < sizeof(word) ? bytes - at : sizeof(word));
	}
}

static void aple(void)
{
	struct aple_params params;
	struct aple_state state;
	struct aple_epoch epoch;
	int i;

	FILL(params);
	note_number((pol_u32)aple_params_check(&params));
	note_number(aple_window_complete(&params, any32(), any32()));
	aple_init(&state, &params);
	state.epochs = any64();
	state.rounds = any64();
	for (i = 0; i < 8; i++) {
		FILL(epoch);
		note_number(aple_inefficiency_ppm(&epoch));
		note_number(aple_epoch_end(&state, &params, &epoch));
	}
}

static void asym(void)
{
	const pol_u32 count = draw(9), core_count = draw(5);
	struct asym_params params;
	struct asym_vcpu vcpus[8];
	struct asym_core cores[4];
	pol_u32 i;

	FILL(params);
	FILL(cores);
	FILL(vcpus);
	note_number((pol_u32)asym_params_check(&params));
	for (i = 0; i < COUNT(vcpus); i++)
		asym_vcpu_init(&vcpus[i], &params, draw(6) ? i % 4 : any32());
	for (i = 0; i < COUNT(vcpus); i++) {
		vcpus[i].allocated_ns = any64();
		vcpus[i].consumed_ns = any64();
		vcpus[i].wakers = any64();
		vcpus[i].ready = border8[draw(COUNT(border8))];
	}
	asym_latency(vcpus, count, &params);
	note_number(asym_resolve_urgency(vcpus, count, cores, core_count, &params));
	note_number(asym_resolve_time(vcpus, count, cores, core_count, &params));
	asym_allocate(vcpus, count, &params, any64(), any64());
	note_number(asym_resolve_time(vcpus, count, cores, core_count, &params));
	NOTE(vcpus);
}

static void credit(void)
{
	struct credit_params params;
	struct credit_vm vms[3];
	struct credit_vcpu vcpus[8];
	struct credit_pcpu pcpus[4];
	struct credit_host host = { vcpus, vms, pcpus, &params, draw(9), draw(4), draw(5), 0 };
	struct credit_decision decision;
	pol_u32 i;

	FILL(params);
	FILL(vms);
	FILL(vcpus);
	for (i = 0; i < COUNT(vcpus); i++) {
		vcpus[i].vm = draw(5) ? i % 4 : any32();
		vcpus[i].pcpu = draw(6) ? i % 2 : any32();
	}
	note_number((pol_u32)credit_params_check(&params));
	note_number(credit_assign(&host));
	for (i = 0; i < 4; i++) {
		credit_pick(&host, i, any32(), i < 2, &decision);
		NOTE(decision);
	}
	for (i = 0; i < COUNT(vcpus); i++)
		credit_charge(&vcpus[i], &params, any64());
	NOTE(vcpus);
}

static void demand(void)
{
	struct demand_params params;
	struct demand_host host;
	struct demand_vm vms[4];
	int i;

	FILL(params);
	FILL(host);
	FILL(vms);
	note_number((pol_u32)demand_params_check(&params));
	for (i = 0; i < 4; i++)
		note_number(demand_step(&host, vms, draw(5), &params, any64()));
	NOTE(vms);
}

static void gang(void)
{
	const pol_u64 allowed = any64();
	struct gang_vm vms[4];
	struct gang_vcpu vcpus[8];
	struct gang_cpu cpus[4];
	pol_u32 order[4], i;
	pol_u64 free[1];
	struct gang_pool pools[GANG_POOLS_MAX];
	struct gang_host host = { vms, vcpus, cpus, order, free, pools, draw(5), draw(9), draw(5),
				  any32(), any32(), any32() };
	struct gang_filler candidates[GANG_FILLERS_MAX + 1];
	struct gang_use use;

	FILL(vms);
	FILL(vcpus);
	FILL(cpus);
	for (i = 0; i < COUNT(vms); i++)
		vms[i].first = draw(4) ? 2 * i : any32();
	for (i = 0; i < COUNT(vcpus); i++) {
		vcpus[i].allowed = draw(3) ? &allowed : (void *)0;
		vcpus[i].cpu = draw(6) ? i % 4 : any32();
	}
	for (i = 0; i < COUNT(cpus); i++)
		if (draw(2))
			cpus[i].core = cpus[i].cache = i / 2 * 2;
	for (i = 0; i < 4; i++) {
		note_number(gang_turn(&host));
		note_number(gang_may_run(&host, draw(2) ? i : any32(), draw(2) ? i : any32()));
		NOTE(cpus);
		gang_account(&host, any64());
	}
	NOTE(vms);

	FILL(candidates);
	note_number(gang_fill(candidates, draw(COUNT(candidates) + 1)));
	FILL(use);
	note_number(gang_use(&use, (gang_s64)any64(), any64()));
	gang_use_begin(&use, any64());
	note_number(gang_use(&use, (gang_s64)any64(), any64()));
	NOTE(use);
}

static void hvs(void)
{
	static const pol_u32 sizes[] = { 0, 1, 64, 65, HVS_VCPUS_MAX, HVS_VCPUS_MAX + 1, ~0u };
	static struct hvs_waiting waiting;
	struct hvs_slot slots[HVS_SLOTS_MAX + 1];
	const pol_u32 count = draw(COUNT(slots) + 1), flags = draw(HVS_FLAGS_ALL + 2);
	struct hvs_look look;
	pol_u8 mark = border8[draw(COUNT(border8))];

	FILL(slots);
	FILL(waiting);
	note_number((pol_u32)hvs_pick(slots, count, any32(), any64(), flags));
	hvs_look(&waiting, sizes[draw(COUNT(sizes))], any32(), flags, &look);
	note_number(look.count);
	note_number(look.running);
	note_number((pol_u32)hvs_pick_looked(slots, count, &look, any64(), flags));
	note_number(hvs_category_on_preempt(border8[draw(5)], border8[draw(5)], &mark, flags));
	note_number(mark);
}

static void kvm_stock(void)
{
	const enum kvm_stock_variant variant = KVM_STOCK_3_19 + draw(KVM_STOCK_6_19 - KVM_STOCK_3_19 + 1);
	struct kvm_stock_window_params params;
	struct kvm_stock_vcpu vcpus[8];
	struct kvm_stock_search state = {
		.variant = variant, .count = draw(9), .caller = any32(), .kernel_mode_only = 1,
	};
	pol_u32 last = any32();
	pol_s32 index;

	FILL(vcpus);
	kvm_stock_search_init(&state, vcpus, last);
	/* A result without a request changes nothing. */
	kvm_stock_search_result(&state, &last, 1);
	while ((index = kvm_stock_search_next(&state, vcpus)) >= 0) {
		note_number((pol_u32)index);
		kvm_stock_search_result(&state, &last, index % 3 - 1);
	}
	kvm_stock_search_deinit(&state, vcpus);
	note_number(last);
	FILL(params);
	note_number(kvm_stock_window_grow(&params, variant, any32()));
	note_number(kvm_stock_window_shrink(&params, variant, any32()));
}

static void userspin(void)
{
	struct userspin_params params;
	struct userspin_sample sample;
	struct userspin_state state;
	struct userspin_verdict verdict;
	pol_u64 from;
	int i;

	FILL(params);
	note_number((pol_u32)userspin_params_check(&params));
	userspin_init(&state);
	for (i = 0; i < 40; i++) {
		if (i == 30)
			state.next = state.count = any32();
		FILL(sample);
		userspin_add(&state, &sample);
		userspin_judge(&state, &params, &verdict);
		note_number(verdict.kind + verdict.in_range);
		note_number(userspin_code(&verdict, &from));
		verdict.low = any64();
		verdict.high = any64();
		verdict.kind = USERSPIN_LOOP;
		note_number(userspin_code(&verdict, &from));
	}
	note_number(userspin_digest(border64, COUNT(border64)));
	note_number(userspin_has_pause((const pol_u8 *)border64, sizeof(border64)));
}

static void vcrd(void)
{
	struct vcrd_params params;
	struct vcrd_state state;
	int i;

	FILL(params);
	note_number((pol_u32)vcrd_params_check(&params));
	vcrd_init(&state, &params);
	for (i = 0; i < 20; i++) {
		/* More and fewer values than at the start, and a clock that runs back. */
		params.values = any32();
		note_number(vcrd_event(&state, &params, any64(), any32()));
		note_number(vcrd_is_high(&state, any64()));
		note_number(vcrd_is_over_threshold(&params, any64()));
	}
	note_number(pol_mul_div(any64(), any64(), any64()));
}

int main(void)
{
	void (*const all[])(void) = { aple, asym, credit, demand, gang, hvs, kvm_stock, userspin, vcrd };
	size_t i;
	int round;

#ifdef WRAP_ONCE
	sum = border32[7];
	sum += border32[1];
#endif
	for (i = 0; i < COUNT(all); i++)
		for (round = 0; round < 20000; round++)
			all[i]();
	printf("%08x\n", (unsigned int)sum);
	return 0;
}
