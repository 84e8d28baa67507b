// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `threads`: one run of a plan on this computer. vCPUs are threads, pinned as in the plan.
//! A VM is a group of them with its own locks and barrier. The kernel of this computer preempts
//! them (VEE 2013, section 2: lock-holder and lock-waiter preemption).
//!
//! As in a guest, work is counted, not measured by a clock. A run ends within bounded time: threads
//! that do not leave a lock within [`GRACE`] after the end are reported and left behind. Then the
//! program has to exit.

use crate::vm::Vm;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unspin_guest_abi::rng::{stagger_ns, vm_seed};
use unspin_scenario::plan::{CgroupLayout, LockKind, Op, Run, Window, YieldTo};
use unspin_scenario::result::{RunResult, VmResult};
use unspin_vmm::process::{now_ns, sleep_until};
use unspin_vmm::{
    allowed_cpus, clock_ns, run_on, sched_stats, vm_result, Counter, Counts, Realtime, VcpuSample,
};

/// Time in which threads have to leave locks after the run's end.
pub const GRACE: Duration = Duration::from_secs(30);
/// Time from the last preparation to the start of the first VM.
const START_LEAD_NS: u64 = 20_000_000;
const NS_PER_MS: u64 = 1_000_000;
const VMS_MAX: u32 = 64;
/// UNSPIN_PREEMPTABLE_TAU_NS of core/locks/preemptable.h.
const TAU_NS: u64 = 2000;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("run {id}: {text}")]
    Run { id: u32, text: String },
    #[error("the run needs {wanted} CPUs, and this process may run on {has}")]
    FewCpus { wanted: u32, has: u32 },
    #[error("the program: {0}")]
    Program(#[from] unspin_guest_abi::ProgramError),
    #[error("no memory for a VM, or no lock {0} in this build")]
    NoVm(String),
    #[error("{what}: {source}")]
    Os { what: String, source: io::Error },
    #[error("{threads} threads have not left their locks {} s after the end: a lock hangs", grace.as_secs_f64())]
    Hangs { threads: usize, grace: Duration },
}

/// CPUs that threads of this process may run on.
pub fn cpus() -> u32 {
    allowed_cpus().len() as u32
}

/// What this machine does not support in `run`: a hypervisor's windows and yields, and cgroups.
/// Returns the reason, and the machine that supports it.
pub fn refusal(run: &Run) -> Option<&'static str> {
    let stock = run.arm.window == Window::Stock && run.arm.yield_to == YieldTo::Stock;
    if !run.alone && !stock {
        return Some(
            "sets window or yield_to, which need a hypervisor: machines kvm, emulated, sim",
        );
    }
    if run.cgroup != CgroupLayout::Flat || run.vms.iter().any(|vm| vm.weight.is_some()) {
        return Some("needs cgroups of VMs: machines kvm, emulated, sim");
    }
    let mut steps = run.vms.iter().flat_map(|vm| &vm.program);
    if steps.any(|step| matches!(step.op, Op::Shootdown | Op::ShootdownLazy)) {
        return Some("has shootdown steps, which interrupt vCPUs: machines kvm, emulated, sim");
    }
    if run.vms.iter().any(|vm| vm.spin_ns.is_some()) {
        return Some("sets spin_ns of a lock: machines kvm, emulated, sim");
    }
    if run.trace_epochs || run.trace_picks {
        return Some("traces the module: machines kvm, emulated");
    }
    None
}

fn check(run: &Run, pcpus: u32) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Run { id: run.id, text });
    if let Some(why) = refusal(run) {
        return wrong(format!("arm {} {why}", run.arm.name));
    }
    if !(1..=VMS_MAX).contains(&run.vm_count()) {
        return wrong(format!("{} VMs; 1 to {VMS_MAX}", run.vms.len()));
    }
    let vcpus_max = unspin_guest_abi::VCPUS_MAX as u32;
    let sizes = || run.vms.iter().map(|vm| vm.vcpus).enumerate();
    if let Some((vm, vcpus)) = sizes().find(|(_, vcpus)| !(1..=vcpus_max).contains(vcpus)) {
        return wrong(format!("VM {vm} of {vcpus} vCPUs; 1 to {vcpus_max}"));
    }
    if run.window_ms == 0 {
        return wrong("window_ms is 0".into());
    }
    let pinned = run.vms.iter().filter(|vm| !vm.pin.is_empty());
    for (pin, vcpus) in pinned.map(|vm| (&vm.pin, vm.vcpus)) {
        if pin.len() != vcpus as usize {
            return wrong(format!("pins {} vCPUs of {vcpus}", pin.len()));
        }
        if let Some(p) = pin.iter().find(|p| **p >= pcpus) {
            return wrong(format!("pins to pCPU {p} of {pcpus}"));
        }
    }
    Ok(())
}

