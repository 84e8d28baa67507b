// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual machine: memory, vCPU threads, start, sample, stop.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvm_bindings::{
    kvm_enable_cap, kvm_msi, kvm_userspace_memory_region, CpuId, KVM_CAP_X86_DISABLE_EXITS,
    KVM_MAX_CPUID_ENTRIES, KVM_X86_DISABLE_EXITS_PAUSE,
};
use kvm_ioctls::{Kvm, VmFd};
use serde::{Deserialize, Serialize};
use unspin_scenario::plan::{LockKind, Step};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::counters::{sample, VcpuSample};
use crate::thread::{clock_ns, install_kick_handler, kick_signal};
use crate::{boot, vcpu, Error, GuestFault};
use unspin_guest_abi::{self as abi, ProgramError};
use unspin_host::cpus::set_affinity;

/// Three pages at the end of the 32-bit space that KVM needs on Intel; far from guest memory.
const KVM_TSS_ADDR: usize = 0xfffb_d000;
/// Interval at which a vCPU that has not ended is interrupted again.
const STOP_RETRY: Duration = Duration::from_millis(20);

/// The configuration of a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmConfig {
    pub vcpus: u32,
    pub program: Vec<Step>,
    pub lock: LockKind,
    /// τ of the preemptable locks, ns; `None`: the lock's own.
    pub tau_ns: Option<u64>,
    /// How long a waiter of pv-ticket spins before it halts, ns; `None`: the lock's own.
    pub spin_ns: Option<u64>,
    /// Clock rate for converting the locks' budgets to TSC cycles; `None`: the TSC's own rate.
    pub lock_clock_mhz: Option<u32>,
    /// Whether to count long waits by whether the lock was free meanwhile; waiting then takes
    /// slightly longer.
    pub stalls: bool,
    /// Whether to report waits for a lock above 2^this TSC cycles to the host; waiting then takes
    /// slightly longer.
    pub report_log2_cycles: Option<u32>,
    pub cpl: u8,
    pub seed: u64,
    /// Physical CPU of each vCPU; empty leaves them free.
    pub pin: Vec<u32>,
    /// Whether PAUSE may exit; `false` turns pause-loop exiting off for this VM.
    pub pause_exits: bool,
}

impl VmConfig {
    /// A VM whose vCPUs run a program in the guest's kernel, with ticket locks, and are not pinned.
    pub fn new(vcpus: u32, program: Vec<Step>, seed: u64) -> VmConfig {
        VmConfig {
            vcpus,
            program,
            lock: LockKind::Ticket,
            tau_ns: None,
            spin_ns: None,
            lock_clock_mhz: None,
            stalls: false,
            report_log2_cycles: None,
            cpl: 0,
            seed,
            pin: Vec::new(),
            pause_exits: true,
        }
    }
}

/// A VM whose vCPU threads exist; they wait for [`Vm::start`].
pub struct Vm {
    fd: VmFd,
    memory: GuestMemoryMmap,
    counts_stalls: bool,
    threads: Vec<VcpuThread>,
    gate: Arc<Gate>,
    kill: Arc<AtomicBool>,
    ended: Receiver<Ended>,
    ended_event: OwnedFd,
    running: u32,
    error: Option<Error>,
}

struct VcpuThread {
    handle: Option<JoinHandle<()>>,
    tid: i32,
    clock: libc::clockid_t,
}

struct Ended {
    vcpu: u32,
    result: Result<(), GuestFault>,
}

/// Lets vCPU threads wait for the start.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut open = self.open.lock().expect("gate");
        while !*open {
            open = self.changed.wait(open).expect("gate");
        }
    }

    fn open(&self) {
        *self.open.lock().expect("gate") = true;
        self.changed.notify_all();
    }
}

