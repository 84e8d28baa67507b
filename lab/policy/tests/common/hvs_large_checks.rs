// SPDX-License-Identifier: MIT OR Apache-2.0
//! HVS in VMs of more than 64 vCPUs: which vCPUs an exit looks at, and that it forgets none.

use super::{property, Api};
use proptest::prelude::*;
use unspin_policy::hvs::{Category, Flags, Look, Slot, Waiting, SLOTS_MAX, VCPUS_MAX};

const ASLEEP: usize = Category::NotPreempted as usize;
const RESOURCE: usize = Category::ResourceWaiter as usize;
const LOCK: usize = Category::LockWaiter as usize;
const YIELDED: usize = Category::Yielded as usize;
const WOKEN: u8 = Category::Woken as u8;
const ADDED: u32 = Flags::ADDED.0;
const QUORUM: u32 = Flags::QUORUM.0;

fn waiting(lists: &[Option<usize>]) -> Waiting {
    let mut waiting = Waiting::new(lists.len() as u32);
    for (vcpu, list) in lists.iter().enumerate() {
        if let Some(list) = list {
            waiting.stops(vcpu, Category::from_number(*list as u8).unwrap());
        }
    }
    waiting
}

/// Which list each of 1 to 300 vCPUs is on, some lists seldom.
fn lists() -> impl Strategy<Value = Vec<Option<usize>>> {
    let of = prop::collection::vec((0..4usize, any::<bool>()), 1..300);
    (of, 0..5usize).prop_map(|(of, seldom)| {
        let list = |(n, (list, kept)): (usize, (usize, bool))| {
            (list != seldom || n % 9 == 0).then_some(list).filter(|_| kept || n % 3 > 0)
        };
        of.into_iter().enumerate().map(list).collect()
    })
}

fn any_flags() -> impl Strategy<Value = u32> {
    0..=Flags(unspin_uapi::flags::ALL).0
}

/// The numbers on a list, from `from` round, without the caller's.
fn round(lists: &[Option<usize>], list: usize, from: usize, caller: usize) -> Vec<usize> {
    let n = lists.len().next_multiple_of(64);
    let from = if from < n { from } else { 0 };
    (0..n)
        .map(|step| (from + step) % n)
        .filter(|&v| v < lists.len() && v != caller && lists[v] == Some(list))
        .collect()
}

pub fn a_look_takes_the_likeliest(api: &Api) {
    let input = (lists(), 0..320usize, any_flags(), prop::array::uniform4(0..400u16));
    property(1500, input, |(lists, caller, flags, next)| {
        let mut state = Waiting { next, ..waiting(&lists) };
        let look = api.look(&mut state, lists.len(), caller, flags);
        let (first, second) =
            if flags & Flags::CCH.0 == 0 { (RESOURCE, LOCK) } else { (LOCK, RESOURCE) };
        let (mut room, mut expected, mut after) = (SLOTS_MAX, Vec::new(), next);
        for list in [first, ASLEEP, second, YIELDED] {
            let all = round(&lists, list, next[list].into(), caller);
            let most = match list {
                ASLEEP if flags & Flags::WOKEN_LIST.0 == 0 => continue,
                ASLEEP => SLOTS_MAX,
                _ => room,
            };
            let taken = &all[..most.min(all.len())];
            if !taken.is_empty() && taken.len() < all.len() {
                after[list] = *taken.last().unwrap() as u16 + 1;
            }
            if list != ASLEEP {
                room -= taken.len();
            }
            expected.extend_from_slice(taken);
        }
        assert_eq!(look.numbers().collect::<Vec<_>>(), expected);
        assert_eq!(state.next, after);
        if flags & QUORUM != 0 {
            let off = |asleep: bool| {
                let is = |(v, l): &(usize, &Option<usize>)| {
                    *v != caller && l.is_some_and(|l| (l == ASLEEP) == asleep)
                };
                lists.iter().enumerate().filter(is).count() as u32
            };
            assert_eq!(look.preempted, off(false));
            assert_eq!(look.running, (lists.len() as u32 - off(true) - off(false)).max(1));
        }
    });
    let mut all = waiting(&[Some(LOCK); VCPUS_MAX]);
    assert_eq!(api.look(&mut all, VCPUS_MAX, 0, ADDED).numbers().last(), Some(64));
    assert_eq!(api.look(&mut all, VCPUS_MAX + 1, 0, ADDED), Look { running: 1, ..Look::NONE });
}

