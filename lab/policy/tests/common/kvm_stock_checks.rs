// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM's own rules against an oracle written from its description, not from the C.

use super::{any_u32, property, Api};
use proptest::prelude::*;
use unspin_policy::hvs::{Category, Slot};
use unspin_policy::kvm_stock::{SearchState, Variant, Vcpu, WindowParams};

pub const INDEX_BUG: Variant = Variant::V6_13IndexBug;
const ESRCH: i32 = -3;

/// Which rules the oracle follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    V3_19,
    V6_12,
    V6_19,
}

/// One search: who asks, what KVM asked for, and how each yield goes (in a circle). Before
/// a yield is answered, `nested` searches in its turn, once.
#[derive(Clone, Debug)]
struct Script {
    caller: usize,
    kernel_mode_only: bool,
    outcomes: Vec<i32>,
    nested: Option<Box<Script>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    vcpus: Vec<Vcpu>,
    last_boosted: u32,
    /// Pairs: the vCPU that tried, and its target.
    tried: Vec<(usize, usize)>,
}

impl Script {
    fn outcome(&self, attempt: usize) -> i32 {
        self.outcomes[attempt % self.outcomes.len()]
    }
}

/// The search as KVM's comments and behaviour describe it: the vCPUs after the last boosted
/// one, then the others; the older kernels as two loops, of which a failure at the end of
/// the first leaves out the second.
fn oracle(world: &mut World, script: &Script, rules: Rules) {
    let count = world.vcpus.len();
    let last = world.last_boosted as usize;
    if rules == Rules::V6_19 && count < 2 {
        return;
    }
    let loops: Vec<Vec<usize>> = match rules {
        Rules::V3_19 | Rules::V6_12 => vec![
            (0..count).filter(|&i| i > last).collect(),
            (0..count).filter(|&i| i <= last).collect(),
        ],
        Rules::V6_19 => vec![(0..count).map(|i| (i + last + 1) % count).collect()],
    };
    if script.caller < count {
        world.vcpus[script.caller].in_spin_loop = 1;
    }
    oracle_loops(world, script, rules, &loops);
    if script.caller < count {
        world.vcpus[script.caller].in_spin_loop = 0;
        world.vcpus[script.caller].dy_eligible = 0;
    }
}

fn oracle_loops(world: &mut World, script: &Script, rules: Rules, loops: &[Vec<usize>]) {
    let (mut failures, mut attempts, mut last_result) = (0, 0, 0);
    for indices in loops {
        if last_result != 0 {
            return;
        }
        for &index in indices {
            if index == script.caller || !oracle_selects(world, script, rules, index) {
                continue;
            }
            world.tried.push((script.caller, index));
            if let (0, Some(nested)) = (attempts, &script.nested) {
                oracle(world, nested, rules);
            }
            last_result = script.outcome(attempts);
            attempts += 1;
            if last_result > 0 {
                world.last_boosted = index as u32;
                return;
            }
            failures += usize::from(last_result < 0);
            if failures == 3 {
                return;
            }
        }
    }
}

fn oracle_selects(world: &mut World, script: &Script, rules: Rules, index: usize) -> bool {
    let vcpu = world.vcpus[index];
    let awake = vcpu.blocking == 0 || vcpu.runnable == 1;
    let considered = match rules {
        Rules::V3_19 => vcpu.preempted == 1 && awake,
        _ => {
            let user_mode = vcpu.preempted == 1 && vcpu.in_kernel == 0;
            let passed_over = script.kernel_mode_only && user_mode && vcpu.interrupt_pending == 0;
            vcpu.ready == 1 && awake && !passed_over
        }
    };
    if !considered || vcpu.in_spin_loop == 0 {
        return considered;
    }
    world.vcpus[index].dy_eligible = 1 - vcpu.dy_eligible;
    vcpu.dy_eligible == 1
}

