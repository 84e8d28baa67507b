// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gangs: whose turn it is on which pCPUs, so that the vCPUs of a VM run together
//! (policy/gang.h).
//!
//! Running vCPUs together on demand follows ASMan (Weng, Liu, Yu, Li, HPDC 2011); turns for the
//! whole host follow Ousterhout (ICDCS 1982). The accounts of CPU time owed, the group of LOW VMs
//! and fills are ours.
//!
//! ```
//! use unspin_policy::gang::{fill, Cpu, Filler, Host, Owner, Vcpu, Vm};
//!
//! // Two VMs with two vCPUs each, on the same two pCPUs. The vCPUs of the first spin.
//! let mut vms = [Vm { high: 1, ..Vm::new(0, 2) }, Vm::new(2, 2)];
//! let mut vcpus = [0, 1, 0, 1].map(|cpu| Vcpu { wants: 1, ..Vcpu::new(cpu, 1024) });
//! let (mut cpus, mut turn) = ([Cpu::default(); 2], 0);
//! for vcpu in &mut vcpus[2..] {
//!     vcpu.got = 4_000_000; // the other had both pCPUs until now
//! }
//! let mut host = Host { vms: &mut vms, vcpus: &mut vcpus, cpus: &mut cpus, turn: &mut turn };
//! host.account(4_000_000);
//! assert!(host.turn_starts());
//! assert_eq!([0, 1].map(|cpu| host.cpus[cpu].owner()), [Owner::Vm(0); 2]);
//! assert!(host.may_run(0, 1) && !host.may_run(1, 1));
//! assert_eq!(host.vcpus[1].target(), Some(1)); // a pCPU for itself
//! assert_eq!(host.vcpus[3].target(), None); // kept from running
//! let parked = [Filler { owed: host.vms[1].owed, vcpu: 3, ..Filler::default() }];
//! assert_eq!(fill(&parked), Some(0)); // and let in, as the owner sleeps there
//! assert_eq!((host.vms[0].owed, host.vms[1].owed), (4_000_000, -4_000_000));
//! ```

use crate::sys;

/// Most pCPUs of a host.
pub const CPUS_MAX: usize = 1024;
/// Larger weights count as this, 0 as 1.
pub const WEIGHT_MAX: u32 = 1 << 20;
/// Longer times count as this.
pub const TIME_MAX: u64 = 1 << 40;
/// The most that a VM is owed, or owes, in turns per vCPU that wants to run.
pub const CLAMP_TURNS: u64 = 2;
/// Turns without its own after which a HIGH VM may come first.
pub const APART_TURNS: u32 = 8;
/// Number of pools. vCPUs of further pools count as those of the last one.
pub const POOLS_MAX: usize = 8;
/// The most that an unpinned vCPU is due, in eighths of the turn.
pub const MOST_EIGHTHS: u64 = 7;
/// Length of the first turn.
pub const FIRST_TURN_US: u64 = 1000;
/// Longest time that a vCPU is kept from running.
pub const PARK_MAX_MS: u64 = 200;
/// CPU time in turns of other VMs that a vCPU has after it wakes up.
pub const BACK_US: u64 = 3000;
/// A vCPU that ran for more PLE windows did more than spin.
pub const SPUN_WINDOWS: u64 = 2;
/// [`fill`] considers this many candidates.
pub const FILLERS_MAX: usize = 16;

const NONE: u32 = u32::MAX;
const LOW: u32 = u32::MAX - 1;

/// A set of pCPUs.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSet([u64; CPUS_MAX / 64]);

impl FromIterator<usize> for CpuSet {
    /// Panics at [`CPUS_MAX`] and above.
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = CpuSet([0; CPUS_MAX / 64]);
        for cpu in cpus {
            set.0[cpu / 64] |= 1 << (cpu % 64);
        }
        set
    }
}

impl CpuSet {
    pub fn has(&self, cpu: usize) -> bool {
        cpu < CPUS_MAX && self.0[cpu / 64] >> (cpu % 64) & 1 == 1
    }
}

/// One VM.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vm {
    /// CPU time that the VM is owed, in the caller's unit; negative if it owes. Initially 0, then
    /// set by [`Host::account`] within the clamp per vCPU that wants to run, and [`TIME_MAX`].
    pub owed: i64,
    /// Its vCPUs' parts minus their own CPU time, in the same unit and set likewise.
    pub behind: i64,
    /// CPU time while it was HIGH, since it last owned a pCPU. Initially 0, then set by
    /// [`Host::account`].
    pub apart: u64,
    /// Index of its first vCPU.
    pub first: u32,
    /// How many vCPUs it has, in a row.
    pub count: u32,
    /// The last turn it owned a pCPU in. 0 at first, then kept by [`Host::turn_starts`].
    pub last_turn: u32,
    /// 1: its vCPUs spin, and should run together. Changes between [`Host::account`] and
    /// [`Host::turn_starts`].
    pub high: u8,
    /// 1: there are too few pCPUs for it, so it counts as LOW. Set by [`Host::turn_starts`].
    pub unplaced: u8,
    /// 1: `apart` is as much as a turn gives. Set by [`Host::account`].
    pub apart_enough: u8,
    /// 0.
    pub reserved: u8,
    /// How many of its vCPUs want to run; set by [`Host::account`].
    pub wanting: u32,
    /// Scratch.
    pub waited: u32,
}

