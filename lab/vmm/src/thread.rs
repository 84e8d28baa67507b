// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of vCPUs: their clocks, their CPUs, and the signal that interrupts them.

use unspin_host::cpus::set_affinity;

/// The time of a clock, ns.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid; the clock of a thread that has ended gives an error and leaves 0.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPUs this process may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid one, and 0 is the calling thread.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        set
    };
    // SAFETY: every index is within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Restricts the calling thread to `cpus`.
pub fn run_on(cpus: &[usize]) -> std::io::Result<()> {
    set_affinity(0, &cpus.iter().map(|cpu| *cpu as u32).collect())
}

/// The signal that takes a vCPU out of KVM_RUN.
pub fn kick_signal() -> i32 {
    libc::SIGRTMIN()
}

/// The signal only has to interrupt KVM_RUN.
pub fn install_kick_handler() {
    extern "C" fn ignore(_: i32) {}
    // SAFETY: the handler does nothing; no SA_RESTART, so that KVM_RUN returns EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(i32) as usize;
        libc::sigaction(kick_signal(), &action, std::ptr::null_mut());
    }
}