/// The same search by the C code.
fn search(api: &Api, world: &mut World, script: &Script, variant: Variant) {
    let mut state = SearchState {
        variant: variant as u32,
        count: world.vcpus.len() as u32,
        caller: script.caller as u32,
        kernel_mode_only: script.kernel_mode_only.into(),
        ..SearchState::default()
    };
    let (vcpus, last) = (world.vcpus.as_mut_ptr(), world.last_boosted);
    unsafe { (api.kvm_stock_search_init)(&mut state, vcpus, last) };
    for attempts in 0.. {
        let index = unsafe { (api.kvm_stock_search_next)(&mut state, world.vcpus.as_mut_ptr()) };
        let Ok(index) = usize::try_from(index) else { break };
        assert!(index < world.vcpus.len(), "{index} is no vCPU");
        assert!(attempts < world.vcpus.len(), "more attempts than vCPUs");
        world.tried.push((script.caller, index));
        if let (0, Some(nested)) = (attempts, &script.nested) {
            search(api, world, nested, variant);
        }
        let outcome = script.outcome(attempts);
        unsafe { (api.kvm_stock_search_result)(&mut state, &mut world.last_boosted, outcome) };
    }
    unsafe { (api.kvm_stock_search_deinit)(&mut state, world.vcpus.as_mut_ptr()) };
}

fn vcpu() -> impl Strategy<Value = Vcpu> {
    // Mostly ready and preempted, so that searches find a target.
    let mostly = || prop_oneof![4 => Just(1u8), 1 => Just(0u8)];
    let seldom = || prop_oneof![1 => Just(1u8), 3 => Just(0u8)];
    (mostly(), mostly(), seldom(), 0..2u8, mostly(), seldom(), seldom(), 0..2u8).prop_map(
        |(ready, preempted, blocking, runnable, in_kernel, interrupt_pending, spins, dy)| Vcpu {
            ready,
            preempted,
            blocking,
            runnable,
            in_kernel,
            interrupt_pending,
            in_spin_loop: spins,
            dy_eligible: dy,
        },
    )
}

fn script() -> impl Strategy<Value = Script> {
    let outcome = prop_oneof![Just(ESRCH), Just(0), Just(1)];
    let one = (0..9usize, any::<bool>(), prop::collection::vec(outcome, 1..5));
    let plain = one.prop_map(|(caller, kernel_mode_only, outcomes)| Script {
        caller,
        kernel_mode_only,
        outcomes,
        nested: None,
    });
    let plain = plain.boxed();
    (plain.clone(), prop::option::of(plain))
        .prop_map(|(script, nested)| Script { nested: nested.map(Box::new), ..script })
}

/// The C variant tries, marks and remembers the same as the oracle, over several searches in a row,
/// some of which overlap.
pub fn conforms(api: &Api, variant: Variant, rules: Rules) {
    let vcpus = prop::collection::vec(vcpu(), 0..9);
    let input = (vcpus, 0..10u32, prop::collection::vec(script(), 1..5));
    property(3000, input, |(vcpus, last_boosted, scripts)| {
        let mut expected = World { vcpus, last_boosted, tried: Vec::new() };
        let mut actual = expected.clone();
        for script in &scripts {
            oracle(&mut expected, script, rules);
            search(api, &mut actual, script, variant);
            assert_eq!(actual, expected, "after {script:?}");
        }
    });
}

pub fn selector_conforms_3_19(api: &Api) {
    conforms(api, Variant::V3_19, Rules::V3_19);
}

pub fn selector_conforms_6_12(api: &Api) {
    conforms(api, Variant::V6_12, Rules::V6_12);
}

pub fn selector_conforms_6_19(api: &Api) {
    conforms(api, Variant::V6_19, Rules::V6_19);
}

fn boost_once(caller: usize) -> Script {
    Script { caller, kernel_mode_only: true, outcomes: vec![1], nested: None }
}

/// The targets of seven searches of vCPU 0, while all others stay ready.
fn boosted_in_turn(api: &Api, variant: Variant) -> Vec<usize> {
    let mut vcpus = vec![Vcpu::PREEMPTED; 4];
    vcpus[0] = Vcpu::RUNNING;
    let mut world = World { vcpus, last_boosted: 0, tried: Vec::new() };
    for _ in 0..7 {
        search(api, &mut world, &boost_once(0), variant);
    }
    world.tried.iter().map(|&(_, index)| index).collect()
}

