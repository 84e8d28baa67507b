// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "kvm_stock.c"
#include "program.h"

#define VCPUS 8

struct {
	struct kvm_stock_vcpu vcpus[VCPUS];
	struct kvm_stock_window_params params;
	pol_u32 variant, window_cycles, grown, shrunk;
	pol_u32 caller, last_boosted;
	pol_s32 results[2], candidates[2];
	pol_u8 kernel_mode_only;
} io;

PROGRAM(windows)
{
	io.grown = kvm_stock_window_grow(&io.params, io.variant, io.window_cycles);
	io.shrunk = kvm_stock_window_shrink(&io.params, io.variant, io.window_cycles);
	if (!io.params.base_cycles)
		kvm_stock_window_defaults(&io.params, io.variant);
	return 0;
}

PROGRAM(search)
{
	struct kvm_stock_search search;
	pol_u32 i;

	search.variant = io.variant;
	search.count = VCPUS;
	search.caller = io.caller;
	search.kernel_mode_only = io.kernel_mode_only;
	kvm_stock_search_init(&search, io.vcpus, io.last_boosted);
	for (i = 0; i < 2; i++) {
		io.candidates[i] = kvm_stock_search_next(&search, io.vcpus);
		kvm_stock_search_result(&search, &io.last_boosted, io.results[i]);
	}
	kvm_stock_search_deinit(&search, io.vcpus);
	return 0;
}
