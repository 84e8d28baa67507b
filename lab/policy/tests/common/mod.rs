// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named checks of the policies, each over a table of C functions, so that the same check
//! runs on the linked code and on mutated builds of it.

#![allow(dead_code)] // each test binary uses its part

/// What the check of a policy's parameters says of a value in the default ones, field by field: 0, or
/// the number of the first wrong field.
macro_rules! assert_judged {
    ($check:expr, $params:ident: $($field:ident: [$($value:expr => $verdict:literal),+]),+) => {{
        let (check, good) = ($check, $params::default());
        assert_eq!(unsafe { check(&good) }, 0);
        $($({
            let params = $params { $field: $value, ..good };
            assert_eq!(unsafe { check(&params) }, $verdict, "{params:?}");
        })+)+
    }};
}

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
use std::cell::Cell;
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

unspin_policy::for_each_function!(api);

/// Safe forms of the raw table, with plain numbers.
impl Api {
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

    pub fn window_complete(
        &self,
        params: &aple::Params,
        window_cycles: u32,
        kvm_cycles: u32,
    ) -> u32 {
        unsafe { (self.aple_window_complete)(params, window_cycles, kvm_cycles) }
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

thread_local! {
    /// Whether a failing property of this thread looks for a smaller input: off where only the verdict counts.
    pub static SHRINK: Cell<bool> = const { Cell::new(true) };
}

/// Runs a property on generated inputs, the same ones on every run.
pub fn property<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value)) {
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if !SHRINK.get() {
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

// `for_each_check!(m)` expands `m! { module: name, … }` once, with every check of the modules above: each
// public function that takes an `Api` alone.
include!(concat!(env!("OUT_DIR"), "/checks.rs"));
