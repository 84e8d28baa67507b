// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs in instructions. The processor counts them where it has a counter for us; else a child process is
//! single-stepped, which takes microseconds an instruction.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

/// `struct perf_event_attr` of <linux/perf_event.h> as it was first, `PERF_ATTR_SIZE_VER0`.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample: [u64; 3],
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
}

const COUNT_INSTRUCTIONS: u64 = 1;
/// `disabled`, `exclude_kernel` and `exclude_hv`.
const OURS_WHEN_ENABLED: u64 = 1 | 1 << 5 | 1 << 6;
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;

/// Instructions of this thread in user mode while `work` runs, as the processor counts them.
fn counted(work: &mut dyn FnMut()) -> Option<u64> {
    let attr = PerfEventAttr {
        size: 64,
        config: COUNT_INSTRUCTIONS,
        flags: OURS_WHEN_ENABLED,
        ..PerfEventAttr::default()
    };
    // SAFETY: `attr` is as long as it says; the descriptor is new and ours.
    let mut counter = unsafe {
        let fd = libc::syscall(libc::SYS_perf_event_open, &attr, 0, -1, -1, 0);
        (fd >= 0).then(|| std::fs::File::from_raw_fd(fd as i32))
    }?;
    let switch = |request| {
        // SAFETY: requests without an argument, of a counter that is open.
        unsafe { libc::ioctl(counter.as_raw_fd(), request, 0) }
    };
    let on = switch(ENABLE);
    work();
    if (on, switch(DISABLE)) != (0, 0) {
        return None;
    }
    let mut count = [0; 8];
    counter.read_exact(&mut count).ok()?;
    Some(u64::from_ne_bytes(count)).filter(|&count| count > 0)
}

/// Instructions from one raised signal to the next, in a child that runs `work` between.
fn steps(work: &mut dyn FnMut()) -> Option<u64> {
    // SAFETY: one thread; the child runs `work` and leaves without unwinding or exit
    // handlers; the parent only waits for it and steps it.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            work();
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        for count in 0.. {
            if libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) != 0 {
                return None;
            }
            libc::waitpid(child, &mut status, 0);
            if !libc::WIFSTOPPED(status) {
                return None;
            }
            if libc::WSTOPSIG(status) == libc::SIGSTOP {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
                return Some(count);
            }
        }
    }
    None
}

/// `None`: this computer has neither a counter nor ptrace for us.
pub fn instructions(work: &mut dyn FnMut()) -> Option<u64> {
    work(); // so that the linker's work is done
    if let Some(nothing) = counted(&mut || ()) {
        return Some(counted(work)?.saturating_sub(nothing));
    }
    Some(steps(work)? - steps(&mut || ())?)
}