pub fn rotates(api: &Api, variant: Variant) {
    assert_eq!(boosted_in_turn(api, variant), [1, 2, 3, 1, 2, 3, 1], "{variant:?}");
}

pub fn selector_rotates(api: &Api) {
    for variant in [Variant::V3_19, Variant::V6_12, Variant::V6_19] {
        rotates(api, variant);
    }
}

/// A search that succeeds at its first step stores 0, so the next starts at 1 again.
pub fn index_bug_example(api: &Api) {
    assert_eq!(boosted_in_turn(api, INDEX_BUG), [1; 7]);
    let mut vcpus = vec![Vcpu::RUNNING; 8];
    vcpus[6] = Vcpu::PREEMPTED;
    let mut world = World { vcpus, last_boosted: 3, tried: Vec::new() };
    search(api, &mut world, &boost_once(0), INDEX_BUG);
    assert_eq!((world.tried, world.last_boosted), (vec![(0, 6)], 2)); // two steps after 4
}

pub fn three_failed_yields_end_a_search(api: &Api) {
    let variants = [Variant::V3_19, Variant::V6_12, INDEX_BUG, Variant::V6_19];
    let tried = |variant: Variant, last_boosted: u32, outcomes: &[i32]| {
        let mut world = World { vcpus: vec![Vcpu::PREEMPTED; 8], last_boosted, tried: Vec::new() };
        let script = Script { outcomes: outcomes.to_vec(), ..boost_once(7) };
        search(api, &mut world, &script, variant);
        (world.tried.len(), world.last_boosted)
    };
    for variant in variants {
        assert_eq!(tried(variant, 0, &[ESRCH]), (3, 0), "{variant:?}");
        // One that could not be boosted costs no try.
        assert_eq!(tried(variant, 0, &[0]), (7, 0), "{variant:?}");
        assert_eq!(tried(variant, 0, &[0, ESRCH]), (6, 0), "{variant:?}");
    }
    // Two candidates are behind the last boosted: two passes end there on a failure.
    assert_eq!(tried(Variant::V6_12, 4, &[0, ESRCH, 1]), (2, 4));
    assert_eq!(tried(Variant::V6_12, 4, &[ESRCH, 0, 1]), (3, 0));
    assert_eq!(tried(Variant::V6_19, 4, &[0, ESRCH, 1]), (3, 0));
}

/// Fig. 2: a search labels lock-waiters "checked", and one that starts before it is done
/// takes a checked lock-waiter although a resource-waiter is ready.
pub fn concurrent_search_picks_a_lock_waiter(api: &Api) {
    for variant in [Variant::V3_19, Variant::V6_12, Variant::V6_19] {
        let mut vcpus = vec![Vcpu::RUNNING; 8];
        vcpus[3] = Vcpu::PREEMPTED_SPINNING;
        vcpus[4] = Vcpu::PREEMPTED_SPINNING;
        vcpus[6] = Vcpu::PREEMPTED; // its time slice ended
        let mut world = World { vcpus, last_boosted: 2, tried: Vec::new() };
        let mut alone = world.clone();
        let overlapping = Script { nested: Some(Box::new(boost_once(1))), ..boost_once(0) };
        search(api, &mut world, &overlapping, variant);
        assert_eq!(world.tried, [(0, 6), (1, 3)], "{variant:?}");
        // The same two searches one after the other find it: 6, then 6 again.
        search(api, &mut alone, &boost_once(0), variant);
        alone.last_boosted = 4;
        search(api, &mut alone, &boost_once(1), variant);
        assert_eq!(alone.tried, [(0, 6), (1, 6)], "{variant:?}");
    }
    // HVS gives both spinners the resource-waiter first.
    let mut slots = [Slot::default(); 8];
    slots[3] = Slot::ready(Category::LockWaiter, 30);
    slots[4] = Slot::ready(Category::LockWaiter, 40);
    slots[6] = Slot::ready(Category::ResourceWaiter, 10);
    assert_eq!(api.pick(&slots, 0, 0, 0), Some(6));
    assert_eq!(api.pick(&slots, 1, 0, 0), Some(6));
}

fn grow(api: &Api, params: &WindowParams, variant: Variant, window: u32) -> u32 {
    unsafe { (api.kvm_stock_window_grow)(params, variant as u32, window) }
}

