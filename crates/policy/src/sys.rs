// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C functions as they are declared in `policy/*.h`. Prefer the safe modules.

use crate::{aple, asym, credit, demand, gang, hvs, ipi, kvm_stock, userspin, vcrd};

extern "C" {
    pub fn aple_params_check(params: *const aple::Params) -> i32;
    pub fn aple_init(state: *mut aple::State, params: *const aple::Params);
    pub fn aple_inefficiency_ppm(epoch: *const aple::Epoch) -> u64;
    pub fn aple_epoch_end(
        state: *mut aple::State,
        params: *const aple::Params,
        epoch: *const aple::Epoch,
    ) -> u32;
    pub fn aple_window_complete(params: *const aple::Params, window_cycles: u32) -> u32;

    pub fn asym_params_check(params: *const asym::Params) -> i32;
    pub fn asym_vcpu_init(vcpu: *mut asym::Vcpu, params: *const asym::Params, core: u32);
    pub fn asym_latency(vcpus: *mut asym::Vcpu, count: u32, params: *const asym::Params);
    pub fn asym_allocate(
        vcpus: *mut asym::Vcpu,
        count: u32,
        params: *const asym::Params,
        vm_ns: u64,
        switch_ns: u64,
    );
    pub fn asym_resolve_time(
        vcpus: *mut asym::Vcpu,
        count: u32,
        cores: *mut asym::Core,
        core_count: u32,
        params: *const asym::Params,
    ) -> u32;
    pub fn asym_resolve_urgency(
        vcpus: *mut asym::Vcpu,
        count: u32,
        cores: *const asym::Core,
        core_count: u32,
        params: *const asym::Params,
    ) -> u32;

    pub fn credit_params_check(params: *const credit::Params) -> i32;
    pub fn credit_assign(host: *const credit::RawHost) -> u32;
    pub fn credit_charge(vcpu: *mut credit::Vcpu, params: *const credit::Params, ran_us: u64);
    pub fn credit_pick(
        host: *const credit::RawHost,
        pcpu: u32,
        last: u32,
        may_raise: u8,
        decision: *mut credit::Decision,
    );

    pub fn demand_params_check(params: *const demand::Params) -> i32;
    pub fn demand_step(
        host: *mut demand::Host,
        vms: *mut demand::Vm,
        count: u32,
        params: *const demand::Params,
        now_us: u64,
    ) -> u8;

    pub fn gang_account(host: *mut gang::RawHost, turn: u64);
    pub fn gang_turn(host: *mut gang::RawHost) -> u8;
    pub fn gang_may_run(host: *const gang::RawHost, vm: u32, cpu: u32) -> u8;
    pub fn gang_fill(candidates: *const gang::Filler, count: u32) -> u32;
    pub fn gang_use_begin(of: *mut gang::Use, turn: u64);
    pub fn gang_use(of: *mut gang::Use, of_host: i64, turn: u64) -> u8;

    pub fn hvs_category_on_preempt(
        in_ple_exit: u8,
        displaced: u8,
        yielded_mark: *mut u8,
        flags: u32,
    ) -> u8;
    pub fn hvs_pick(
        slots: *const hvs::Slot,
        count: u32,
        caller: u32,
        excluded: u64,
        flags: u32,
    ) -> i32;
    pub fn hvs_look(
        waiting: *mut hvs::Waiting,
        vcpus: u32,
        caller: u32,
        flags: u32,
        look: *mut hvs::Look,
    );
    pub fn hvs_pick_looked(
        slots: *const hvs::Slot,
        count: u32,
        look: *const hvs::Look,
        excluded: u64,
        flags: u32,
    ) -> i32;

    pub fn ipi_pick(slots: *const ipi::Slot, count: u32, caller: u32, excluded: u64) -> i32;

    pub fn kvm_stock_window_defaults(params: *mut kvm_stock::WindowParams, variant: u32);
    pub fn kvm_stock_window_grow(
        params: *const kvm_stock::WindowParams,
        variant: u32,
        window_cycles: u32,
    ) -> u32;
    pub fn kvm_stock_window_shrink(
        params: *const kvm_stock::WindowParams,
        variant: u32,
        window_cycles: u32,
    ) -> u32;
    pub fn kvm_stock_search_init(
        search: *mut kvm_stock::SearchState,
        vcpus: *mut kvm_stock::Vcpu,
        last_boosted: u32,
    );
    pub fn kvm_stock_search_next(
        search: *mut kvm_stock::SearchState,
        vcpus: *mut kvm_stock::Vcpu,
    ) -> i32;
    pub fn kvm_stock_search_result(
        search: *mut kvm_stock::SearchState,
        last_boosted: *mut u32,
        yielded: i32,
    );
    pub fn kvm_stock_search_deinit(
        search: *mut kvm_stock::SearchState,
        vcpus: *mut kvm_stock::Vcpu,
    );

    pub fn userspin_params_check(params: *const userspin::Params) -> i32;
    pub fn userspin_init(state: *mut userspin::State);
    pub fn userspin_add(state: *mut userspin::State, sample: *const userspin::Sample);
    pub fn userspin_judge(
        state: *const userspin::State,
        params: *const userspin::Params,
        verdict: *mut userspin::Verdict,
    );
    pub fn userspin_code(verdict: *const userspin::Verdict, from: *mut u64) -> u32;
    pub fn userspin_has_pause(code: *const u8, bytes: u32) -> u8;
    pub fn userspin_digest(registers: *const u64, count: u32) -> u64;

    /// From `c/defaults.c`.
    pub static vcrd_defaults: vcrd::Params;
    pub fn vcrd_params_check(params: *const vcrd::Params) -> i32;
    pub fn vcrd_init(state: *mut vcrd::State, params: *const vcrd::Params);
    pub fn vcrd_is_over_threshold(params: *const vcrd::Params, waited_cycles: u64) -> u8;
    pub fn vcrd_event(
        state: *mut vcrd::State,
        params: *const vcrd::Params,
        now_us: u64,
        draw: u32,
    ) -> u64;
    pub fn vcrd_is_high(state: *const vcrd::State, now_us: u64) -> u8;
}
