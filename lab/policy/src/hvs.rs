// SPDX-License-Identifier: MIT OR Apache-2.0
//! HVS, Heuristic VCPU Scheduling: which vCPU of a VM should get the core that a spinning vCPU gives up.
//!
//! Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.2, 3.3 and 4.4.
//!
//! ```
//! use unspin_policy::hvs::{decide, Category, Decision, Flags, Slot};
//!
//! let slots = [
//!     Slot::default(),                           // 0 spins and asks
//!     Slot::ready(Category::LockWaiter, 10),     // 1 spun before
//!     Slot::ready(Category::ResourceWaiter, 20), // 2 and 3: their time slices ended,
//!     Slot::ready(Category::ResourceWaiter, 30), //   3 last
//! ];
//! assert_eq!(decide(&slots, 0, 0, Flags::PAPER), Decision::Vcpu(3));
//! assert_eq!(decide(&slots, 0, 1 << 3, Flags::PAPER), Decision::Vcpu(2)); // 3 could not be boosted
//! assert_eq!(decide(&slots, 0, 0, Flags::CCH), Decision::Vcpu(1));
//! ```

use crate::sys;
use unspin_uapi::{flags, Variant};

/// Most vCPUs of a VM for [`decide`]; above, it picks none. There [`Waiting::look`] chooses the vCPUs
/// among which [`decide_looked`] decides.
pub const SLOTS_MAX: usize = 64;
/// Most vCPUs a VM may have for [`Waiting::look`].
pub const VCPUS_MAX: usize = 4096;
/// Most vCPUs in a look.
pub const LOOKS_MAX: usize = 2 * SLOTS_MAX;

/// Why a vCPU is not running. The numbers are part of the trace format.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Category {
    /// It runs, or still sleeps: never a candidate.
    #[default]
    NotPreempted = 0,
    /// Its time slice ended.
    ResourceWaiter = 1,
    /// It was descheduled inside its own PLE exit.
    LockWaiter = 2,
    /// It was picked before, and its time slice ended since.
    Yielded = 3,
    /// It slept, was woken, and waits for a core.
    Woken = 4,
}

impl Category {
    /// The category with this number in a trace.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Category::NotPreempted),
            1 => Some(Category::ResourceWaiter),
            2 => Some(Category::LockWaiter),
            3 => Some(Category::Yielded),
            4 => Some(Category::Woken),
            _ => None,
        }
    }
}

/// One vCPU in a snapshot. `category` is a number as in traces; one that is no [`Category`] is
/// never a candidate.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// When it lost its core, or went to sleep; any clock that never runs back within a VM.
    pub preempted_at: u64,
    pub category: u8,
    /// Not 0 if the scheduler would run it.
    pub ready: u8,
    /// Not 0 if it was picked since it was last preempted. [`decide`] ignores it.
    pub yielded_mark: u8,
    /// Not 0 if it is on a core now.
    pub running: u8,
    /// The pCPU on which it runs or was switched out; only compared.
    pub cpu: u16,
    /// Not 0 if it was preempted in guest user mode: see [`Flags::USER_MODE_LAST`]. Unused for
    /// [`Category::Woken`].
    pub user_mode: u8,
    /// Not 0 if a vCPU of its VM runs on `cpu`. Only [`decide_looked`] uses it.
    pub shared: u8,
}

impl Slot {
    /// A vCPU that is ready and was preempted at that time.
    pub fn ready(category: Category, preempted_at: u64) -> Self {
        Slot { preempted_at, category: category as u8, ready: 1, ..Slot::default() }
    }
}

/// Variants of section 4.4, each the opposite of one heuristic. They combine by `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// The paper's HVS. Section 3.3 leaves open what [`Flags::TRUE_LISTS`] and
    /// [`Flags::DISPLACED_LAST`] change.
    pub const PAPER: Flags = Flags(0);
    /// All that the variant `hvs` adds to the paper's.
    pub const ADDED: Flags = Flags(flags::ADDED);
    /// Give way below a quorum, and detect a complete VM.
    pub const QUORUM: Flags = Flags(flags::QUORUM);
    /// A vCPU that was woken and waits for a core is a candidate, too.
    pub const WOKEN_LIST: Flags = Flags(flags::WOKEN_LIST);
    /// vCPUs preempted in user mode rank below all others.
    pub const USER_MODE_LAST: Flags = Flags(flags::USER_MODE_LAST);
    /// If the scheduler refuses a yield, the next in rank is tried; only a vCPU that was yielded to
    /// is marked. [`decide`] ignores it.
    pub const RETRY: Flags = Flags(flags::RETRY);
    /// A preempted vCPU stays on its list until it is picked or preempted again. [`decide`] ignores it.
    pub const TRUE_LISTS: Flags = Flags(flags::TRUE_LISTS);
    /// Resource-waiters oldest first.
    pub const CPTH_R: Flags = Flags(flags::COUNTER_TIME_RESOURCE);
    /// Lock-waiters newest first.
    pub const CPTH_L: Flags = Flags(flags::COUNTER_TIME_LOCK);
    /// Lock-waiters before resource-waiters.
    pub const CCH: Flags = Flags(flags::COUNTER_CAUSALITY);
    /// Section 3.2 without 3.3: a yielded vCPU is a resource-waiter like any other.
    pub const NO_YIELDED_LIST: Flags = Flags(flags::NO_YIELDED_LIST);
    /// A vCPU that a directed yield took off its core is picked last, like a yielded one.
    pub const DISPLACED_LAST: Flags = Flags(flags::DISPLACED_LAST);
}

impl Flags {
    /// Whether it contains all flags of `other`.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl From<Variant> for Flags {
    fn from(variant: Variant) -> Flags {
        Flags(variant.flags())
    }
}