impl Vm {
    pub fn new(config: &VmConfig) -> Result<Vm, Error> {
        if config.vcpus == 0 || config.vcpus as usize > abi::VCPUS_MAX {
            return Err(Error::Program(ProgramError(format!(
                "{} vCPUs; a VM has 1 to {}",
                config.vcpus,
                abi::VCPUS_MAX
            ))));
        }
        if !config.pin.is_empty() && config.pin.len() != config.vcpus as usize {
            return Err(Error::Program(ProgramError(format!(
                "{} CPUs to pin {} vCPUs to",
                config.pin.len(),
                config.vcpus
            ))));
        }
        let steps = abi::compile(&config.program, config.cpl)?;
        let (lock, cpl) = (config.lock.name(), config.cpl);
        if config.lock.halts() && cpl != 0 {
            return Err(Error::HaltsAboveCpl0 { lock, cpl });
        }
        let kvm = open_kvm()?;
        let supported = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(Error::kvm("KVM_GET_SUPPORTED_CPUID"))?;
        if config.lock.halts() && !vcpu::has_pv_unhalt(&supported) {
            return Err(Error::NoPvUnhalt { lock });
        }
        let fd = kvm.create_vm().map_err(Error::kvm("KVM_CREATE_VM"))?;
        fd.set_tss_address(KVM_TSS_ADDR).map_err(Error::kvm("KVM_SET_TSS_ADDR"))?;
        fd.create_irq_chip().map_err(Error::kvm("KVM_CREATE_IRQCHIP"))?;
        if !config.pause_exits {
            disable_pause_exits(&kvm, &fd)?;
        }
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), abi::RAM_BYTES)])
            .map_err(Error::memory)?;
        let image = boot::image(config.stalls, config.report_log2_cycles.is_some());
        boot::load(&memory, image, config.vcpus)?;
        let features = if vcpu::has_vmmcall(&supported) { abi::FEATURE_VMMCALL } else { 0 };
        write_config(&memory, config, features, &steps)?;
        set_memory(&fd, &memory)?;

        // SAFETY: a new descriptor that nothing else owns.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(Error::os("eventfd"));
        }
        let (sender, ended) = channel();
        let mut vm = Vm {
            fd,
            memory,
            counts_stalls: config.stalls,
            threads: Vec::new(),
            gate: Arc::default(),
            kill: Arc::default(),
            ended,
            // SAFETY: as above.
            ended_event: unsafe { OwnedFd::from_raw_fd(event) },
            running: 0,
            error: None,
        };
        install_kick_handler();
        vm.spawn_vcpus(&supported, config, &sender)?;
        Ok(vm)
    }

    fn spawn_vcpus(
        &mut self,
        supported: &CpuId,
        config: &VmConfig,
        sender: &Sender<Ended>,
    ) -> Result<(), Error> {
        for index in 0..config.vcpus {
            let mut vcpu = vcpu::create(&self.fd, supported, index)?;
            if index == 0 {
                self.set_clocks(config, vcpu.get_tsc_khz().unwrap_or(0))?;
            }
            let (gate, kill, sender) = (self.gate.clone(), self.kill.clone(), sender.clone());
            let event = self.ended_event.as_raw_fd();
            let tid = Arc::new(AtomicU32::new(0));
            let tid_out = tid.clone();
            let handle = std::thread::Builder::new()
                .name(format!("CPU {index}/KVM"))
                .stack_size(256 << 10)
                .spawn(move || {
                    // SAFETY: no memory involved.
                    tid_out.store(unsafe { libc::gettid() } as u32, Ordering::Release);
                    gate.wait();
                    let result = vcpu::run(&mut vcpu, &kill);
                    // The VM outlives the receiver's last use, so a message that cannot be sent is
                    // not needed.
                    let _ = sender.send(Ended { vcpu: index, result });
                    let one = 1u64.to_ne_bytes();
                    // SAFETY: `event` stays open until this thread has been joined.
                    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
                })
                .map_err(|source| Error::Os { what: format!("thread of vCPU {index}"), source })?;
            self.running += 1;
            let thread = handle.as_pthread_t();
            self.threads.push(VcpuThread { handle: Some(handle), tid: 0, clock: 0 });
            let entry = self.threads.last_mut().expect("just pushed");
            // SAFETY: the thread has not been joined.
            let error = unsafe { libc::pthread_getcpuclockid(thread, &mut entry.clock) };
            if error != 0 {
                let source = std::io::Error::from_raw_os_error(error);
                return Err(Error::Os { what: format!("CPU clock of vCPU {index}"), source });
            }
            while tid.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            entry.tid = tid.load(Ordering::Acquire) as i32;
            if let Some(&cpu) = config.pin.get(index as usize) {
                set_affinity(entry.tid as u32, &[cpu].into()).map_err(|source| {
                    let what = format!("cannot pin a vCPU to CPU {cpu} (is it online?)");
                    Error::Os { what, source }
                })?;
            }
        }
        Ok(())
    }

    /// Passes the guest the ticks of its TSC per microsecond, for times and for the locks' budgets.
    fn set_clocks(&self, config: &VmConfig, tsc_khz: u32) -> Result<(), Error> {
        let lock = config.lock.name();
        let ticks_per_us = match config.lock_clock_mhz {
            Some(mhz) => mhz,
            None if tsc_khz >= 1000 => tsc_khz / 1000,
            None if config.lock.halts() || config.lock.has_tau() => {
                return Err(Error::NoLockClock { lock });
            }
            // Not used.
            None => 1,
        };
        let fields = [
            (std::mem::offset_of!(abi::Config, lock_ticks_per_us), ticks_per_us),
            (std::mem::offset_of!(abi::Config, tsc_ticks_per_us), (tsc_khz / 1000).max(1)),
        ];
        fields.into_iter().try_for_each(|(offset, ticks)| {
            let written =
                self.memory.write_obj(ticks, GuestAddress(abi::CONFIG_ADDR + offset as u64));
            written.map_err(Error::memory)
        })
    }

    /// Thread id of each vCPU.
    pub fn tids(&self) -> Vec<i32> {
        self.threads.iter().map(|t| t.tid).collect()
    }

    /// Lets the vCPUs run.
    pub fn start(&self) {
        self.gate.open();
    }

    /// Readable once a vCPU has ended.
    pub fn ended_fd(&self) -> i32 {
        self.ended_event.as_raw_fd()
    }

    /// Checks for vCPUs that have ended; returns the first error of any.
    pub fn error(&mut self) -> Option<&Error> {
        while let Ok(end) = self.ended.try_recv() {
            self.note(end);
        }
        self.error.as_ref()
    }

    /// Reads counters and CPU time of all vCPUs, for each vCPU at the same time.
    pub fn sample(&self) -> Vec<VcpuSample> {
        self.threads
            .iter()
            .enumerate()
            .map(|(index, thread)| {
                let at = abi::COUNTERS_ADDR + index as u64 * abi::COUNTERS_STRIDE;
                // SAFETY: inside guest memory, aligned, as long as this VM is.
                unsafe { sample(self.counters_ptr(at), self.counts_stalls, clock_ns(thread.clock)) }
            })
            .collect()
    }

    /// Resets the longest wait.
    pub fn reset_max_wait(&self) {
        for index in 0..self.threads.len() as u64 {
            let counters = self.counters_ptr(abi::COUNTERS_ADDR + index * abi::COUNTERS_STRIDE);
            // SAFETY: as in `sample`; the guest stores only values it has just measured.
            unsafe { (&raw mut (*counters).max_wait_cycles).write_volatile(0) };
        }
    }

    /// Ends all vCPUs, also of a VM that was never started, and checks their results.
    pub fn stop(&mut self, timeout: Duration) -> Result<(), Error> {
        let stop_at = abi::CONFIG_ADDR + std::mem::offset_of!(abi::Config, stop) as u64;
        self.memory.write_obj(1u32, GuestAddress(stop_at)).map_err(Error::memory)?;
        self.gate.open();
        let deadline = Instant::now() + timeout;
        while self.running > 0 && Instant::now() < deadline {
            self.wake_halted();
            if let Ok(end) = self.ended.recv_timeout(STOP_RETRY) {
                self.note(end);
            }
        }
        if self.running > 0 {
            let running = self.running;
            self.kill_vcpus();
            let (vcpus, seconds) = (self.threads.len() as u32, timeout.as_secs());
            return Err(Error::StopTimeout { running, vcpus, seconds });
        }
        self.join();
        match self.error.take() {
            Some(error) => Err(error),
            None => self.check_mutual_exclusion(),
        }
    }

    fn note(&mut self, Ended { vcpu, result }: Ended) {
        self.running -= 1;
        if let (Err(fault), None) = (result, &self.error) {
            self.error = Some(Error::Guest { vcpu, fault });
        }
    }

    /// Interrupts every vCPU, so that one in HLT sees the stop word.
    fn wake_halted(&self) {
        for index in 0..self.threads.len() as u32 {
            let msi = kvm_msi {
                address_lo: 0xfee0_0000 | index << 12,
                data: u32::from(abi::VECTOR_WAKE),
                ..Default::default()
            };
            // A vCPU whose APIC is not up yet takes no interrupt and needs none.
            let _ = self.fd.signal_msi(msi);
        }
    }

    /// Takes the vCPU threads out of KVM_RUN, regardless of the guest.
    fn kill_vcpus(&mut self) {
        self.kill.store(true, Ordering::Release);
        self.gate.open();
        while self.running > 0 {
            for thread in self.threads.iter().filter_map(|t| t.handle.as_ref()) {
                // SAFETY: not joined yet; the handler does nothing.
                unsafe { libc::pthread_kill(thread.as_pthread_t(), kick_signal()) };
            }
            if let Ok(end) = self.ended.recv_timeout(STOP_RETRY) {
                self.note(end);
            }
        }
        self.join();
    }

    fn join(&mut self) {
        for handle in self.threads.iter_mut().filter_map(|t| t.handle.take()) {
            // A panic in a vCPU thread has been printed; the VM is over in either case.
            let _ = handle.join();
        }
    }

    fn check_mutual_exclusion(&self) -> Result<(), Error> {
        let word = |at: u64| {
            let value: Result<u64, _> = self.memory.read_obj(GuestAddress(at));
            value.map_err(Error::memory)
        };
        let (mut counted, mut releases) = (0u64, 0u64);
        for lock in 0..abi::LOCKS_MAX as u64 {
            counted =
                counted.wrapping_add(word(abi::PROTECTED_ADDR + lock * abi::PROTECTED_STRIDE)?);
        }
        let offset = std::mem::offset_of!(abi::Counters, releases) as u64;
        for vcpu in 0..self.threads.len() as u64 {
            let at = abi::COUNTERS_ADDR + vcpu * abi::COUNTERS_STRIDE + offset;
            releases = releases.wrapping_add(word(at)?);
        }
        if counted == releases {
            Ok(())
        } else {
            Err(Error::MutualExclusion { releases, counted })
        }
    }

    fn counters_ptr(&self, at: u64) -> *mut abi::Counters {
        self.memory.get_host_address(GuestAddress(at)).expect("counters lie in memory").cast()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.error();
        self.kill_vcpus();
    }
}

