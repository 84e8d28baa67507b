// SPDX-License-Identifier: MIT OR Apache-2.0
//! The safe interface gives the same results as the C.

use unspin_policy::aple::Params;
use unspin_policy::hvs::{category_on_preempt, decide, Category, Decision, Flags, Slot};
use unspin_policy::kvm_stock::{Search, Variant, Vcpu, WindowParams, Yield};

/// Each field in turn is out of its range, and the error begins with its name.
macro_rules! errors_name_the_field {
    ($policy:ident: $($field:ident = $value:expr),+) => {{
        use unspin_policy::$policy::Params;
        let good = Params::default();
        assert_eq!(good.check(), Ok(()));
        $(
            let error = Params { $field: $value, ..good }.check().unwrap_err().to_string();
            assert!(error.starts_with(concat!(stringify!($field), " is ")), "{error}");
        )+
    }};
}

#[test]
fn parameter_errors_name_the_field() {
    errors_name_the_field!(aple: window_init_cycles = 1, window_min_cycles = 0, window_max_cycles = 1,
        delta_cycles = u32::MAX, delta_max_cycles = u32::MAX, epoch_ple_exits = 0);
    errors_name_the_field!(vcrd: threshold_log2_cycles = 64, values = 33, step_us = 0, initial_ppm = 0,
        recency_ppm = 1_000_001, experiment_ppm = 1_000_001, ratio_max = 0);
    errors_name_the_field!(asym: grow_ppm = 1_000_001, latency_min_us = 0, latency_max_us = 1,
        latency_init_us = 1, urgent_us = 16_000, conflict_ratio = 0);
    errors_name_the_field!(credit: slot_us = 0, slots_per_assignment = 0, credit_per_slot = 0,
        credit_max = 0, capped = 2);
    errors_name_the_field!(demand: threshold_ppm = 0, look_us = 0, hold_us = 0);
    assert_eq!(Params::fixed(512).check(), Ok(()));
}

const GANG_H: &str = include_str!("../../../core/policy/gang.h");
const USERSPIN_H: &str = include_str!("../../../core/policy/userspin.h");
const KVM_STOCK_H: &str = include_str!("../c/kvm_stock.h");

/// The number as which a header defines a name.
fn defined(header: &str, name: &str) -> u64 {
    let start = format!("#define {name} ");
    let value = header.lines().find_map(|line| line.strip_prefix(&start)).expect(name);
    value.split('u').next().unwrap().parse().expect(name)
}

#[test]
fn userspin_has_the_headers_parameters() {
    use unspin_policy::userspin::{Params, RANGE_MAX_BYTES, SAMPLES_MAX};
    let Params { samples, threshold, still, range_bytes } = Params::default();
    for (name, number) in [
        ("SAMPLES", samples),
        ("THRESHOLD", threshold),
        ("STILL", still),
        ("RANGE_BYTES", range_bytes),
        ("SAMPLES_MAX", SAMPLES_MAX as u32),
        ("RANGE_MAX_BYTES", RANGE_MAX_BYTES),
    ] {
        assert_eq!(defined(USERSPIN_H, &format!("USERSPIN_{name}")), u64::from(number), "{name}");
    }
}

#[test]
fn kvm_stock_has_the_headers_windows() {
    use unspin_policy::kvm_stock::{WINDOW_PAUSES_MAX_SVM, WINDOW_PAUSES_SVM};
    let window = |name: &str| defined(KVM_STOCK_H, &format!("KVM_STOCK_WINDOW_{name}"));
    assert_eq!(window("PAUSES_SVM"), u64::from(WINDOW_PAUSES_SVM));
    assert_eq!(window("PAUSES_MAX_SVM"), u64::from(WINDOW_PAUSES_MAX_SVM));
}

#[test]
fn gang_says_what_the_c_says() {
    use unspin_policy::gang::{fill, Cpu, CpuSet, Filler, Host, Owner, Vcpu, Vm};
    let everywhere: CpuSet = (0..130).collect();
    assert!(everywhere.has(129) && !everywhere.has(130) && !everywhere.has(usize::MAX));
    // One that spins with both vCPUs on pCPU 0, and one that does not on pCPU 129.
    let mut vms = [Vm { high: 1, ..Vm::new(0, 2) }, Vm::new(2, 1)];
    let mut vcpus =
        [0, 0, 129].map(|cpu| Vcpu { wants: 1, allowed: Some(&everywhere), ..Vcpu::new(cpu, 1) });
    let (mut cpus, mut turn) = ([Cpu::default(); 130], u32::MAX);
    cpus[1].usable = 0;
    assert_eq!(cpus[0].owner(), Owner::Nobody);
    let mut host = Host { vms: &mut vms, vcpus: &mut vcpus, cpus: &mut cpus, turn: &mut turn };
    host.account(1);
    assert!(host.turn_starts());
    let owners = [0, 1, 2, 129].map(|cpu| host.cpus[cpu].owner());
    assert_eq!(owners, [Owner::Vm(0), Owner::Nobody, Owner::Vm(0), Owner::Low]);
    assert_eq!([0, 1, 2].map(|v| host.vcpus[v].target()), [Some(0), Some(2), Some(129)]);
    assert!(host.vms[0].is_high() && !host.vms[1].is_high());
    assert_eq!((host.vms[0].last_turn, host.cpus[129].low_last_turn, *host.turn), (1, 1, 1));
    assert!(host.may_run(0, 2) && !host.may_run(1, 2) && host.may_run(1, 129));
    assert!(host.may_run(0, usize::MAX) && host.may_run(usize::MAX, 0));
    let parked = |owed, lock| Filler { owed, lock, ..Filler::default() };
    assert_eq!(fill(&[parked(5, 1), parked(1, 0), parked(2, 0)]), Some(2));
    assert_eq!(fill(&[parked(5, 1)]), None);
    host.vms[0].high = 0;
    assert!(!host.turn_starts());
    assert_eq!(*host.turn, 1);
}

