// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of candidates (section 3.2), the yielded list (3.3), the variants (4.4).

use super::{property, Api};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use unspin_policy::hvs::{Category, Flags, Slot};

const PAPER: u32 = Flags::PAPER.0;
const ADDED: u32 = Flags::ADDED.0;
const QUORUM: u32 = Flags::QUORUM.0;
/// The variant `hvs`, where it picks.
const OURS: u32 = ADDED & !QUORUM;
const RESOURCE: u8 = Category::ResourceWaiter as u8;
const LOCK: u8 = Category::LockWaiter as u8;
const YIELDED: u8 = Category::Yielded as u8;
const WOKEN: u8 = Category::Woken as u8;

fn slot(category: u8, preempted_at: u64) -> Slot {
    Slot { category, preempted_at, ready: 1, ..Slot::default() }
}

fn in_user_mode(of: Slot) -> Slot {
    Slot { user_mode: 1, ..of }
}

fn running() -> Slot {
    Slot::default()
}

/// All candidates in the order they are picked when none can be boosted.
fn picks(api: &Api, slots: &[Slot], caller: usize, flags: u32) -> Vec<usize> {
    let mut excluded = 0;
    let mut order = Vec::new();
    while let Some(index) = api.pick(slots, caller, excluded, flags) {
        assert_eq!(excluded >> index & 1, 0, "picked {index} although excluded");
        excluded |= 1 << index;
        order.push(index);
    }
    order
}

/// Fig. 4; the spinner that asks is vCPU 0.
pub fn lock_waiter_preemption_scenarios(api: &Api) {
    // 1: the next waiter's slice ended (2, just now); those behind it spun (1, 3).
    let slots = [running(), slot(LOCK, 50), slot(RESOURCE, 90), slot(LOCK, 60)];
    assert_eq!(picks(api, &slots, 0, PAPER), [2, 1, 3]);
    // 2: the holder's slice ended (3), and the next waiter spun for it (1).
    let slots = [running(), slot(LOCK, 70), running(), slot(RESOURCE, 40)];
    assert_eq!(picks(api, &slots, 0, PAPER), [3, 1]);
    // 3: W2 (1) waits for W1 (3), which spun before it; the holder runs again (2).
    let slots = [running(), slot(LOCK, 70), running(), slot(LOCK, 60)];
    assert_eq!(picks(api, &slots, 0, PAPER), [3, 1]);
    // 3 with W1's slice ended and an older resource-waiter that is not involved (2).
    let slots = [running(), slot(LOCK, 70), slot(RESOURCE, 10), slot(RESOURCE, 60)];
    assert_eq!(picks(api, &slots, 0, PAPER), [3, 2, 1]);
}

pub fn variants_reverse_one_heuristic_each(api: &Api) {
    let slots = [
        running(),
        slot(RESOURCE, 10),
        slot(RESOURCE, 20),
        slot(LOCK, 30),
        slot(LOCK, 40),
        slot(YIELDED, 50),
        slot(YIELDED, 60),
    ];
    let order = |flags: Flags| picks(api, &slots, 0, flags.0);
    assert_eq!(order(Flags::PAPER), [2, 1, 3, 4, 5, 6]);
    assert_eq!(order(Flags::CPTH_R), [1, 2, 3, 4, 5, 6]);
    assert_eq!(order(Flags::CPTH_L), [2, 1, 4, 3, 5, 6]);
    assert_eq!(order(Flags::CCH), [3, 4, 2, 1, 5, 6]);
    assert_eq!(order(Flags::CCH | Flags::CPTH_L | Flags::CPTH_R), [4, 3, 1, 2, 5, 6]);
    assert_eq!(order(Flags::NO_YIELDED_LIST), [6, 5, 2, 1, 3, 4]);
    // These decide before a pick, or after.
    for flag in [Flags::DISPLACED_LAST, Flags::RETRY, Flags::TRUE_LISTS] {
        assert_eq!(order(flag), order(Flags::PAPER));
    }
}

