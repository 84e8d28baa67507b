// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures of the BPF programs, as defined and explained in `bpf/kept.h`. All their numbers
//! have 4 or 8 bytes, and none has padding.

use unspin_diagnosis::{State, Times};

/// Numbers of VMs are below this; `VMS_MAX` in C.
pub const VMS_MAX: u32 = 2048;

/// The slot of a thread that is not watched.
pub const NO_SLOT: u32 = 0;

/// Kinds of tasks a CPU can run, idle apart: `enum kind`.
pub const HOST: u32 = 1;
pub const VCPU: u32 = 2;
pub const VMM: u32 = 3;

/// The place of a vCPU's thread: `enum place`.
pub const ON: u32 = 0;
pub const READY: u32 = 1;
pub const ASLEEP: u32 = 2;

/// Number of entries of a vCPU's times; `TIMES` in C.
pub const TIMES: usize = 32;

/// Time on a CPU since an exit for HLT. Its end shows whether it is polling or exit; `PENDING` in
/// C.
pub const PENDING: u32 = TIMES as u32 - 1;

/// On a CPU since it is watched, without any event; `UNSEEN` in C.
pub const UNSEEN: u32 = TIMES as u32 - 2;

/// `wants` of a vCPU that is no longer watched; `GONE` in C.
pub const GONE: u64 = 2;

/// Places of threads; `PLACES` in C.
pub const PLACES: u32 = 16384;

/// Recorded stretches per CPU; `RUNS` in C.
pub const RUNS: usize = 32;

/// `ran_before` of a vCPU whose wait has an unknown beginning; `NO_WAIT` in C.
pub const NO_WAIT: u64 = u64::MAX;

/// Number of counters of vCPUs that want a CPU; the last is for that many or more. `WANTING_MAX + 1` in
/// C.
pub const WANTING: usize = 65;

/// The address of all accesses that are not distinguished; `OTHERS` in C.
pub const OTHERS: u64 = u64::MAX;

/// `pending_asleep` of a vCPU that has not slept since its exit.
pub const NOT_ASLEEP: u64 = u64::MAX;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    pub since: u64,
    pub kind: u32,
    pub vm: u32,
    pub registrations: u64,
    pub had: [u64; 4],
    pub slot: u64,
}

/// The first thread in a place, and the number of others in it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct First {
    pub tid: u32,
    pub slot: u32,
    pub others: u32,
    /// Processes of VMs in this place.
    pub vms: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    pub vcpus: u64,
    pub vmm: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    pub sibling: u64,
    pub own_vmm: u64,
    pub vm: u64,
    pub host: u64,
}

/// The vCPUs of a VM that have a CPU; `ran` is a [sum](crate::sum).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Together {
    pub on: u64,
    pub ran: u64,
    pub unused: [u64; 6],
}

/// A process and its name, padded with zeroes. Process 0: the CPU is idle.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    pub tgid: u64,
    pub command: [u8; 16],
}

/// A stretch in which threads of one process had a CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    pub begin: u64,
    pub end: u64,
    pub whose: Process,
}

/// Who had a CPU recently.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    pub ended: u64,
    pub since: u64,
    pub whose: Process,
    pub next: u64,
    pub last: [Run; RUNS],
    pub unused: u64,
    pub begun: u64,
}

/// A key: a process that had a CPU for which a vCPU of a VM waited.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taker {
    pub vm: u32,
    pub tgid: u32,
}

/// The time, in ns, and the process's name.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    pub time: u64,
    pub command: [u8; 16],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vcpu {
    pub ended: u64,
    pub since: u64,
    pub woken_at: u64,
    pub vm: u32,
    pub place: u32,
    pub counts: u32,
    pub reason: u32,
    pub asleep: u32,
    pub cpu: u32,
    pub before: Sums,
    pub cfs_rq: u64,
    pub throttled: u64,
    pub exit_at: u64,
    pub pending_asleep: u64,
    pub vmm_at: u64,
    pub halt_began: u64,
    pub halt_ended: u64,
    pub time: [u64; TIMES],
    pub exits: [u64; TIMES],
    pub switches: u64,
    pub wakes: u64,
    pub number: u64,
    pub wakers: u64,
    pub wakers_before: u64,
    pub wakers_at: u64,
    pub costop: u64,
    pub ran_before: u64,
    pub wants: u64,
    pub served: u64,
    pub access: u64,
    pub address: u64,
    pub unused: [u64; 2],
    pub begun: u64,
}

/// A VM; `time` has [sums](crate::sum).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vm {
    pub lost: u64,
    pub wanting: u64,
    pub accesses: u64,
    pub accesses_lost: u64,
    pub time: [u64; WANTING],
    pub unused: [u64; 3],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessKey {
    pub vm: u32,
    pub kind: u32,
    pub address: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    pub count: u64,
    pub ns: u64,
    pub visits: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    pub registrations: u64,
    pub may_park: u64,
    /// How long wakers are kept, in ns; 0: not at all.
    pub wakers_ns: u64,
}

