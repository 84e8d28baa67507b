// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of `core/policy/*.h` and `lab/policy/c/*.h`.

/// Hands every function to a macro, with the types of its arguments as the modules of this crate have them.
#[macro_export]
macro_rules! for_each_function {
    ($with:ident) => {
        $with! {
            aple_params_check: fn(*const aple::Params) -> i32;
            aple_init: fn(*mut aple::State, *const aple::Params);
            aple_inefficiency_ppm: fn(*const aple::Epoch) -> u64;
            aple_epoch_end: fn(*mut aple::State, *const aple::Params, *const aple::Epoch) -> u32;
            aple_window_complete: fn(*const aple::Params, u32, u32) -> u32;
            asym_params_check: fn(*const asym::Params) -> i32;
            asym_vcpu_init: fn(*mut asym::Vcpu, *const asym::Params, u32);
            asym_latency: fn(*mut asym::Vcpu, u32, *const asym::Params);
            asym_allocate: fn(*mut asym::Vcpu, u32, *const asym::Params, u64, u64);
            asym_resolve_time: fn(*mut asym::Vcpu, u32, *mut asym::Core, u32, *const asym::Params) -> u32;
            asym_resolve_urgency: fn(*mut asym::Vcpu, u32, *const asym::Core, u32, *const asym::Params) -> u32;
            credit_params_check: fn(*const credit::Params) -> i32;
            credit_assign: fn(*const credit::RawHost) -> u32;
            credit_charge: fn(*mut credit::Vcpu, *const credit::Params, u64);
            credit_pick: fn(*const credit::RawHost, u32, u32, u8, *mut credit::Decision);
            demand_params_check: fn(*const demand::Params) -> i32;
            demand_step: fn(*mut demand::Host, *mut demand::Vm, u32, *const demand::Params, u64) -> u8;
            gang_account: fn(*mut gang::RawHost, u64);
            gang_turn: fn(*mut gang::RawHost) -> u8;
            gang_may_run: fn(*const gang::RawHost, u32, u32) -> u8;
            gang_fill: fn(*const gang::Filler, u32) -> u32;
            gang_use_begin: fn(*mut gang::Use, u64);
            gang_use: fn(*mut gang::Use, i64, u64) -> u8;
            hvs_category_on_preempt: fn(u8, u8, *mut u8, u32) -> u8;
            hvs_pick: fn(*const hvs::Slot, u32, u32, u64, u32) -> i32;
            hvs_look: fn(*mut hvs::Waiting, u32, u32, u32, *mut hvs::Look);
            hvs_pick_looked: fn(*const hvs::Slot, u32, *const hvs::Look, u64, u32) -> i32;
            kvm_stock_window_defaults: fn(*mut kvm_stock::WindowParams, u32);
            kvm_stock_window_grow: fn(*const kvm_stock::WindowParams, u32, u32) -> u32;
            kvm_stock_window_shrink: fn(*const kvm_stock::WindowParams, u32, u32) -> u32;
            kvm_stock_search_init: fn(*mut kvm_stock::SearchState, *mut kvm_stock::Vcpu, u32);
            kvm_stock_search_next: fn(*mut kvm_stock::SearchState, *mut kvm_stock::Vcpu) -> i32;
            kvm_stock_search_result: fn(*mut kvm_stock::SearchState, *mut u32, i32);
            kvm_stock_search_deinit: fn(*mut kvm_stock::SearchState, *mut kvm_stock::Vcpu);
            userspin_params_check: fn(*const userspin::Params) -> i32;
            userspin_init: fn(*mut userspin::State);
            userspin_add: fn(*mut userspin::State, *const userspin::Sample);
            userspin_judge: fn(*const userspin::State, *const userspin::Params, *mut userspin::Verdict);
            userspin_code: fn(*const userspin::Verdict, *mut u64) -> u32;
            userspin_has_pause: fn(*const u8, u32) -> u8;
            userspin_digest: fn(*const u64, u32) -> u64;
            vcrd_params_check: fn(*const vcrd::Params) -> i32;
            vcrd_init: fn(*mut vcrd::State, *const vcrd::Params);
            vcrd_is_over_threshold: fn(*const vcrd::Params, u64) -> u8;
            vcrd_event: fn(*mut vcrd::State, *const vcrd::Params, u64, u32) -> u64;
            vcrd_is_high: fn(*const vcrd::State, u64) -> u8;
        }
    };
}