impl Vm {
    /// A VM that is LOW and is owed nothing.
    pub fn new(first: u32, count: u32) -> Vm {
        Vm { first, count, ..Vm::default() }
    }

    /// Whether a vCPU of it that wakes up may run in turns of other VMs for [`BACK_US`], if it is LOW.
    pub fn may_come_back(&self) -> bool {
        self.owed > 0 || self.behind >= 0
    }

    /// Whether it has its own turns, in which its vCPUs run together.
    pub fn is_high(&self) -> bool {
        self.high != 0 && self.unplaced == 0
    }
}

/// One vCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu<'a> {
    /// CPU time in the turn that ends, in the caller's unit of time.
    pub got: u64,
    /// The pCPUs on which it may run. `None`: only its present one.
    pub allowed: Option<&'a CpuSet>,
    /// Weight of its part of a pCPU, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Index of the pCPU on which it runs or for which it waits. Without such a pCPU it has no
    /// part.
    pub cpu: u32,
    /// The value in C; see [`Vcpu::target`].
    pub target: u32,
    /// 1: runs, waits for a pCPU, or is kept from running by a turn.
    pub wants: u8,
    /// 1: it could run, but its pCPU idled or had a filler, and the scheduler has not chosen it
    /// since.
    pub held_back: u8,
    /// Scratch.
    pub placed: u8,
    pub pool: u8,
}

impl Default for Vcpu<'_> {
    fn default() -> Self {
        Vcpu {
            got: 0,
            allowed: None,
            weight: 0,
            cpu: 0,
            target: NONE,
            wants: 0,
            held_back: 0,
            placed: 0,
            pool: 0,
        }
    }
}

impl Vcpu<'_> {
    /// A vCPU that sleeps, and may run only on `cpu`.
    pub fn new(cpu: u32, weight: u32) -> Self {
        Vcpu { cpu, weight, ..Vcpu::default() }
    }

    /// The pCPU it should run on in the turn that [`Host::turn_starts`] began.
    pub fn target(&self) -> Option<usize> {
        (self.target != NONE).then_some(self.target as usize)
    }
}

/// The owner of a pCPU in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// None: the scheduler decides.
    Nobody,
    /// The VM with this index, which is HIGH.
    Vm(usize),
    /// The group of the VMs that are LOW.
    Low,
}

/// A usable pCPU. [`Cpu::core`], [`Cpu::cache`] and [`Cpu::node`] are the index of the first pCPU
/// of the same core, last-level cache and node; all 0 if unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Scratch, like the three that follow.
    pub time: u64,
    pub weight: u64,
    pub group_time: u64,
    pub group_weight: u64,
    /// The value in C; see [`Cpu::owner`].
    pub owner: u32,
    /// The vCPU for which it is owned, or `u32::MAX`.
    pub vcpu: u32,
    /// The last turn in which the group owned it. 0 at first, then kept by [`Host::turn_starts`].
    pub low_last_turn: u32,
    pub core: u32,
    pub cache: u32,
    pub node: u32,
    /// 0: it can have no owner, and is no target.
    pub usable: u8,
    /// 0.
    pub reserved: [u8; 3],
    /// Scratch.
    pub scratch: [u32; 7],
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu {
            time: 0,
            weight: 0,
            group_time: 0,
            group_weight: 0,
            owner: NONE,
            vcpu: NONE,
            low_last_turn: 0,
            core: 0,
            cache: 0,
            node: 0,
            usable: 1,
            reserved: [0; 3],
            scratch: [0; 7],
        }
    }
}

impl Cpu {
    pub fn owner(&self) -> Owner {
        match self.owner {
            NONE => Owner::Nobody,
            LOW => Owner::Low,
            vm => Owner::Vm(vm as usize),
        }
    }
}

/// Scratch: vCPUs that are not pinned, and may run on the same pCPUs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    pub scratch: [u64; 15],
}

/// The C form of [`Host`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawHost<'a> {
    pub vms: *mut Vm,
    pub vcpus: *mut Vcpu<'a>,
    pub cpus: *mut Cpu,
    /// Scratch of as many entries as there are VMs, for [`Host::turn_starts`].
    pub order: *mut u32,
    /// Scratch: a bit per pCPU.
    pub free: *mut u64,
    /// Scratch of [`POOLS_MAX`] entries, for [`Host::account`].
    pub pools: *mut Pool,
    pub vm_count: u32,
    pub vcpu_count: u32,
    pub cpu_count: u32,
    pub turn: u32,
    pub free_count: u32,
    pub whole_count: u32,
}