/// Runs `run` on the first `pcpus` CPUs that this process may use.
///
/// # Errors
///
/// The run is not possible on any machine or only on others, or a lock hangs. After
/// [`Error::Hangs`] threads of the run are left over.
pub fn run(run: &Run, pcpus: u32) -> Result<RunResult, Error> {
    // The prefix of the lock's functions.
    run_under(&|lock| lock.name().replace('-', "_"), run, pcpus, GRACE)
}

/// The prefix of a lock's functions.
type Prefix<'a> = &'a dyn Fn(LockKind) -> String;

fn run_under(lock: Prefix, run: &Run, pcpus: u32, grace: Duration) -> Result<RunResult, Error> {
    check(run, pcpus)?;
    let mut cpus = allowed_cpus();
    if cpus.len() < pcpus as usize {
        return Err(Error::FewCpus { wanted: pcpus, has: cpus.len() as u32 });
    }
    cpus.truncate(pcpus as usize);
    let mut vms = Vec::new();
    for (number, each) in (0..).zip(&run.vms) {
        let steps = unspin_guest_abi::compile(&each.program, each.cpl)?;
        let name = lock(each.lock);
        let tau_ns = each.tau_ns.unwrap_or(TAU_NS);
        let vm = Vm::new(&name, each.vcpus, &steps, vm_seed(run.seed, number), tau_ns);
        vms.push(Arc::new(vm.ok_or(Error::NoVm(name))?));
    }
    let vcpus: u32 = vms.iter().map(|vm| vm.vcpus()).sum();
    let base = now_ns() + START_LEAD_NS + u64::from(vcpus) * NS_PER_MS;
    let start = |vm| base + stagger_ns(vm_seed(run.seed, vm), run.stagger_ms);
    let starts: Vec<u64> = (0..run.vm_count()).map(start).collect();
    let mut threads = Threads { vms, all: Vec::new() };
    let begun = threads.start(run, &cpus, &starts);
    let measured = begun.and_then(|()| {
        let begin = starts.iter().max().unwrap_or(&base) + run.warmup_ms * NS_PER_MS;
        threads.measure([begin, begin + run.window_ms * NS_PER_MS])
    });
    let correct = threads.stop(grace)?;
    let [first, second] = measured?;
    let vm = |vm: usize| VmResult {
        error: (!correct[vm])
            .then(|| format!("lock {} let two vCPUs in at a time", run.vms[vm].lock.name())),
        ..result(&first.vms[vm], &second.vms[vm])
    };
    let vms = (0..run.vms.len()).map(vm).collect();
    Ok(RunResult::new(run.clone(), second.at_ns - first.at_ns, vms))
}

struct Thread {
    handle: JoinHandle<()>,
    cpu_clock: libc::clockid_t,
    counter: Counter,
}

/// All vCPUs, VM by VM.
struct Threads {
    vms: Vec<Arc<Vm>>,
    all: Vec<Thread>,
}

/// All VMs at one moment.
struct Sample {
    at_ns: u64,
    vms: Vec<VmSample>,
}

/// The counts of a VM's vCPUs, and those of the scheduler.
type VmSample = (Vec<VcpuSample>, Vec<Counts>);

