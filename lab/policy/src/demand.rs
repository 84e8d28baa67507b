// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which VMs should run in turns, from the CPU time that their vCPUs waste
//! (policy/demand.h).
//!
//! ```
//! use unspin_policy::demand::{Host, Params, Vm};
//!
//! let params = Params { look_us: 20_000, hold_us: 100_000, ..Params::default() };
//! let mut host = Host::default();
//! let mut vms = [Vm { asks: 1, ..Vm::default() }; 2];
//! assert!(!host.step(&mut vms, &params, 1)); // the look begins
//! (vms[0].cpu, vms[0].wasted) = (1000, 50); // 5 %
//! (vms[1].cpu, vms[1].wasted) = (1000, 49);
//! assert!(!host.step(&mut vms, &params, 20_001)); // one look is not enough
//! (vms[0].cpu, vms[0].wasted) = (2000, 100);
//! (vms[1].cpu, vms[1].wasted) = (2000, 98);
//! assert!(host.step(&mut vms, &params, 40_001)); // a hold
//! assert_eq!((vms[0].high, vms[1].high), (1, 0));
//! ```

use crate::sys;

/// When a VM is HIGH, and for how long.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// A VM that wastes at least this share of its CPU time becomes HIGH: 1 to 10⁶ millionths. Half
    /// of it suffices to stay HIGH.
    pub threshold_ppm: u32,
    /// How long a look takes, at least 1.
    pub look_us: u32,
    /// The shortest hold, at least 1.
    pub hold_us: u32,
    /// The longest hold, at least `hold_us`.
    pub hold_max_us: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { threshold_ppm: 50_000, look_us: 20_000, hold_us: 100_000, hold_max_us: 1_600_000 }
    }
}

impl Params {
    /// Whether the parameters are valid. All functions are safe with invalid ones, too.
    pub fn check(&self) -> Result<(), &'static str> {
        let texts = [
            "threshold_ppm is not in 1..1000000",
            "look_us is 0",
            "hold_us is 0",
            "hold_max_us is below hold_us",
        ];
        // SAFETY: a valid reference for the duration of the call.
        crate::judged(unsafe { sys::demand_params_check(self) }, &texts)
    }
}

/// One VM. The caller keeps it from step to step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vm {
    /// CPU time wasted so far, in the unit of `cpu`.
    pub wasted: u64,
    /// CPU time used so far; both only grow.
    pub cpu: u64,
    /// `wasted` when its look began.
    pub wasted_base: u64,
    /// `cpu` when its look began.
    pub cpu_base: u64,
    /// When its look began.
    pub look_started_us: u64,
    /// Whether it may be HIGH (0 or 1).
    pub asks: u8,
    /// The result: whether its vCPUs should run together (0 or 1).
    pub high: u8,
    /// `high` in the hold before.
    pub was_high: u8,
    /// Whether its look has begun (0 or 1); 0 for a new VM.
    pub known: u8,
    /// Whether it wasted enough to be HIGH in its last look (0 or 1).
    pub wasted_before: u8,
    /// 0.
    pub reserved: [u8; 3],
}

/// The state that all VMs share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// When the hold or the look ends; 0 before the first step.
    pub until_us: u64,
    /// Length of the hold, or of the one before this look.
    pub held_us: u32,
    /// Whether this is a hold (1) or a look (0).
    pub holds: u8,
    /// 0.
    pub reserved: [u8; 3],
}

impl Host {
    /// Decides which VMs are HIGH at `now_us`. Returns `true` in a hold; in a look no VM is HIGH.
    pub fn step(&mut self, vms: &mut [Vm], params: &Params, now_us: u64) -> bool {
        let count = u32::try_from(vms.len()).unwrap_or(u32::MAX);
        // SAFETY: count VMs are there to read and write; the rest are valid references.
        unsafe { sys::demand_step(self, vms.as_mut_ptr(), count, params, now_us) != 0 }
    }
}

const _: () = assert!(std::mem::size_of::<Vm>() == 48);
const _: () = assert!(std::mem::size_of::<Host>() == 16);