/// The category of a vCPU that is scheduled out while runnable (section 3.3). `displaced`: it lost
/// its core to a directed yield to another. `yielded_mark`: [`Slot::yielded_mark`], which is
/// updated.
pub fn category_on_preempt(
    in_ple_exit: bool,
    displaced: bool,
    yielded_mark: &mut u8,
    flags: Flags,
) -> Category {
    // SAFETY: a valid reference for the duration of the call.
    let number = unsafe {
        sys::hvs_category_on_preempt(in_ple_exit.into(), displaced.into(), yielded_mark, flags.0)
    };
    Category::from_number(number).expect("policy/hvs.c returns a category")
}

/// What a spinning vCPU should do with its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Keep it: no sibling could use it.
    Nobody,
    /// Leave it to whatever the scheduler runs next (below the quorum).
    GiveWay,
    /// Keep it, and spin longer before the next exit: no sibling waits for a core.
    Complete,
    /// Yield to this sibling.
    Vcpu(usize),
}

impl Decision {
    /// The decision with the number of hvs_pick() or of a trace.
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            -3 => Some(Decision::Complete),
            -2 => Some(Decision::GiveWay),
            -1 => Some(Decision::Nobody),
            _ => usize::try_from(number).ok().map(Decision::Vcpu),
        }
    }

    /// The number that hvs_pick() returns for it.
    pub fn number(self) -> i32 {
        match self {
            Decision::Complete => -3,
            Decision::GiveWay => -2,
            Decision::Nobody => -1,
            Decision::Vcpu(index) => index as i32,
        }
    }
}

/// Yields to the best candidate, if any: ready, preempted, not `caller`, and not among the bits of
/// `excluded` (those that could not be boosted just now). Of equal ranks, the first after `caller` wins,
/// cyclically. [`Decision::Nobody`] with more than [`SLOTS_MAX`] slots; "give way" and "complete" need
/// [`Flags::QUORUM`].
pub fn decide(slots: &[Slot], caller: usize, excluded: u64, flags: Flags) -> Decision {
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    let caller = u32::try_from(caller).unwrap_or(u32::MAX);
    // SAFETY: count slots are there to read, or the callee reads none.
    let index = unsafe { sys::hvs_pick(slots.as_ptr(), count, caller, excluded, flags.0) };
    Decision::from_number(index).expect("policy/hvs.c returns an index or a named value")
}

/// Which vCPUs of a VM with more than [`SLOTS_MAX`] vCPUs have no core, and why.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Bit sets of vCPU numbers by category. [`Category::NotPreempted`] has those asleep, woken or
    /// not.
    pub off: [[u64; VCPUS_MAX / 64]; 4],
    /// Number of vCPUs that run or have a bit.
    pub known: u32,
    /// Where the next look at each list begins.
    pub next: [u16; 4],
}

/// The vCPUs that an exit in such a VM considers.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub caller: u32,
    pub words: u32,
    pub count: u32,
    pub running: u32,
    pub preempted: u32,
    pub number: [u16; LOOKS_MAX],
}

impl Look {
    pub const NONE: Look =
        Look { caller: 0, words: 0, count: 0, running: 1, preempted: 0, number: [0; LOOKS_MAX] };

    /// The vCPUs to look at. Those of the list that ranks first come first.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.number[..self.count as usize].iter().map(|&number| usize::from(number))
    }
}

impl Waiting {
    /// A VM of `vcpus` vCPUs, all of which run.
    pub fn new(vcpus: u32) -> Waiting {
        Waiting { off: [[0; VCPUS_MAX / 64]; 4], known: vcpus, next: [0; 4] }
    }

    /// `vcpu` has lost its core, or sleeps ([`Category::NotPreempted`]).
    pub fn stops(&mut self, vcpu: usize, why: Category) {
        self.off[why as usize][vcpu / 64] |= 1 << (vcpu % 64);
    }

    /// It has a core again.
    pub fn runs(&mut self, vcpu: usize) {
        for list in &mut self.off {
            list[vcpu / 64] &= !(1 << (vcpu % 64));
        }
    }

    /// The vCPUs that the exit of `caller` considers, in a VM of this many vCPUs; none above
    /// [`VCPUS_MAX`].
    pub fn look(&mut self, vcpus: usize, caller: usize, flags: Flags) -> Look {
        let mut look = Look::NONE;
        let vcpus = u32::try_from(vcpus).unwrap_or(u32::MAX);
        let caller = u32::try_from(caller).unwrap_or(u32::MAX);
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::hvs_look(self, vcpus, caller, flags.0, &mut look) };
        look
    }
}

/// As [`decide`], among the vCPUs of `look`: `slots` are some of them, without the caller.
pub fn decide_looked(slots: &[Slot], look: &Look, excluded: u64, flags: Flags) -> Decision {
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    // SAFETY: count slots are there to read, or the callee reads none.
    let index = unsafe { sys::hvs_pick_looked(slots.as_ptr(), count, look, excluded, flags.0) };
    Decision::from_number(index).expect("policy/hvs.c returns an index or a named value")
}

const _: () = {
    assert!(std::mem::size_of::<Waiting>() == 4 * 8 * VCPUS_MAX / 64 + 16);
    assert!(std::mem::size_of::<Look>() == 20 + 2 * LOOKS_MAX);
    assert!(std::mem::size_of::<Slot>() == 16);
    assert!(std::mem::offset_of!(Slot, category) == 8);
    assert!(std::mem::offset_of!(Slot, ready) == 9);
    assert!(std::mem::offset_of!(Slot, yielded_mark) == 10);
    assert!(std::mem::offset_of!(Slot, cpu) == 12);
    assert!(std::mem::offset_of!(Slot, user_mode) == 14);
    assert!(std::mem::offset_of!(Slot, shared) == 15);
};
