// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit: proportional shares by credits, with or without coscheduling of a VM's vCPUs.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 3.3, 4.4 and 4.5, Algorithms 3 and 4.
//!
//! Plain Credit has no VM [`Vm::high`]. In static coscheduling (CON), VMs that an administrator
//! names are high; in ASMan, those whose [`crate::vcrd`] is.
//!
//! ```
//! use unspin_policy::credit::{assign, pick, Params, Pcpu, Vcpu, Vm};
//!
//! let params = Params::default();
//! let mut vms = [Vm::new(256)];
//! let mut vcpus = [Vcpu::new(0, 0), Vcpu::new(0, 0)];
//! vms[0].high = 1; // from now on: to different PCPUs
//! assert_eq!(assign(&mut vcpus, &mut vms, &mut [Pcpu::default(); 2], &params), 1);
//! assert_eq!(vcpus.map(|vcpu| vcpu.credit), [30_000; 2]);
//! let decision = pick(&mut vcpus, &vms, 0, None, true, &params);
//! assert_eq!((decision.vcpu(), decision.raised), (Some(1), 1)); // its sibling comes along
//! ```

use crate::sys;

/// Parameters of Algorithms 3 and 4.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The basic unit of scheduling, at least 1.
    pub slot_us: u32,
    /// K, at least 1.
    pub slots_per_assignment: u32,
    /// What a running vCPU pays per slot, at least 1.
    pub credit_per_slot: u32,
    /// Credits stay within this bound in both directions, 1 to 2³⁰.
    pub credit_max: u32,
    /// 1: time for which no VM has credit is left idle.
    pub capped: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            slot_us: 10_000,
            slots_per_assignment: 3,
            credit_per_slot: 10_000,
            credit_max: 30_000,
            capped: 0,
        }
    }
}

impl Params {
    /// Whether the parameters are valid. All functions are safe with invalid ones, too.
    pub fn check(&self) -> Result<(), &'static str> {
        let texts = [
            "slot_us is 0",
            "slots_per_assignment is 0",
            "credit_per_slot is 0",
            "credit_max is not in 1..1073741824",
            "capped is neither 0 nor 1",
        ];
        // SAFETY: a valid reference for the duration of the call.
        crate::judged(unsafe { sys::credit_params_check(self) }, &texts)
    }
}

/// One VM.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vm {
    pub weight: u32,
    /// 1: its vCPUs run together.
    pub high: u8,
    /// 1: they did at the last assignment.
    pub was_high: u8,
    pub reserved: [u8; 2],
    /// Scratch, like the next two.
    pub vcpus: u32,
    pub served: u32,
    pub part: u64,
}

impl Vm {
    /// A VM whose vCPUs run independently.
    pub fn new(weight: u32) -> Self {
        Vm { weight, ..Vm::default() }
    }
}

/// One vCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    pub credit: i64,
    /// Index of its VM.
    pub vm: u32,
    /// The PCPU in whose run queue it is, or on which it runs.
    pub pcpu: u32,
    /// 1: running or ready, not blocked.
    pub runnable: u8,
    /// 1: on its PCPU now.
    pub running: u8,
    /// 1: first in its queue, until it has run.
    pub raised: u8,
    pub reserved: [u8; 5],
}

impl Vcpu {
    /// A ready vCPU without credit.
    pub fn new(vm: u32, pcpu: u32) -> Self {
        Vcpu { vm, pcpu, runnable: 1, ..Vcpu::default() }
    }

    /// Charges for running this long.
    pub fn charge(&mut self, params: &Params, ran_us: u64) {
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::credit_charge(self, params, ran_us) };
    }
}

/// One PCPU, scratch of [`assign`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pcpu {
    pub queued: u32,
    pub of_vm: u32,
}

/// The C form of what [`pick`] decided.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub index: u32,
    /// 1: it came from another run queue.
    pub migrated: u32,
    /// Number of siblings that were raised. Their PCPUs must be interrupted.
    pub raised: u32,
}

impl Decision {
    /// No vCPU: the PCPU idles.
    pub const NOBODY: Decision = Decision { index: u32::MAX, migrated: 0, raised: 0 };

    /// The vCPU that runs; `None`: the PCPU idles.
    pub fn vcpu(&self) -> Option<usize> {
        (self.index != u32::MAX).then_some(self.index as usize)
    }
}

/// The C form of the arguments of [`assign`] and [`pick`].
#[repr(C)]
pub struct RawHost {
    pub vcpus: *mut Vcpu,
    pub vms: *mut Vm,
    /// Null: only [`pick`] may be called.
    pub pcpus: *mut Pcpu,
    pub params: *const Params,
    pub count: u32,
    pub vm_count: u32,
    pub pcpu_count: u32,
    pub reserved: u32,
}

fn count<T>(slots: &[T]) -> u32 {
    u32::try_from(slots.len()).expect("fewer than 2^32 vCPUs, VMs and PCPUs")
}

/// Algorithm 3, every K slots: hands out credits by weight and spreads the vCPUs of VMs that
/// became high. Returns how many changed their run queue.
pub fn assign(vcpus: &mut [Vcpu], vms: &mut [Vm], pcpus: &mut [Pcpu], params: &Params) -> u32 {
    let host = RawHost {
        vcpus: vcpus.as_mut_ptr(),
        vms: vms.as_mut_ptr(),
        pcpus: pcpus.as_mut_ptr(),
        params,
        count: count(vcpus),
        vm_count: count(vms),
        pcpu_count: count(pcpus),
        reserved: 0,
    };
    // SAFETY: that many vCPUs, VMs and PCPUs are there to read and write.
    unsafe { sys::credit_assign(&host) }
}

/// Algorithm 4 for one PCPU on which nothing runs. Marks the vCPU that runs there. `last` ran there
/// last; `may_raise` is true until one PCPU has raised a vCPU in this slot.
pub fn pick(
    vcpus: &mut [Vcpu],
    vms: &[Vm],
    pcpu: u32,
    last: Option<usize>,
    may_raise: bool,
    params: &Params,
) -> Decision {
    let last = last.and_then(|last| u32::try_from(last).ok()).unwrap_or(u32::MAX);
    let host = RawHost {
        vcpus: vcpus.as_mut_ptr(),
        vms: vms.as_ptr().cast_mut(),
        pcpus: std::ptr::null_mut(),
        params,
        count: count(vcpus),
        vm_count: count(vms),
        pcpu_count: 0,
        reserved: 0,
    };
    let mut decision = Decision::NOBODY;
    // SAFETY: that many vCPUs are there to read and write, and VMs, which it only reads.
    unsafe { sys::credit_pick(&host, pcpu, last, may_raise.into(), &mut decision) };
    decision
}

const _: () = {
    assert!(std::mem::size_of::<Params>() == 20);
    assert!(std::mem::size_of::<Vm>() == 24);
    assert!(std::mem::size_of::<Vcpu>() == 24);
};