fn shrink(api: &Api, params: &WindowParams, variant: Variant, window: u32) -> u32 {
    unsafe { (api.kvm_stock_window_shrink)(params, variant as u32, window) }
}

/// 3.19: signed, growing from one step below the maximum at most.
fn oracle_3_19(params: &WindowParams, window: u32) -> (u32, u32) {
    let int = |value: u32| i128::from(value.min(i32::MAX as u32));
    let (base, by, less, max) =
        (int(params.base_cycles), int(params.grow), int(params.shrink), int(params.max_cycles));
    let window = int(window);
    let top = max.max(base);
    let grown = if by == 0 {
        base
    } else if by < base {
        window.min(top / by) * by
    } else {
        window.min(top - by) + by
    };
    let shrunk = if less == 0 {
        base
    } else if less < base {
        base.max(window / less)
    } else {
        base.max(window - less)
    };
    (u32::try_from(grown).unwrap(), u32::try_from(shrunk).unwrap())
}

/// From 4.18 on: unsigned, growing in 64 bits, shrinking in 32.
fn oracle_6_12(params: &WindowParams, window: u32) -> (u32, u32) {
    let wide = u64::from(window);
    let grown = match params.grow {
        0 => params.base_cycles,
        by if by < params.base_cycles => {
            (wide * u64::from(by)).min(params.max_cycles.into()) as u32
        }
        by => (wide + u64::from(by)).min(params.max_cycles.into()) as u32,
    };
    let shrunk = match params.shrink {
        0 => params.base_cycles,
        by if by < params.base_cycles => (window / by).max(params.base_cycles),
        by => window.wrapping_sub(by).max(params.base_cycles),
    };
    (grown, shrunk)
}

pub fn windows_conform(api: &Api) {
    let small = || prop_oneof![Just(0u32), Just(1), 2..9u32, any_u32()];
    let input = (any_u32(), small(), small(), any_u32(), any_u32());
    property(5000, input, |(base_cycles, by, less, max_cycles, window)| {
        let params = WindowParams { base_cycles, grow: by, shrink: less, max_cycles };
        let both = |v| (grow(api, &params, v, window), shrink(api, &params, v, window));
        assert_eq!(both(Variant::V3_19), oracle_3_19(&params, window), "{params:?} {window}");
        for variant in [Variant::V6_12, INDEX_BUG, Variant::V6_19] {
            assert_eq!(both(variant), oracle_6_12(&params, window), "{params:?} {window}");
        }
    });
}

pub fn windows_worked_examples(api: &Api) {
    let defaults = |variant: Variant| {
        let mut params = WindowParams { base_cycles: 0, grow: 0, shrink: 9, max_cycles: 0 };
        unsafe { (api.kvm_stock_window_defaults)(&mut params, variant as u32) };
        params
    };
    // Doubles at each exit up to the top, falls to 4096 when the slice ended.
    for (variant, top) in [(Variant::V3_19, 1_073_741_822), (Variant::V6_12, u32::MAX)] {
        let params = defaults(variant);
        let mut window = params.base_cycles;
        let mut windows = Vec::new();
        for _ in 0..40 {
            window = grow(api, &params, variant, window);
            windows.push(window);
        }
        assert_eq!(windows[..4], [8192, 16384, 32768, 65536]);
        assert_eq!(windows[39], top);
        assert_eq!(shrink(api, &params, variant, top), 4096);
    }
    // A divisor, and a step: never below base.
    let params = WindowParams { shrink: 2, ..defaults(Variant::V6_12) };
    assert_eq!(shrink(api, &params, Variant::V6_12, 16384), 8192);
    assert_eq!(shrink(api, &params, Variant::V6_12, 5000), 4096);
    let params = WindowParams { shrink: 5000, ..params };
    assert_eq!(shrink(api, &params, Variant::V6_12, 16384), 11384);
    // Taking more than there is: 3.19 stops at base, later kernels wrap.
    assert_eq!(shrink(api, &params, Variant::V3_19, 4096), 4096);
    assert_eq!(shrink(api, &params, Variant::V6_12, 4096), u32::MAX - 903);
}