pub fn woken_siblings_are_candidates(api: &Api) {
    // The spinner (0) sent an interrupt to a vCPU that slept; its CPU is busy, so it waits (1).
    let owner = Slot { cpu: 1, ..slot(WOKEN, 5) };
    let slots = [Slot { running: 1, ..running() }, owner, Slot { cpu: 2, ..running() }];
    for flags in [OURS, ADDED, Flags::WOKEN_LIST.0] {
        assert_eq!(api.decide(&slots, 0, 0, flags), 1);
    }
    // The paper's lists have preempted vCPUs only.
    for flags in [PAPER, Flags::CCH.0, Flags::CPTH_R.0, Flags::CPTH_L.0, Flags::RETRY.0] {
        assert_eq!(api.decide(&slots, 0, 0, flags), -1);
    }
    // Who sleeps still is no candidate, and a VM of such is complete.
    let asleep = Slot { ready: 0, ..owner };
    assert_eq!(api.decide(&[slots[0], asleep, slots[2]], 0, 0, OURS), -1);
    assert_eq!(api.decide(&[slots[0], asleep, slots[2]], 0, 0, ADDED), -3);
    // It counts as missing: one runs, two wait for cores that others have.
    let elsewhere = Slot { cpu: 2, ..slot(LOCK, 9) };
    for flags in [ADDED, QUORUM] {
        assert_eq!(api.decide(&[slots[0], owner, elsewhere], 0, 0, flags), -2);
    }

    // After the resource waiters, before the lock waiters, oldest first; whichever is first.
    let slots = [
        running(),
        slot(LOCK, 1),
        slot(YIELDED, 2),
        slot(WOKEN, 4),
        slot(WOKEN, 3),
        slot(RESOURCE, 9),
    ];
    let order = |flags: Flags| picks(api, &slots, 0, flags.0 | OURS);
    assert_eq!(order(Flags::PAPER), [5, 4, 3, 1, 2]);
    assert_eq!(order(Flags::CPTH_R | Flags::CPTH_L), [5, 4, 3, 1, 2]);
    assert_eq!(order(Flags::CCH), [1, 4, 3, 5, 2]);
    assert_eq!(order(Flags::NO_YIELDED_LIST), [5, 2, 4, 3, 1]);
}

pub fn user_mode_ranks_last(api: &Api) {
    let slots = [
        running(),
        in_user_mode(slot(RESOURCE, 10)),
        in_user_mode(slot(RESOURCE, 20)),
        in_user_mode(slot(LOCK, 30)),
        in_user_mode(slot(YIELDED, 40)),
        slot(YIELDED, 50),
        in_user_mode(slot(WOKEN, 60)), // slept in the guest's kernel, whatever the byte says
        slot(LOCK, 70),
    ];
    let order = |flags: Flags| picks(api, &slots, 0, flags.0 | OURS);
    assert_eq!(order(Flags::PAPER), [6, 7, 5, 2, 1, 3, 4]);
    assert_eq!(order(Flags::CCH), [7, 6, 5, 3, 2, 1, 4]);
    assert_eq!(order(Flags::NO_YIELDED_LIST), [5, 6, 7, 4, 2, 1, 3]);
    // The paper does not ask where a vCPU was.
    assert_eq!(picks(api, &slots, 0, PAPER), [2, 1, 3, 7, 4, 5]);
}

/// Snapshots with many ties, any category number, any readiness.
fn snapshots(max: usize) -> impl Strategy<Value = Vec<Slot>> {
    let time = prop_oneof![0..4u64, any::<u64>(), (0..2u64).prop_map(|d| u64::MAX - d)];
    // Few CPUs, CPUs that are equal modulo 64, and any.
    let cpu = prop_oneof![0..9u16, (0..3u16, 0..3u16).prop_map(|(a, b)| a + 64 * b), any::<u16>()];
    let one = (time, 0..7u8, 0..3u8, 0..2u8, cpu, 0..6u8).prop_map(
        |(preempted_at, category, ready, mark, cpu, user_mode)| Slot {
            preempted_at,
            category,
            ready,
            yielded_mark: mark,
            running: mark,
            cpu,
            user_mode: user_mode.saturating_sub(3),
            shared: mark,
        },
    );
    prop::collection::vec(one, 0..max)
}

/// Any flags but the quorum, with which a pick is not always one.
fn any_flags() -> impl Strategy<Value = u32> {
    (0..512u32).prop_map(|flags| flags & !QUORUM)
}

fn is_candidate(slot: &Slot, flags: u32) -> bool {
    let listed = match slot.category {
        WOKEN => flags & Flags::WOKEN_LIST.0 != 0,
        other => [RESOURCE, LOCK, YIELDED].contains(&other),
    };
    slot.ready != 0 && listed
}