/// The snapshot of the vCPUs in a look, as the module builds it.
fn snapshot(look: &Look, slots: &[Slot]) -> (Vec<usize>, Vec<Slot>) {
    let ready = |v: &usize| slots[*v].ready != 0 && slots[*v].category != 0;
    let numbers: Vec<usize> = look.numbers().filter(ready).take(SLOTS_MAX).collect();
    let seen = numbers.iter().map(|&v| slots[v]).collect();
    (numbers, seen)
}

/// Where all fit, a look decides as the snapshot of the whole VM does.
pub fn a_look_decides_as_a_snapshot_of_all(api: &Api) {
    let one = (0..50u64, 0..5u8, any::<bool>(), any::<bool>(), 0..40u16, 0..4u8).prop_map(
        |(preempted_at, category, ready, running, cpu, user)| Slot {
            preempted_at,
            category,
            ready: u8::from(category == WOKEN || category != 0 && ready),
            running: u8::from(category == 0 && running),
            cpu,
            user_mode: user / 3,
            ..Slot::default()
        },
    );
    let input = (prop::collection::vec(one, 1..65), 0..64usize, any_flags());
    property(1500, input, |(mut slots, caller, flags)| {
        let caller = caller % slots.len();
        // With the flag, the yielded list is empty. Otherwise two lists would have one rank here.
        let flags = flags & !Flags::NO_YIELDED_LIST.0;
        let flags = if flags & QUORUM != 0 { flags | Flags::WOKEN_LIST.0 } else { flags };
        slots[caller] = Slot { category: 0, ready: 0, running: 1, ..slots[caller] };
        let lists: Vec<Option<usize>> = slots
            .iter()
            .map(|s| match s.category {
                0 if s.running != 0 => None,
                WOKEN => Some(ASLEEP),
                list => Some(list.into()),
            })
            .collect();
        // Of equals the first after the caller.
        let mut state = Waiting { next: [caller as u16 + 1; 4], ..waiting(&lists) };
        let look = api.look(&mut state, slots.len(), caller, flags);
        for v in 0..slots.len() {
            let cpu = slots[v].cpu;
            slots[v].shared = slots.iter().any(|s| s.running != 0 && s.cpu == cpu).into();
        }
        let (numbers, seen) = snapshot(&look, &slots);
        let picked = match api.decide_looked(&seen, &look, 0, flags) {
            index if index >= 0 => numbers[index as usize] as i32,
            other => other,
        };
        assert_eq!(picked, api.decide(&slots, caller, 0, flags));
    });
}

/// A vCPU that stays on a list that does not fit is looked at in each round of looks.
pub fn looks_go_round(api: &Api) {
    property(300, (66..400usize, 0..66usize, 0..3usize), |(vcpus, caller, list)| {
        let list = [ASLEEP, LOCK, YIELDED][list];
        let mut state = waiting(&vec![Some(list); vcpus]);
        let mut looks = vec![0u32; vcpus];
        let round = (vcpus - 1).div_ceil(SLOTS_MAX);
        for _ in 0..round {
            for v in api.look(&mut state, vcpus, caller, ADDED).numbers() {
                looks[v] += 1;
            }
        }
        for (v, &looks) in looks.iter().enumerate() {
            assert!(if v == caller { looks == 0 } else { looks > 0 }, "{v}: {looks}");
        }
    });
}

/// A VM of which few vCPUs run: a picked one takes the core of one that runs.
struct Vm<'a> {
    api: &'a Api,
    slots: Vec<Slot>,
    state: Waiting,
    now: u64,
    random: u64,
}

impl Vm<'_> {
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.random >> 33
    }

    fn stops(&mut self, vcpu: usize, in_ple_exit: bool, flags: u32) {
        self.now += 1;
        let mut mark = self.slots[vcpu].yielded_mark;
        let category = self.api.category(in_ple_exit, false, &mut mark, flags);
        let slot = Slot { preempted_at: self.now, category, ready: 1, ..Slot::default() };
        self.slots[vcpu] = Slot { yielded_mark: mark, ..slot };
        self.state.stops(vcpu, Category::from_number(category).unwrap());
    }

    /// A running vCPU exits, and the picked one takes its core. It leaves as a spinner, or as one
    /// whose slice ended.
    fn exit(&mut self, running: &mut [usize], spinners_go: bool, flags: u32) -> usize {
        let at = self.random() as usize % running.len();
        let look = self.api.look(&mut self.state, self.slots.len(), running[at], flags);
        let (numbers, seen) = snapshot(&look, &self.slots);
        let index = self.api.decide_looked(&seen, &look, 0, flags);
        let picked = numbers[usize::try_from(index).expect("others are ready")];
        assert!(!running.contains(&picked) && self.slots[picked].ready != 0);
        let gone = std::mem::replace(&mut running[at], picked);
        self.stops(gone, spinners_go, flags);
        self.slots[picked] = Slot { yielded_mark: 1, running: 1, ..Slot::default() };
        self.state.runs(picked);
        picked
    }
}

