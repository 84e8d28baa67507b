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

/// Defines structures of the programs, named as in C.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident = $in_c:literal {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name { $($(#[$of_field])* pub $field: $type,)* }

            impl Default for $name {
                fn default() -> $name {
                    // SAFETY: it has numbers only, and zeroes are numbers.
                    unsafe { std::mem::zeroed() }
                }
            }

            // SAFETY: repr(C), and numbers that follow each other without holes, as the next line checks.
            unsafe impl Plain for $name {}
            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "a hole");
        )*

        /// The name of each structure in C, its fields with their offsets, and its size.
        #[cfg(test)]
        fn in_rust() -> Vec<(&'static str, tests::Layout)> {
            vec![$((
                $in_c,
                (
                    vec![$((stringify!($field).to_string(), std::mem::offset_of!($name, $field))),*],
                    size_of::<$name>(),
                ),
            )),*]
        }
    };
}

structures! {
    Cpu = "cpu" {
        since: u64,
        kind: u32,
        vm: u32,
        registrations: u64,
        had: [u64; 4],
        slot: u64,
    }

    /// The first thread in a place, and the number of others in it.
    First = "thread" {
        tid: u32,
        slot: u32,
        others: u32,
        /// Processes of VMs in this place.
        vms: u32,
    }

    Share = "share" {
        vcpus: u64,
        vmm: u64,
    }

    Sums = "sums" {
        sibling: u64,
        own_vmm: u64,
        vm: u64,
        host: u64,
    }

    /// The vCPUs of a VM that have a CPU; `ran` is a [sum](crate::sum).
    Together = "together" {
        on: u64,
        ran: u64,
        unused: [u64; 6],
    }

    /// A process and its name, padded with zeroes. Process 0: the CPU is idle.
    Process = "process" {
        tgid: u64,
        command: [u8; 16],
    }

    /// A stretch in which threads of one process had a CPU.
    Run = "run" {
        begin: u64,
        end: u64,
        whose: Process,
    }

    /// Who had a CPU recently.
    Runs = "runs" {
        ended: u64,
        since: u64,
        whose: Process,
        next: u64,
        last: [Run; RUNS],
        unused: u64,
        begun: u64,
    }

    /// A key: a process that had a CPU for which a vCPU of a VM waited.
    Taker = "taker" {
        vm: u32,
        tgid: u32,
    }

    /// The time, in ns, and the process's name.
    Took = "taken" {
        time: u64,
        command: [u8; 16],
    }

    Vcpu = "vcpu" {
        ended: u64,
        since: u64,
        woken_at: u64,
        vm: u32,
        place: u32,
        counts: u32,
        reason: u32,
        asleep: u32,
        cpu: u32,
        before: Sums,
        cfs_rq: u64,
        throttled: u64,
        exit_at: u64,
        pending_asleep: u64,
        vmm_at: u64,
        halt_began: u64,
        halt_ended: u64,
        time: [u64; TIMES],
        exits: [u64; TIMES],
        switches: u64,
        wakes: u64,
        number: u64,
        wakers: u64,
        wakers_before: u64,
        wakers_at: u64,
        costop: u64,
        ran_before: u64,
        wants: u64,
        served: u64,
        access: u64,
        address: u64,
        unused: [u64; 2],
        begun: u64,
    }

    /// A VM; `time` has [sums](crate::sum).
    Vm = "vm" {
        lost: u64,
        wanting: u64,
        accesses: u64,
        accesses_lost: u64,
        time: [u64; WANTING],
        unused: [u64; 3],
    }

    AccessKey = "access_key" {
        vm: u32,
        kind: u32,
        address: u64,
    }

    Access = "access" {
        count: u64,
        ns: u64,
        visits: u64,
    }
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    pub registrations: u64,
    pub may_park: u64,
    /// How long wakers are kept, in ns; 0: not at all.
    pub wakers_ns: u64,
}

impl Vcpu {
    /// One that has not slept since an exit, and whose wait has an unknown beginning.
    pub fn new() -> Vcpu {
        Vcpu { pending_asleep: NOT_ASLEEP, ran_before: NO_WAIT, ..Vcpu::default() }
    }

    pub fn times(&self) -> Times {
        states_of(&self.time)
    }

    pub fn exits(&self) -> Times {
        states_of(&self.exits)
    }
}

fn states_of(entries: &[u64; TIMES]) -> Times {
    let states: [u64; State::COUNT] = std::array::from_fn(|state| entries[state]);
    states.into()
}

/// A structure of numbers only.
///
/// # Safety
/// It has no padding, and any bytes are a valid value.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: repr(C), and numbers of one size.
unsafe impl Plain for Settings {}

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

    /// Fields with their offsets, and the size.
    pub type Layout = (Vec<(String, usize)>, usize);

    /// The fields of a structure of the programs with their offsets, and its size.
    fn in_c(btf: &Btf, name: &str) -> Layout {
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

    #[test]
    fn structures_are_those_of_the_programs() {
        let dir = unspin_scratch::Scratch::new();
        let btf = Btf::from_path(dir.write("programs", crate::probe::PROGRAMS)).unwrap();
        for (name, layout) in in_rust() {
            assert_eq!(in_c(&btf, name), layout, "{name}");
        }
    }
}