#[test]
fn gang_has_the_headers_numbers() {
    use unspin_policy::gang::{
        APART_TURNS, BACK_US, CLAMP_TURNS, FILLERS_MAX, FIRST_TURN_US, MOST_EIGHTHS, PARK_MAX_MS,
        POOLS_MAX, SPUN_WINDOWS, TIME_MAX, WEIGHT_MAX,
    };
    let defines = |line: String| GANG_H.lines().any(|l| l.starts_with(&line));
    let (weight, time) = (WEIGHT_MAX.trailing_zeros(), TIME_MAX.trailing_zeros());
    assert!(defines(format!("#define GANG_WEIGHT_MAX (1u << {weight})")));
    assert!(defines(format!("#define GANG_TIME_MAX ((pol_u64)1 << {time})")));
    for (name, number) in [
        ("APART_TURNS", APART_TURNS.into()),
        ("BACK_US", BACK_US),
        ("CLAMP_TURNS", CLAMP_TURNS),
        ("FIRST_TURN_US", FIRST_TURN_US),
        ("PARK_MAX_MS", PARK_MAX_MS),
        ("SPUN_WINDOWS", SPUN_WINDOWS),
        ("FILLERS_MAX", FILLERS_MAX as u64),
        ("POOLS_MAX", POOLS_MAX as u64),
        ("MOST_EIGHTHS", MOST_EIGHTHS),
    ] {
        assert_eq!(defined(GANG_H, &format!("GANG_{name}")), number, "{name}");
    }
}

#[test]
#[should_panic(expected = "1025 pCPUs are too many")]
fn gang_takes_no_more_pcpus_than_a_set_has() {
    use unspin_policy::gang::{Cpu, Host};
    let mut cpus = vec![Cpu::default(); 1025];
    Host { vms: &mut [], vcpus: &mut [], cpus: &mut cpus, turn: &mut 0 }.turn_starts();
}

#[test]
fn variants_have_the_names_scenarios_use() {
    for (name, flags) in [
        ("hvs-paper", Flags::PAPER),
        ("hvs", Flags::ADDED),
        ("cpth-r", Flags::CPTH_R),
        ("cpth-l", Flags::CPTH_L),
        ("cch", Flags::CCH),
        ("cch-lists", Flags::CCH | Flags::TRUE_LISTS),
        ("hvs-displaced", Flags::DISPLACED_LAST | Flags::ADDED),
        ("hvs-paper-displaced", Flags::DISPLACED_LAST),
    ] {
        assert_eq!(unspin_uapi::Variant::of(name).map(Flags::from), Some(flags), "{name}");
    }
}

#[test]
fn picks_and_categories() {
    let waits = Slot::ready(Category::LockWaiter, 0);
    assert_eq!(decide(&[], 0, 0, Flags::PAPER), Decision::Nobody);
    assert_eq!(decide(&[waits; 65], 0, 0, Flags::PAPER), Decision::Nobody);
    assert_eq!(decide(&[waits], usize::MAX, 0, Flags::PAPER), Decision::Vcpu(0));
    let mut mark = 1;
    assert_eq!(category_on_preempt(true, false, &mut mark, Flags::PAPER), Category::LockWaiter);
    assert_eq!(category_on_preempt(false, false, &mut mark, Flags::PAPER), Category::Yielded);
    assert_eq!(
        category_on_preempt(false, false, &mut mark, Flags::PAPER),
        Category::ResourceWaiter
    );
    let displaced = |flags| category_on_preempt(false, true, &mut 0, flags);
    assert_eq!(displaced(Flags::PAPER), Category::ResourceWaiter);
    assert_eq!(displaced(Flags::DISPLACED_LAST), Category::Yielded);
    let all = [0, 1, 2, 3, 4].map(Category::from_number).map(Option::unwrap);
    assert_eq!(all.map(|category| category as u8), [0, 1, 2, 3, 4]);
    assert_eq!(Category::from_number(5), None);
}

#[test]
fn stock_searches_and_windows() {
    let params = WindowParams::defaults(Variant::V6_12);
    assert_eq!(params.grow(Variant::V6_12, params.base_cycles), 8192);
    assert_eq!(params.shrink(Variant::V6_12, 8192), 4096);

    let mut last_boosted = 0;
    let mut nobody = Search::start(&mut [], 0, last_boosted, Variant::V6_19, true);
    assert_eq!(nobody.next(&mut []), None);
    nobody.finish(&mut []);

    let mut vcpus = [Vcpu::PREEMPTED; 9];
    let mut search = Search::start(&mut vcpus, 0, last_boosted, Variant::V3_19, false);
    for expected in 1..=3 {
        assert_eq!(search.next(&mut vcpus), Some(expected));
        assert_eq!(search.next(&mut vcpus), None, "not before the answer");
        search.result(&mut last_boosted, Yield::Failed);
    }
    assert_eq!(search.next(&mut vcpus), None);
    assert_eq!(vcpus[0].in_spin_loop, 1);
    search.finish(&mut vcpus);
    assert_eq!((vcpus[0].in_spin_loop, last_boosted), (0, 0));
}
