// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM's settings on this host, from the parameters of its modules.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use unspin_text::read_kernel_text;

/// Requests of linux/kvm.h.
const KVM_CREATE_VM: libc::c_ulong = 0xae01;
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;
const KVM_GET_TSC_KHZ: libc::c_ulong = 0xaea3;

/// Frequency of this host's TSC in kHz according to KVM; `None` if KVM cannot be used. Creates a VM with
/// one vCPU meanwhile.
pub fn tsc_khz() -> Option<u32> {
    let kvm = File::options().read(true).write(true).open("/dev/kvm").ok()?;
    // SAFETY: these requests take numbers, and each descriptor they return is owned here.
    let made = |of: &File, request| unsafe {
        let fd = libc::ioctl(of.as_raw_fd(), request, 0);
        (fd >= 0).then(|| File::from_raw_fd(fd))
    };
    let vcpu = made(&made(&kvm, KVM_CREATE_VM)?, KVM_CREATE_VCPU)?;
    // SAFETY: takes nothing, and returns a number.
    let khz = unsafe { libc::ioctl(vcpu.as_raw_fd(), KVM_GET_TSC_KHZ, 0) };
    u32::try_from(khz).ok().filter(|khz| *khz > 0)
}

/// A value is `None` if the kernel does not show it, or the processor does not have the feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kvm {
    /// Longest time that KVM waits awake after HLT, in ns; 0: never.
    pub halt_poll_ns: Option<u64>,
    /// Cycles that a vCPU may spin before a pause-loop exit (Intel).
    pub ple_window: Option<u64>,
    /// Whether spinning vCPUs exit: the processor supports it, and KVM has not turned it off.
    pub pause_loop_exits: Option<bool>,
    /// Whether the processor virtualizes guests' interrupt controllers (APICv, AVIC).
    pub apicv: Option<bool>,
}

impl Kvm {
    /// Reads `/sys/module`.
    pub fn read(modules: &Path) -> Kvm {
        let read = |name: &str| read_kernel_text(modules.join(name)).ok();
        let number = |name| read(name)?.trim().parse().ok();
        let switch = |name| match read(name)?.trim() {
            "Y" | "1" => Some(true),
            "N" | "0" => Some(false),
            _ => None,
        };
        // KVM sets these to 0 if the processor does not support them.
        let pauses = number("kvm_intel/parameters/ple_gap")
            .or(number("kvm_amd/parameters/pause_filter_count"));
        Kvm {
            halt_poll_ns: number("kvm/parameters/halt_poll_ns"),
            ple_window: number("kvm_intel/parameters/ple_window").filter(|window| *window > 0),
            pause_loop_exits: pauses.map(|count| count > 0),
            apicv: switch("kvm_intel/parameters/enable_apicv")
                .or(switch("kvm_amd/parameters/avic")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn parameters_are_what_the_modules_say() {
        assert_eq!(Kvm::read("/nonexistent".as_ref()), Kvm::default());
        let root = Scratch::with(&[
            ("kvm/parameters/halt_poll_ns", "200000\n"),
            ("kvm_intel/parameters/ple_window", "4096\n"),
            ("kvm_intel/parameters/ple_gap", "128\n"),
            ("kvm_intel/parameters/enable_apicv", "N\n"),
        ]);
        let expected = Kvm {
            halt_poll_ns: Some(200_000),
            ple_window: Some(4096),
            pause_loop_exits: Some(true),
            apicv: Some(false),
        };
        assert_eq!(Kvm::read(&root), expected);
        root.line("kvm_intel/parameters/enable_apicv", "?");
        assert_eq!(Kvm::read(&root).apicv, None);
    }
}