impl Default for Vcpu {
    fn default() -> Vcpu {
        // SAFETY: all zeroes are a valid value.
        let zero: Vcpu = unsafe { std::mem::zeroed() };
        Vcpu { pending_asleep: NOT_ASLEEP, ran_before: NO_WAIT, ..zero }
    }
}

impl Default for Vm {
    fn default() -> Vm {
        Vm {
            lost: 0,
            wanting: 0,
            accesses: 0,
            accesses_lost: 0,
            time: [0; WANTING],
            unused: [0; 3],
        }
    }
}

impl Vcpu {
    pub fn times(&self) -> Times {
        states_of(&self.time)
    }

    pub fn exits(&self) -> Times {
        states_of(&self.exits)
    }
}

/// The entries that are states.
fn states_of(entries: &[u64; TIMES]) -> Times {
    let states: [u64; State::COUNT] = std::array::from_fn(|state| entries[state]);
    states.into()
}

/// A structure of numbers only.
///
/// # Safety
/// It has no padding, and any bytes are a valid value.
pub unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($numbers:ty)*) => {$(
        // SAFETY: a number, or repr(C) and numbers that follow each other without holes.
        unsafe impl Plain for $numbers {}
    )*};
}

plain!(u32 Cpu First Share Vcpu Together Runs Taker Vm AccessKey Access Took Settings);

pub fn bytes<T: Plain>(value: &T) -> &[u8] {
    let at: *const T = value;
    // SAFETY: so many bytes, all of them set.
    unsafe { std::slice::from_raw_parts(at.cast(), size_of::<T>()) }
}

/// `None` if the length differs.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    (bytes.len() == size_of::<T>()).then(|| {
        // SAFETY: the length matches, and any bytes are a valid value.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::btf::types::{MemberAttr, Struct};
    use libbpf_rs::btf::{Btf, HasSize};
    use std::mem::offset_of;

    /// The fields of a structure of the programs with their offsets, and its size.
    fn in_c(btf: &Btf, name: &str) -> (Vec<(String, usize)>, usize) {
        let of_c: Struct = btf.type_by_name(name).unwrap();
        let place = |attr| match attr {
            MemberAttr::Normal { offset } => offset as usize / 8,
            MemberAttr::BitField { .. } => panic!("{name} has bit fields"),
        };
        let member = |m: libbpf_rs::btf::types::StructMember| {
            (m.name.unwrap().to_str().unwrap().to_string(), place(m.attr))
        };
        (of_c.iter().map(member).collect(), of_c.size())
    }

    macro_rules! in_rust {
        ($structure:ident: $($field:ident)*) => {
            (
                vec![$((stringify!($field).to_string(), offset_of!($structure, $field))),*],
                size_of::<$structure>(),
            )
        };
    }

    #[test]
    fn structures_are_those_of_the_programs() {
        let dir = unspin_scratch::Scratch::new();
        let btf = Btf::from_path(dir.write("programs", crate::probe::PROGRAMS)).unwrap();
        assert_eq!(in_c(&btf, "cpu"), in_rust!(Cpu: since kind vm registrations had slot));
        assert_eq!(in_c(&btf, "thread"), in_rust!(First: tid slot others vms));
        assert_eq!(in_c(&btf, "share"), in_rust!(Share: vcpus vmm));
        assert_eq!(in_c(&btf, "together"), in_rust!(Together: on ran unused));
        assert_eq!(in_c(&btf, "process"), in_rust!(Process: tgid command));
        assert_eq!(in_c(&btf, "run"), in_rust!(Run: begin end whose));
        assert_eq!(in_c(&btf, "runs"), in_rust!(Runs: ended since whose next last unused begun));
        assert_eq!(in_c(&btf, "taker"), in_rust!(Taker: vm tgid));
        assert_eq!(in_c(&btf, "taken"), in_rust!(Took: time command));
        assert_eq!(in_c(&btf, "sums"), in_rust!(Sums: sibling own_vmm vm host));
        let vcpu = in_rust!(Vcpu: ended since woken_at vm place counts reason asleep cpu before
            cfs_rq throttled exit_at pending_asleep vmm_at halt_began halt_ended time exits
            switches wakes number wakers wakers_before wakers_at costop ran_before wants served
            access address unused begun);
        assert_eq!(in_c(&btf, "vcpu"), vcpu);
        let vm = in_rust!(Vm: lost wanting accesses accesses_lost time unused);
        assert_eq!(in_c(&btf, "vm"), vm);
        assert_eq!(in_c(&btf, "access_key"), in_rust!(AccessKey: vm kind address));
        assert_eq!(in_c(&btf, "access"), in_rust!(Access: count ns visits));
    }
}