/// A picked vCPU comes back behind all that wait, so the number of vCPUs before another falls by
/// one with each look. Where exits add lock waiters without end, vCPUs on the yielded list, which
/// were picked before, wait for the scheduler, as in the paper.
pub fn everyone_who_stays_ready_is_picked(api: &Api) {
    let input = (66..200usize, 1..5usize, any::<bool>(), any::<u64>());
    property(40, input, |(vcpus, running, spinners_go, random)| {
        let flags = ADDED & !QUORUM;
        let state = Waiting::new(vcpus as u32);
        let mut vm = Vm { api, slots: vec![Slot::default(); vcpus], state, now: 0, random };
        let mut runs: Vec<usize> = (0..running).collect();
        for vcpu in running..vcpus {
            // Resource waiters, lock waiters and yielded ones.
            vm.slots[vcpu].yielded_mark = u8::from(vcpu % 5 == 0);
            vm.stops(vcpu, vcpu % 3 == 0, flags);
        }
        let most = vcpus * vcpus.div_ceil(SLOTS_MAX);
        let mut since = vec![0usize; vcpus];
        for _ in 0..3 * most {
            let picked = vm.exit(&mut runs, spinners_go, flags);
            for (vcpu, since) in since.iter_mut().enumerate() {
                let last = spinners_go && vm.slots[vcpu].category == YIELDED as u8;
                let waits = !runs.contains(&vcpu) && !last;
                *since = if waits && vcpu != picked { *since + 1 } else { 0 };
                assert!(*since <= most, "{vcpu} waits for {since} picks");
            }
        }
    });
}

pub fn the_quorum_of_a_large_vm(api: &Api) {
    // Of 256 vCPUs, `running` vCPUs run; the others are lock waiters.
    let decide = |running: usize, shared: usize, flags: u32| {
        let lists: Vec<Option<usize>> = (0..256).map(|v| (v >= running).then_some(LOCK)).collect();
        let look = api.look(&mut waiting(&lists), 256, 0, flags);
        let slots: Vec<Slot> = look
            .numbers()
            .enumerate()
            .map(|(n, v)| Slot {
                shared: u8::from(n < shared),
                ..Slot::ready(Category::LockWaiter, 1000 - v as u64)
            })
            .collect();
        api.decide_looked(&slots, &look, 0, flags)
    };
    // The longest preempted of those looked at.
    assert_eq!(decide(10, 64, ADDED), 63);
    assert_eq!(decide(10, 0, ADDED), -2);
    assert_eq!(decide(10, 0, ADDED & !QUORUM), 63);
    // 246 wait, and of 64 two, three or four are missing: some 7, 11 or 15 of all.
    assert_eq!(decide(10, 62, ADDED), 63);
    assert_eq!(decide(10, 61, ADDED), -2);
    // As many as run are not more. All are looked at.
    assert_eq!(decide(200, 0, ADDED), 55);
    assert_eq!(decide(128, 0, ADDED), 63);
    assert_eq!(decide(127, 0, ADDED), -2);
    assert_eq!(decide(256, 0, ADDED), -3);
    // Those that were looked at have been woken since, or sleep: who sleeps does not wait.
    let look = api.look(&mut waiting(&[Some(ASLEEP); 80]), 80, 80, ADDED);
    let asleep = [Slot::default(); 64];
    assert_eq!(api.decide_looked(&asleep, &look, 0, ADDED), -3);
    assert_eq!(api.decide_looked(&asleep, &look, 0, 0), -1);
    let preempted_not_ready = [Slot { category: LOCK as u8, ..Slot::default() }; 3];
    assert_eq!(api.decide_looked(&preempted_not_ready, &look, 0, ADDED), -3);
    let too_many = [Slot::ready(Category::LockWaiter, 1); 65];
    assert_eq!(api.decide_looked(&too_many, &look, 0, ADDED), -1);
}
