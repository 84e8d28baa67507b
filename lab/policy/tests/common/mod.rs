// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named checks of the policies, each over a table of C functions, so that the same check
//! runs on the linked code and on mutated builds of it.

#![allow(dead_code)] // each test binary uses its part

pub mod aple_checks;
pub mod asym_checks;
pub mod credit_checks;
pub mod demand_checks;
pub mod gang_account_checks;
pub mod gang_checks;
pub mod gang_owner_checks;
pub mod gang_place_checks;
pub mod gang_quota_checks;
pub mod gang_run_checks;
pub mod gang_use_checks;
pub mod hvs_checks;
pub mod hvs_large_checks;
pub mod kvm_stock_checks;
pub mod userspin_checks;
pub mod vcrd_checks;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use unspin_policy::{aple, asym, credit, demand, gang, hvs, kvm_stock, sys, userspin, vcrd};

macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions of policy/*.h, wherever they were loaded from.
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            _library: Option<libloading::Library>,
        }

        impl Api {
            /// The code the crate links.
            pub fn linked() -> Self {
                Api { $($name: sys::$name,)* _library: None }
            }

            /// A shared object built from other sources.
            pub fn load(path: &std::path::Path) -> Self {
                // SAFETY: the library is built from policy/*.c, which has no constructors
                // and these signatures; the pointers live as long as the library.
                unsafe {
                    let library = libloading::Library::new(path).expect("loads");
                    Api {
                        $($name: *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .expect("has the function"),)*
                        _library: Some(library),
                    }
                }
            }
        }
    };
}

api! {
    aple_params_check: fn(*const aple::Params) -> i32;
    aple_init: fn(*mut aple::State, *const aple::Params);
    aple_inefficiency_ppm: fn(*const aple::Epoch) -> u64;
    aple_epoch_end: fn(*mut aple::State, *const aple::Params, *const aple::Epoch) -> u32;
    aple_window_complete: fn(*const aple::Params, u32) -> u32;
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

/// Safe forms of the raw table, with plain numbers.
impl Api {
    pub fn params_check(&self, params: &aple::Params) -> i32 {
        unsafe { (self.aple_params_check)(params) }
    }

    pub fn aple_new(&self, params: &aple::Params) -> aple::State {
        let mut state = aple::State::default();
        unsafe { (self.aple_init)(&mut state, params) };
        state
    }

    pub fn ppm(&self, epoch: &aple::Epoch) -> u64 {
        unsafe { (self.aple_inefficiency_ppm)(epoch) }
    }

    pub fn epoch_end(
        &self,
        state: &mut aple::State,
        params: &aple::Params,
        epoch: &aple::Epoch,
    ) -> u32 {
        unsafe { (self.aple_epoch_end)(state, params, epoch) }
    }

    pub fn window_complete(&self, params: &aple::Params, window_cycles: u32) -> u32 {
        unsafe { (self.aple_window_complete)(params, window_cycles) }
    }

    pub fn category(&self, in_ple_exit: bool, displaced: bool, mark: &mut u8, flags: u32) -> u8 {
        unsafe { (self.hvs_category_on_preempt)(in_ple_exit.into(), displaced.into(), mark, flags) }
    }

    pub fn pick(
        &self,
        slots: &[hvs::Slot],
        caller: usize,
        excluded: u64,
        flags: u32,
    ) -> Option<usize> {
        usize::try_from(self.decide(slots, caller, excluded, flags)).ok()
    }

    pub fn decide(&self, slots: &[hvs::Slot], caller: usize, excluded: u64, flags: u32) -> i32 {
        let count = slots.len() as u32;
        unsafe { (self.hvs_pick)(slots.as_ptr(), count, caller as u32, excluded, flags) }
    }

    pub fn look(
        &self,
        waiting: &mut hvs::Waiting,
        vcpus: usize,
        caller: usize,
        flags: u32,
    ) -> hvs::Look {
        let mut look = hvs::Look::NONE;
        unsafe { (self.hvs_look)(waiting, vcpus as u32, caller as u32, flags, &mut look) };
        look.caller = 0; // how it was called, not what came of it
        look.words = 0;
        look
    }

    pub fn decide_looked(
        &self,
        slots: &[hvs::Slot],
        look: &hvs::Look,
        excluded: u64,
        flags: u32,
    ) -> i32 {
        let count = slots.len() as u32;
        unsafe { (self.hvs_pick_looked)(slots.as_ptr(), count, look, excluded, flags) }
    }

    pub fn demand_params(&self, params: &demand::Params) -> i32 {
        unsafe { (self.demand_params_check)(params) }
    }

    pub fn demand(
        &self,
        host: &mut demand::Host,
        vms: &mut [demand::Vm],
        params: &demand::Params,
        now_us: u64,
    ) -> bool {
        let count = vms.len() as u32;
        unsafe { (self.demand_step)(host, vms.as_mut_ptr(), count, params, now_us) != 0 }
    }

    pub fn vcrd_new(&self, params: &vcrd::Params) -> vcrd::State {
        let mut state = vcrd::State::default();
        unsafe { (self.vcrd_init)(&mut state, params) };
        state
    }

    pub fn vcrd_at(
        &self,
        state: &mut vcrd::State,
        params: &vcrd::Params,
        now_us: u64,
        draw: u32,
    ) -> u64 {
        unsafe { (self.vcrd_event)(state, params, now_us, draw) }
    }

    pub fn vcrd_high(&self, state: &vcrd::State, now_us: u64) -> bool {
        unsafe { (self.vcrd_is_high)(state, now_us) != 0 }
    }
}

/// Whether a failing property looks for a smaller input: off where only the verdict counts.
pub static SHRINK: AtomicBool = AtomicBool::new(true);

/// Runs a property on generated inputs, the same ones on every run.
pub fn property<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value)) {
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if !SHRINK.load(Relaxed) {
        config.max_shrink_iters = 0;
    }
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |input| {
        test(input);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Any number, the borders of its type and of narrower ones more often than chance.
pub fn any_u64() -> impl Strategy<Value = u64> {
    use proptest::prelude::*;
    prop_oneof![
        2 => any::<u64>(),
        2 => 0..100_000u64,
        1 => (0..64u32, 0..3u64).prop_map(|(bit, d)| (1u64 << bit).wrapping_add(d).wrapping_sub(1)),
        1 => (0..3u64).prop_map(|d| u64::MAX - d),
    ]
}

pub fn any_u32() -> impl Strategy<Value = u32> {
    use proptest::prelude::*;
    prop_oneof![
        2 => any::<u32>(),
        2 => 0..40_000u32,
        1 => (0..32u32, 0..3u32).prop_map(|(bit, d)| (1u32 << bit).wrapping_add(d).wrapping_sub(1)),
        1 => (0..3u32).prop_map(|d| u32::MAX - d),
    ]
}

/// Every check by name. `for_each_check!(m)` expands `m! { module: name, … }` once.
#[macro_export]
macro_rules! for_each_check {
    ($with:ident) => {
        $with! {
            aple_checks: algorithm_1_rounds,
            aple_checks: algorithm_1_stops_at_the_bounds,
            aple_checks: ties_keep_the_epoch_tried_first,
            aple_checks: windows_stay_in_bounds,
            aple_checks: delta_0_keeps_the_window,
            aple_checks: delta_adapts,
            aple_checks: complete_vms_spin_longer,
            aple_checks: inefficiency_is_exact,
            aple_checks: inefficiency_without_cpu_time,
            aple_checks: params_are_judged,
            asym_checks: asym_worked_example,
            asym_checks: asym_prediction_follows_demand,
            asym_checks: asym_allocations_add_up,
            asym_checks: asym_latency_rules,
            asym_checks: asym_blames_wakers,
            asym_checks: asym_latencies_are_bounded,
            asym_checks: asym_balances_time,
            asym_checks: asym_balancing_narrows,
            asym_checks: asym_keeps_siblings_apart,
            asym_checks: asym_parts_urgent_vcpus,
            asym_checks: asym_params_are_judged,
            credit_checks: credit_online_rates,
            credit_checks: credit_is_conserved,
            credit_checks: credit_is_bounded,
            credit_checks: credit_spreads_high_vms,
            credit_checks: credit_picks_the_head,
            credit_checks: credit_coschedules,
            credit_checks: credit_shares_by_weight,
            credit_checks: credit_params_are_judged,
            demand_checks: demand_worked_example,
            demand_checks: demand_half_is_enough_to_stay,
            demand_checks: demand_holds_grow,
            demand_checks: demand_is_joined,
            demand_checks: demand_is_of_those_who_ask,
            demand_checks: demand_threshold_is_exact,
            demand_checks: demand_params_are_judged,
            gang_checks: gang_worked_example,
            gang_account_checks: gang_accounts_by_weight,
            gang_account_checks: gang_conserves_time,
            gang_account_checks: gang_pools_are_filled,
            gang_account_checks: gang_group_is_charged_up_to_a_turn,
            gang_account_checks: gang_pools_worked_example,
            gang_account_checks: gang_pools_are_bounded,
            gang_checks: gang_keeps_rivals_off,
            gang_checks: gang_fills_holes,
            gang_checks: gang_needs_rivals,
            gang_checks: gang_is_bounded,
            gang_use_checks: gang_use_is_a_mean,
            gang_use_checks: gang_use_borders_are_exact,
            gang_use_checks: gang_use_forgives_a_burst,
            gang_use_checks: gang_use_sees_a_hog_and_its_end,
            gang_use_checks: gang_use_is_bounded,
            gang_owner_checks: gang_owners_are_placed_in_order,
            gang_place_checks: gang_places_worked_example,
            gang_place_checks: gang_spreads_worked_example,
            gang_place_checks: gang_gathers,
            gang_quota_checks: gang_leaves_no_hole_beside_a_quota,
            gang_quota_checks: gang_quota_is_counted_once,
            gang_quota_checks: gang_held_back_owns_nothing,
            gang_run_checks: gang_shares_by_weight,
            gang_run_checks: gang_group_is_owed_as_one,
            gang_run_checks: gang_starves_nobody,
            gang_run_checks: gang_unpinned_shares,
            hvs_checks: lock_waiter_preemption_scenarios,
            hvs_checks: variants_reverse_one_heuristic_each,
            hvs_checks: woken_siblings_are_candidates,
            hvs_checks: user_mode_ranks_last,
            hvs_checks: a_pick_is_a_candidate,
            hvs_checks: picks_in_turn_are_one_order,
            hvs_checks: snapshots_have_one_total_order,
            hvs_checks: the_quorum_gives_way_or_changes_nothing,
            hvs_checks: ties_go_round_from_the_caller,
            hvs_checks: marks_move_to_the_yielded_list,
            hvs_checks: the_yielded_list_ends_the_loop,
            hvs_checks: the_yielded_list_gives_everyone_a_turn,
            hvs_large_checks: a_look_takes_the_likeliest,
            hvs_large_checks: a_look_decides_as_a_snapshot_of_all,
            hvs_large_checks: looks_go_round,
            hvs_large_checks: everyone_who_stays_ready_is_picked,
            hvs_large_checks: the_quorum_of_a_large_vm,
            kvm_stock_checks: selector_conforms_3_19,
            kvm_stock_checks: selector_conforms_6_12,
            kvm_stock_checks: selector_conforms_6_19,
            kvm_stock_checks: selector_rotates,
            kvm_stock_checks: three_failed_yields_end_a_search,
            kvm_stock_checks: concurrent_search_picks_a_lock_waiter,
            kvm_stock_checks: windows_conform,
            kvm_stock_checks: windows_worked_examples,
            userspin_checks: userspin_worked_example,
            userspin_checks: userspin_is_of_user_space,
            userspin_checks: userspin_conforms,
            userspin_checks: userspin_forgets,
            userspin_checks: userspin_is_bounded,
            userspin_checks: userspin_names_the_code,
            userspin_checks: userspin_finds_pause,
            userspin_checks: userspin_digests_differ,
            userspin_checks: userspin_params_are_judged,
            vcrd_checks: vcrd_worked_example,
            vcrd_checks: vcrd_conforms,
            vcrd_checks: vcrd_draws_twice,
            vcrd_checks: vcrd_covers_a_locality,
            vcrd_checks: vcrd_is_bounded,
            vcrd_checks: vcrd_lasts_as_estimated,
            vcrd_checks: vcrd_thresholds,
            vcrd_checks: vcrd_params_are_judged,
        }
    };
}