pub fn a_pick_is_a_candidate(api: &Api) {
    let input = (snapshots(66), 0..70usize, any::<u64>(), any_flags());
    property(1500, input, |(slots, caller, excluded, flags)| {
        let eligible = |i: usize| {
            i < 64 && i != caller && excluded >> i & 1 == 0 && is_candidate(&slots[i], flags)
        };
        match api.pick(&slots, caller, excluded, flags) {
            Some(index) => {
                assert!(slots.len() <= 64);
                assert!(eligible(index), "{index} is no candidate");
            }
            None => assert!(slots.len() > 64 || !(0..slots.len()).any(eligible), "none found"),
        }
    });
    assert_eq!(api.pick(&[slot(LOCK, 1)], usize::MAX, 0, PAPER), Some(0));
    assert_eq!(api.pick(&[slot(LOCK, 1)], 0, 0, PAPER), None);
    assert_eq!(api.pick(&[], 0, 0, PAPER), None);
    assert_eq!(api.pick(&[slot(LOCK, 1); 64], 63, !0 >> 1, PAPER), None);
    assert_eq!(api.pick(&[slot(LOCK, 1); 65], 0, 0, PAPER), None);
}

/// The order as the paper words it, on lists that are sorted: over all or, with the flag, over those
/// that were in kernel mode, then over the rest.
fn listed(slots: &[Slot], caller: usize, flags: u32) -> Vec<usize> {
    let last = flags & Flags::USER_MODE_LAST.0 != 0;
    let is_user = |s: &Slot| last && s.user_mode != 0 && s.category != WOKEN;
    let lists = |user| listed_of(slots, caller, flags, &|s| is_user(s) == user);
    [lists(false), lists(true)].concat()
}

fn listed_of(
    slots: &[Slot],
    caller: usize,
    flags: u32,
    among: &dyn Fn(&Slot) -> bool,
) -> Vec<usize> {
    let list = |category: u8, newest_first: bool| {
        let mut list: Vec<usize> = (0..slots.len())
            .map(|step| (caller.min(slots.len() - 1) + 1 + step) % slots.len())
            .filter(|&i| i != caller && is_candidate(&slots[i], flags) && among(&slots[i]))
            .filter(|&i| match slots[i].category {
                YIELDED if flags & 8 != 0 => category == RESOURCE,
                other => category == other,
            })
            .collect();
        list.sort_by(|&a, &b| {
            let order = slots[a].preempted_at.cmp(&slots[b].preempted_at);
            if newest_first {
                order.reverse()
            } else {
                order
            }
        });
        list
    };
    let resource = list(RESOURCE, flags & 1 == 0);
    let lock = list(LOCK, flags & 2 != 0);
    let woken = list(WOKEN, false);
    let yielded = list(YIELDED, false);
    match flags & 4 {
        0 => [resource, woken, lock, yielded].concat(),
        _ => [lock, woken, resource, yielded].concat(),
    }
}

pub fn picks_in_turn_are_one_order(api: &Api) {
    let input = (snapshots(20), 0..24usize, any_flags());
    property(1500, input, |(slots, caller, flags)| {
        if slots.is_empty() {
            return;
        }
        // A caller out of range is no vCPU, and the circle starts at 0.
        let caller = if caller >= slots.len() { usize::MAX } else { caller };
        assert_eq!(picks(api, &slots, caller, flags), listed(&slots, caller, flags));
    });
}

pub fn snapshots_have_one_total_order(api: &Api) {
    let input = (snapshots(9), 0..9usize, any_flags());
    property(300, input, |(slots, caller, flags)| {
        let who: Vec<usize> =
            (0..slots.len()).filter(|&i| i != caller && is_candidate(&slots[i], flags)).collect();
        let only = |of: &[usize]| {
            api.pick(&slots, caller, !of.iter().fold(0u64, |bits, i| bits | 1 << i), flags)
        };
        let compare = |a: usize, b: usize| match only(&[a, b]) {
            Some(index) if index == a => Ordering::Less,
            Some(index) if index == b => Ordering::Greater,
            other => panic!("of {a} and {b}: {other:?}"),
        };
        for &a in &who {
            assert_eq!(only(&[a]), Some(a));
            for &b in who.iter().filter(|&&b| b != a) {
                assert_eq!(compare(a, b), compare(b, a).reverse());
                for &c in who.iter().filter(|&&c| c != a && c != b) {
                    if compare(a, b) == Ordering::Less && compare(b, c) == Ordering::Less {
                        assert_eq!(compare(a, c), Ordering::Less, "{a} < {b} < {c}");
                    }
                }
            }
        }
    });
}