impl Threads {
    /// Makes a thread for each vCPU; they wait for their VM's start.
    fn start(&mut self, run: &Run, cpus: &[usize], starts: &[u64]) -> Result<(), Error> {
        for (number, &start_ns) in starts.iter().enumerate() {
            for index in 0..self.vms[number].vcpus() {
                let pin = run.vms[number].pin.get(index as usize);
                let on = pin.map_or(cpus.to_vec(), |p| vec![cpus[*p as usize]]);
                let what = || format!("thread of vCPU {index} of VM {number}");
                let os = |source| Error::Os { what: what(), source };
                let vm = Arc::clone(&self.vms[number]);
                let (ready, is_ready) = channel();
                let handle = std::thread::Builder::new()
                    .name(format!("vcpu {number}/{index}"))
                    .stack_size(256 << 10)
                    .spawn(move || vcpu(&vm, index, &on, start_ns, &ready))
                    .map_err(os)?;
                let began = is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
                let open = |tid: i32| Counter::open(format!("/proc/self/task/{tid}"));
                let counter = began.and_then(open).map_err(os)?;
                let mut cpu_clock = 0;
                // SAFETY: the thread has not been joined.
                match unsafe { libc::pthread_getcpuclockid(handle.as_pthread_t(), &mut cpu_clock) }
                {
                    0 => self.all.push(Thread { handle, cpu_clock, counter }),
                    error => return Err(os(io::Error::from_raw_os_error(error))),
                }
            }
        }
        Ok(())
    }

    /// Reads everything at both moments.
    fn measure(&self, at_ns: [u64; 2]) -> Result<[Sample; 2], Error> {
        let _realtime = Realtime::enter();
        sleep_until(at_ns[0]);
        for vm in &self.vms {
            (0..vm.vcpus()).for_each(|index| vm.reset_max_wait(index));
        }
        let first = self.sample()?;
        sleep_until(at_ns[1]);
        Ok([first, self.sample()?])
    }

    /// Reads counters first, all within microseconds, and then values that need a system call each.
    fn sample(&self) -> Result<Sample, Error> {
        let at_ns = now_ns();
        let mut vms: Vec<VmSample> = Vec::with_capacity(self.vms.len());
        for vm in &self.vms {
            let counters = (0..vm.vcpus()).map(|index| vm.counters(index)).collect();
            vms.push((counters, Vec::with_capacity(vm.vcpus() as usize)));
        }
        let mut threads = self.all.iter();
        for (vcpus, counts) in &mut vms {
            for (vcpu, thread) in vcpus.iter_mut().zip(&mut threads) {
                let what = "the scheduler's counts of a thread";
                let os = |source| Error::Os { what: what.into(), source };
                counts.push(thread.counter.read().map_err(os)?);
                vcpu.cpu_ns = clock_ns(thread.cpu_clock);
            }
        }
        Ok(Sample { at_ns, vms })
    }

    /// Ends all threads. Returns for each VM whether its locks excluded the vCPUs from each other.
    fn stop(self, grace: Duration) -> Result<Vec<bool>, Error> {
        self.vms.iter().for_each(|vm| vm.stop());
        let end = Instant::now() + grace;
        let left = || self.all.iter().filter(|t| !t.handle.is_finished()).count();
        while left() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        match left() {
            0 => {}
            threads => return Err(Error::Hangs { threads, grace }),
        }
        for thread in self.all {
            // A panic in a vCPU would be a bug of this file; then its counts do not add up.
            let _ = thread.handle.join();
        }
        Ok(self.vms.into_iter().map(|vm| Arc::into_inner(vm).is_some_and(Vm::finish)).collect())
    }
}

fn vcpu(vm: &Vm, index: u32, on: &[usize], start_ns: u64, ready: &Sender<io::Result<i32>>) {
    // SAFETY: no memory involved. Without this a block of a profile would last up to 50 us longer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: no memory involved.
    let tid = run_on(on).map(|()| unsafe { libc::gettid() });
    let go_on = tid.is_ok();
    // The receiver is gone if creating a later thread failed.
    let told = ready.send(tid).is_ok();
    if go_on && told {
        sleep_until(start_ns);
        vm.run(index);
    }
}

fn result((first, before): &VmSample, (second, after): &VmSample) -> VmResult {
    VmResult { sched: Some(sched_stats(before, after)), ..vm_result(first, second) }
}

#[cfg(test)]
mod tests;
