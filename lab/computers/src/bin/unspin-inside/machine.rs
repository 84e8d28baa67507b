// SPDX-License-Identifier: MIT OR Apache-2.0
//! The base of guests of a few instructions: memory that host and guest share, a VM that uses it,
//! and the host's CPUs that run it.

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VmFd};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use unspin_host::cpus::set_affinity;
use unspin_vmm::{set_fifo, set_normal};

/// TSS pages KVM needs on Intel, away from guest memory.
const KVM_TSS_ADDR: usize = 0xfffb_d000;
const LOOK: Duration = Duration::from_millis(1);
/// A time limit that suits slow, emulated computers.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Memory from guest address 0 on; it lives as long as the process.
#[derive(Clone, Copy)]
pub struct Memory(&'static [AtomicU32]);

impl Memory {
    pub fn new(bytes: usize) -> Result<Memory, String> {
        // SAFETY: a new anonymous mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(format!("mmap: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: page-aligned, zeroed, so long, and never unmapped; the guest's stores are to
        // atomics too.
        Ok(Memory(unsafe { std::slice::from_raw_parts(at.cast(), bytes / 4) }))
    }

    /// The word at a guest address.
    pub fn word(&self, at: usize) -> &'static AtomicU32 {
        &self.0[at / 4]
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (index, part) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            self.word(at + index * 4).store(u32::from_le_bytes(word), Ordering::SeqCst);
        }
    }

    /// A VM that has this memory, and no vCPU yet.
    pub fn vm(&self) -> Result<VmFd, String> {
        let kvm = Kvm::new().map_err(says("/dev/kvm"))?;
        let vm = kvm.create_vm().map_err(says("KVM_CREATE_VM"))?;
        vm.set_tss_address(KVM_TSS_ADDR).map_err(says("KVM_SET_TSS_ADDR"))?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: self.0.len() as u64 * 4,
            userspace_addr: self.0.as_ptr() as u64,
        };
        // SAFETY: the memory is never unmapped.
        unsafe { vm.set_user_memory_region(region) }.map_err(says("KVM_SET_USER_MEMORY_REGION"))?;
        Ok(vm)
    }
}

/// The program between two labels of an assembly.
///
/// # Safety
/// Both are in one section, in this order.
pub unsafe fn code_between(begin: *const u8, end: *const u8) -> &'static [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(begin, end.offset_from(begin) as usize) }
}

/// Names the call that KVM refused.
pub fn says(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> String {
    move |e| format!("{what}: {e}")
}

/// Waits until `done`, checking every ms.
pub fn wait(what: &str, mut done: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > TIMEOUT {
            return Err(format!("waited {} s for {what}", TIMEOUT.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Keeps the calling thread on one CPU.
pub fn pin(cpu: u32) -> Result<(), String> {
    set_affinity(0, &[cpu].into()).map_err(|e| format!("sched_setaffinity: {e}"))
}

/// Gives the calling thread a real-time class, so that it runs before all other threads.
pub fn be_realtime() -> Result<(), String> {
    set_class(0, true)
}

/// Gives a thread SCHED_FIFO, or SCHED_OTHER; 0 is the calling one.
pub fn set_class(thread: u32, real_time: bool) -> Result<(), String> {
    let thread = thread as libc::pid_t;
    let done = if real_time { set_fifo(thread, 1) } else { set_normal(thread) };
    done.map_err(|e| format!("sched_setscheduler: {e}"))
}

/// The time stamp counter.
#[inline(always)]
pub fn tsc() -> u64 {
    // SAFETY: reading it has no effect on memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The calling thread's id.
pub fn tid() -> i32 {
    // SAFETY: no memory involved.
    unsafe { libc::gettid() }
}

/// Runs a command line in a shell. An error if it fails.
pub fn shell(line: &str) -> Result<(), String> {
    let out = std::process::Command::new("sh").args(["-c", line]).output();
    let out = out.map_err(|e| format!("sh: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("{line}: {} {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))
}

/// Counts a vCPU thread's exits at PAUSE. KVM's own tracepoint counts them in a separate buffer of
/// tracefs, so that the module is not involved.
pub struct PauseExits(PathBuf);

impl PauseExits {
    /// Starts counting for the thread with this id.
    pub fn of(tid: i32) -> Result<PauseExits, String> {
        /// Basic exit reason of VT-x.
        const PAUSE: u32 = 40;
        let instance = PathBuf::from(format!("/sys/kernel/tracing/instances/unspin-{tid}"));
        fs::create_dir(&instance).map_err(|e| format!("{}: {e}", instance.display()))?;
        let exits = PauseExits(instance);
        exits.put("set_event_pid", &tid.to_string())?;
        exits.put("events/kvm/kvm_exit/filter", &format!("exit_reason == {PAUSE}"))?;
        exits.put("events/kvm/kvm_exit/enable", "1")?;
        Ok(exits)
    }

    fn put(&self, name: &str, value: &str) -> Result<(), String> {
        let file = self.0.join(name);
        fs::write(&file, value).map_err(|e| format!("{}: {e}", file.display()))
    }

    pub fn count(&self) -> Result<u64, String> {
        let cpus = self.0.join("per_cpu");
        let mut sum = 0;
        for cpu in fs::read_dir(&cpus).map_err(|e| format!("{}: {e}", cpus.display()))?.flatten() {
            let file = cpu.path().join("stats");
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let of = |name| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|rest| rest.trim().parse::<u64>().ok()).unwrap_or_default()
            };
            sum += of("entries:") + of("overrun:");
        }
        Ok(sum)
    }
}

impl Drop for PauseExits {
    fn drop(&mut self) {
        let _ = self.put("events/kvm/kvm_exit/enable", "0");
        let _ = fs::remove_dir(&self.0);
    }
}