/// The core is given away where fewer run than wait where none of them runs, and the flag asks
/// for it, and where none waits the VM is complete; else the quorum changes nothing.
pub fn the_quorum_gives_way_or_changes_nothing(api: &Api) {
    let input = (snapshots(65), 0..64usize, any::<u64>(), any_flags());
    property(1500, input, |(slots, caller, excluded, flags)| {
        let plain = api.decide(&slots, caller, excluded, flags);
        assert!(plain >= -1, "gives way without the flag");
        let all = || slots.iter().enumerate();
        let runs = |i: usize, s: &Slot| i == caller || (s.category == 0 && s.running != 0);
        let running =
            all().filter(|(i, s)| runs(*i, s)).count() + usize::from(caller >= slots.len());
        let ready: Vec<&Slot> = all()
            .filter(|(i, s)| *i != caller && s.category != 0 && s.ready != 0)
            .map(|(_, s)| s)
            .collect();
        let ours: BTreeSet<u16> = all().filter(|(i, s)| runs(*i, s)).map(|(_, s)| s.cpu).collect();
        let missing = ready.iter().filter(|s| !ours.contains(&s.cpu)).count();
        let expected = match ready.len() {
            0 => -3,
            _ if running < missing => -2,
            _ => plain,
        };
        assert_eq!(api.decide(&slots, caller, excluded, flags | QUORUM), expected);
    });
    // Two VMs of four on four cores: the one with a single core leaves it, the other may ask.
    let waits = Slot { cpu: 1, ..slot(LOCK, 1) };
    let runs = Slot { running: 1, ..Slot::default() };
    assert_eq!(api.decide(&[runs, waits, waits, waits], 0, 0, QUORUM), -2);
    assert_eq!(api.decide(&[runs, runs, waits, waits], 0, 0, QUORUM), 2);
    assert_eq!(api.decide(&[runs, runs, runs, runs], 0, 0, QUORUM), -3);
    assert_eq!(api.decide(&[runs, runs, runs, runs], 0, 0, PAPER), -1);
    // Eight vCPUs on two CPUs: all that wait do so behind a sibling, and the paper's order holds.
    let on = |cpu: u16, of: Slot| Slot { cpu, ..of };
    let mut eight = [on(0, slot(RESOURCE, 5)); 8];
    (eight[0], eight[1]) = (on(0, runs), on(1, runs));
    eight[7] = on(1, slot(RESOURCE, 9));
    assert_eq!(api.decide(&eight, 0, 0, QUORUM), 7);
    // Two of them moved to other CPUs do not outnumber the two that run; three do.
    (eight[2].cpu, eight[3].cpu) = (2, 3);
    assert_eq!(api.decide(&eight, 0, 0, QUORUM), 7);
    eight[4].cpu = 4;
    assert_eq!(api.decide(&eight, 0, 0, QUORUM), -2);
    // CPUs 3 and 67 are two, on a host where both are.
    let (here, there) = (on(3, runs), on(67, waits));
    assert_eq!(api.decide(&[here, there, on(131, waits)], 0, 0, QUORUM), -2);
    assert_eq!(api.decide(&[here, on(3, waits), on(3, waits)], 0, 0, QUORUM), 1);
    let behind_nobody = [on(64, runs), on(0, waits), on(0, waits)];
    assert_eq!(api.decide(&behind_nobody, 0, 0, QUORUM), -2);
    let far = on(67, runs);
    assert_eq!(api.decide(&[far, there, there], 0, 0, QUORUM), 1);
    assert_eq!(api.decide(&[far, on(3, waits), on(3, waits)], 0, 0, QUORUM), -2);
    // The boost of the waiting vCPU failed: there is no vCPU to yield to, but the search was not
    // complete.
    assert_eq!(api.decide(&[runs, runs, runs, waits], 0, 1 << 3, QUORUM), -1);
}

pub fn ties_go_round_from_the_caller(api: &Api) {
    for category in [RESOURCE, LOCK, YIELDED, WOKEN] {
        let slots = [slot(category, 7); 5];
        assert_eq!(picks(api, &slots, 2, OURS), [3, 4, 0, 1]);
        assert_eq!(picks(api, &slots, 4, OURS), [0, 1, 2, 3]);
        assert_eq!(picks(api, &slots, 0, OURS), [1, 2, 3, 4]);
        assert_eq!(picks(api, &slots, 5, OURS), [0, 1, 2, 3, 4]);
    }
}