/// All VMs, vCPUs and pCPUs that take part: at most [`CPUS_MAX`] pCPUs, and no vCPU in two VMs.
#[derive(Debug)]
pub struct Host<'h, 'a> {
    pub vms: &'h mut [Vm],
    pub vcpus: &'h mut [Vcpu<'a>],
    pub cpus: &'h mut [Cpu],
    /// Number of turns so far. Wraps from 2³² - 1 to 1.
    pub turn: &'h mut u32,
}

fn count<T>(slots: &[T]) -> u32 {
    u32::try_from(slots.len()).expect("fewer than 2^32 VMs, vCPUs and pCPUs")
}

impl<'a> Host<'_, 'a> {
    /// The C form for calls that write nothing.
    fn raw(&self) -> RawHost<'a> {
        assert!(self.cpus.len() <= CPUS_MAX, "{} pCPUs are too many", self.cpus.len());
        RawHost {
            vms: self.vms.as_ptr().cast_mut(),
            vcpus: self.vcpus.as_ptr().cast_mut(),
            cpus: self.cpus.as_ptr().cast_mut(),
            order: std::ptr::null_mut(),
            free: std::ptr::null_mut(),
            pools: std::ptr::null_mut(),
            vm_count: count(self.vms),
            vcpu_count: count(self.vcpus),
            cpu_count: count(self.cpus),
            turn: *self.turn,
            free_count: 0,
            whole_count: 0,
        }
    }

    fn raw_mut(&mut self) -> RawHost<'a> {
        let raw = self.raw();
        RawHost {
            vms: self.vms.as_mut_ptr(),
            vcpus: self.vcpus.as_mut_ptr(),
            cpus: self.cpus.as_mut_ptr(),
            ..raw
        }
    }

    /// A turn of this length has ended. Updates what VMs are owed, by what their vCPUs got, which
    /// VMs were HIGH and who owned the pCPUs. No VM is owed, or owes, more than [`CLAMP_TURNS`] per
    /// vCPU that wants to run.
    pub fn account(&mut self, turn: u64) {
        let mut pools = [Pool::default(); POOLS_MAX];
        let mut raw = RawHost { pools: pools.as_mut_ptr(), ..self.raw_mut() };
        // SAFETY: as many VMs, vCPUs, pCPUs and pools as it counts are there to read and write, and each
        // set of pCPUs has a bit for each pCPU; this holds for the calls below, too.
        unsafe { sys::gang_account(&mut raw, turn) };
    }

    /// A turn starts. Sets the owner of each pCPU, the target of each vCPU, and which VMs are
    /// unplaced. False: no pCPU has an owner, because no VM is HIGH or no VM has a rival.
    pub fn turn_starts(&mut self) -> bool {
        let mut order = vec![0; self.vms.len()];
        let mut free = vec![0; self.cpus.len().div_ceil(64)];
        let mut raw =
            RawHost { order: order.as_mut_ptr(), free: free.as_mut_ptr(), ..self.raw_mut() };
        // SAFETY: as above; scratch has an entry per VM and a bit per pCPU.
        let any = unsafe { sys::gang_turn(&mut raw) != 0 };
        *self.turn = raw.turn;
        any
    }

    /// Whether vCPUs of a VM may run on a pCPU, apart from fills.
    pub fn may_run(&self, vm: usize, cpu: usize) -> bool {
        let index = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
        // SAFETY: as above; nothing is written.
        unsafe { sys::gang_may_run(&self.raw(), index(vm), index(cpu)) != 0 }
    }
}

/// A parked vCPU that may fill a pCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filler {
    /// What its VM is owed.
    pub owed: i64,
    /// The caller's own number.
    pub vcpu: u32,
    /// 1: waits for a lock of its guest.
    pub lock: u8,
    /// 0.
    pub reserved: [u8; 3],
}

/// Chooses the vCPU that fills a pCPU whose owner has nothing to run there: an index into
/// `candidates`. Only the first [`FILLERS_MAX`] are considered.
pub fn fill(candidates: &[Filler]) -> Option<usize> {
    // SAFETY: as many candidates as it counts are there to read.
    let index = unsafe { sys::gang_fill(candidates.as_ptr(), count(candidates)) };
    (index != NONE).then_some(index as usize)
}

const _: () = {
    assert!(std::mem::size_of::<Vm>() == 48);
    assert!(std::mem::size_of::<Vcpu>() == 32);
    assert!(std::mem::size_of::<Cpu>() == 88);
    assert!(std::mem::size_of::<RawHost>() == 72);
    assert!(std::mem::size_of::<Pool>() == 120);
    assert!(std::mem::size_of::<Filler>() == 16);
};

/// CPU time of a pCPU that tasks of the host use. With too much of it, the pCPU has no turns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Mean per turn, in the caller's unit of time, like [`Use::of_all`].
    pub of_host: i64,
    pub of_all: i64,
    /// 1: the use is so high that the pCPU has no turns.
    pub used: u8,
    /// 0.
    pub reserved: [u8; 7],
}
