// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs in instructions, which repeat exactly: a child process is single-stepped.

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

/// `None`: this computer has no ptrace for us.
pub fn instructions(work: &mut dyn FnMut()) -> Option<u64> {
    work(); // so that the linker's work is done
    Some(steps(work)? - steps(&mut || ())?)
}