pub fn marks_move_to_the_yielded_list(api: &Api) {
    const ALONE: u32 = Flags::NO_YIELDED_LIST.0;
    const LAST: u32 = Flags::DISPLACED_LAST.0;
    // in its PLE exit, displaced, mark, flags → category, mark
    let table = [
        (false, false, 0, PAPER, RESOURCE, 0),
        (false, false, 1, PAPER, YIELDED, 0),
        (true, false, 0, PAPER, LOCK, 0),
        (true, false, 1, PAPER, LOCK, 1),
        (false, false, 1, ALONE, RESOURCE, 0),
        (false, false, 0, ALONE, RESOURCE, 0),
        (true, false, 1, ALONE, LOCK, 1),
        // A vCPU that a directed yield took off its core counts only with the flag.
        (false, true, 0, PAPER, RESOURCE, 0),
        (false, true, 1, PAPER, YIELDED, 0),
        (false, true, 0, LAST, YIELDED, 0),
        (false, true, 1, LAST, YIELDED, 0),
        (false, false, 0, LAST, RESOURCE, 0),
        (false, false, 1, LAST, YIELDED, 0),
        (true, true, 0, LAST, LOCK, 0),
        (true, true, 1, LAST, LOCK, 1),
        (false, true, 1, LAST | ALONE, RESOURCE, 0),
    ];
    for (in_ple_exit, displaced, before, flags, category, after) in table {
        let mut mark = before;
        assert_eq!(api.category(in_ple_exit, displaced, &mut mark, flags), category);
        assert_eq!(mark, after, "mark after {in_ple_exit} {displaced} {before} {flags}");
    }
}

/// One core under a fair scheduler, as section 3.3 tells it: a spinner, a holder and others
/// whose slices ended. Virtual run time decides who runs; a picked vCPU runs a quantum and,
/// being ahead in virtual run time, is preempted again.
struct Core {
    slots: Vec<Slot>,
    vruntime: Vec<u64>,
    now: u64,
}

const SPINNER: usize = 0;
const HOLDER: usize = 1;
const QUANTUM: u64 = 10;
const WINDOW: u64 = 1;

impl Core {
    /// `others` were preempted after the holder, so they are newer.
    fn new(others: usize) -> Self {
        let mut slots = vec![running(), slot(RESOURCE, 1)];
        let mut vruntime = vec![0, 5_000];
        for n in 0..others as u64 {
            slots.push(slot(RESOURCE, 2 + n));
            vruntime.push(6_000 + n);
        }
        Core { slots, vruntime, now: 1_000 }
    }

    fn run(&mut self, vcpu: usize, cycles: u64) {
        self.vruntime[vcpu] += cycles;
        self.now += cycles;
    }

    /// PLE exits until the lock holder runs, the scheduler alone or a pick having chosen it.
    fn exits_until_the_holder_runs(&mut self, api: &Api, flags: u32) -> u64 {
        for exits in 0.. {
            let behind = (0..self.slots.len()).min_by_key(|&i| self.vruntime[i]).unwrap();
            if behind != SPINNER {
                return exits; // fair scheduling got there by itself
            }
            self.run(SPINNER, WINDOW);
            let picked = api.pick(&self.slots, SPINNER, 0, flags).expect("others are ready");
            if picked == HOLDER {
                return exits + 1;
            }
            self.boost(api, picked, flags);
        }
        unreachable!()
    }

    fn boost(&mut self, api: &Api, picked: usize, flags: u32) {
        let mut mark = 1;
        self.run(picked, QUANTUM);
        let category = api.category(false, false, &mut mark, flags);
        self.slots[picked] = Slot { yielded_mark: mark, ..slot(category, self.now) };
    }
}

pub fn the_yielded_list_ends_the_loop(api: &Api) {
    for others in [1, 2, 7, 30] {
        // With the list each of the others is in the way once.
        let exits = Core::new(others).exits_until_the_holder_runs(api, PAPER);
        assert_eq!(exits, others as u64 + 1);
        // Without, the newest comes back each time, until virtual run time has passed.
        let exits = Core::new(others).exits_until_the_holder_runs(api, Flags::NO_YIELDED_LIST.0);
        assert!(exits >= 4_000, "{exits} exits starve nobody");
    }
}

pub fn the_yielded_list_gives_everyone_a_turn(api: &Api) {
    for (flags, starves) in [(PAPER, false), (Flags::NO_YIELDED_LIST.0, true)] {
        let others = 6;
        let mut core = Core::new(others);
        let mut turns = vec![0u32; core.slots.len()];
        for _ in 0..700 {
            let picked = api.pick(&core.slots, SPINNER, 0, flags).expect("others are ready");
            turns[picked] += 1;
            core.boost(api, picked, flags);
        }
        let fewest = *turns[1..].iter().min().unwrap();
        let most = *turns[1..].iter().max().unwrap();
        if starves {
            assert_eq!((fewest, most), (0, 700), "{turns:?}");
        } else {
            assert_eq!((fewest, most), (100, 100), "{turns:?}");
        }
    }
}