fn open_kvm() -> Result<Kvm, Error> {
    Kvm::new().map_err(|e| Error::OpenKvm(std::io::Error::from_raw_os_error(e.errno())))
}

fn disable_pause_exits(kvm: &Kvm, vm: &VmFd) -> Result<(), Error> {
    let offered = kvm.check_extension_raw(KVM_CAP_X86_DISABLE_EXITS.into());
    if offered <= 0 || offered as u32 & KVM_X86_DISABLE_EXITS_PAUSE == 0 {
        return Err(Error::PauseExitsStayOn);
    }
    let mut cap = kvm_enable_cap { cap: KVM_CAP_X86_DISABLE_EXITS, ..Default::default() };
    cap.args[0] = u64::from(KVM_X86_DISABLE_EXITS_PAUSE);
    vm.enable_cap(&cap).map_err(Error::kvm("KVM_CAP_X86_DISABLE_EXITS"))
}

fn write_config(
    memory: &GuestMemoryMmap,
    config: &VmConfig,
    features: u32,
    steps: &[abi::Step],
) -> Result<(), Error> {
    let mut all = [abi::Step::default(); abi::STEPS_MAX];
    all[..steps.len()].copy_from_slice(steps);
    let page = abi::Config {
        magic: abi::MAGIC,
        version: abi::VERSION,
        vcpus: config.vcpus,
        lock_kind: abi::lock_kind(config.lock),
        cpl: u32::from(config.cpl),
        steps_count: steps.len() as u32,
        features: features
            | config.tau_ns.map_or(0, |_| abi::FEATURE_TAU)
            | config.spin_ns.map_or(0, |_| abi::FEATURE_SPIN),
        // Set once a vCPU exists, which reports the rate.
        lock_ticks_per_us: 0,
        seed: config.seed,
        lock_tau_ns: config.tau_ns.unwrap_or(0),
        lock_spin_ns: config.spin_ns.unwrap_or(0),
        report_log2_cycles: config.report_log2_cycles.unwrap_or(0),
        tsc_ticks_per_us: 0,
        steps: abi::Steps(all),
        stop: abi::Aligned(0),
    };
    let at = memory.get_host_address(GuestAddress(abi::CONFIG_ADDR)).map_err(Error::memory)?;
    // SAFETY: the page lies inside guest memory (static asserts in guest/abi.h), aligned, and no
    // vCPU runs yet.
    unsafe { at.cast::<abi::Config>().write(page) };
    Ok(())
}

fn set_memory(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), Error> {
    let host = memory.get_host_address(GuestAddress(0)).map_err(Error::memory)?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: abi::RAM_BYTES as u64,
        userspace_addr: host as u64,
    };
    // SAFETY: the mapping lives as long as the VM: `Vm` drops its threads before its memory.
    unsafe { vm.set_user_memory_region(region) }.map_err(Error::kvm("guest memory"))
}

#[cfg(test)]
mod tests;
