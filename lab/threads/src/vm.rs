// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM of machine `threads`: the program and its locks in memory (`c/machine.c`).

use std::sync::atomic::{AtomicU64, Ordering};
use unspin_guest_abi as abi;
use unspin_vmm::{sample, VcpuSample};

/// Mirrors `struct threads_config`.
#[repr(C)]
struct Config {
    vcpus: u32,
    steps_count: u32,
    seed: u64,
    tau_ns: u64,
    steps: [abi::Step; abi::STEPS_MAX],
}

/// `struct threads_vm`, which only C accesses.
#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

/// The functions of c/machine.c for one lock.
struct Code {
    lock: &'static str,
    new: unsafe extern "C" fn(*const Config) -> *mut Raw,
    run: unsafe extern "C" fn(*mut Raw, u32),
    stop: unsafe extern "C" fn(*mut Raw),
    counters: unsafe extern "C" fn(*mut Raw, u32) -> *mut abi::Counters,
    free: unsafe extern "C" fn(*mut Raw) -> i32,
}

include!(concat!(env!("OUT_DIR"), "/vms.rs"));

/// One VM; its vCPUs are the threads that call [`Vm::run`]. Dropping it keeps its memory, because a
/// thread may use it. [`Vm::finish`] frees it.
pub(crate) struct Vm {
    raw: *mut Raw,
    code: &'static Code,
    vcpus: u32,
}

// SAFETY: c/machine.c shares data between threads through atomics, and counters as its header
// describes.
unsafe impl Send for Vm {}
unsafe impl Sync for Vm {}

impl Vm {
    /// Memory for a VM of 1 to 128 vCPUs that run `steps`, at most 32. `None`: no memory, or no
    /// such lock in this build. `lock` is the prefix of its functions in `core/locks/`.
    pub fn new(lock: &str, vcpus: u32, steps: &[abi::Step], seed: u64, tau_ns: u64) -> Option<Vm> {
        assert!((1..=abi::VCPUS_MAX as u32).contains(&vcpus) && steps.len() <= abi::STEPS_MAX);
        let code = CODE.iter().find(|code| code.lock == lock)?;
        let mut all = [abi::Step::default(); abi::STEPS_MAX];
        all[..steps.len()].copy_from_slice(steps);
        let config = Config { vcpus, steps_count: steps.len() as u32, seed, tau_ns, steps: all };
        // SAFETY: the configuration is in range and is copied.
        let raw = unsafe { (code.new)(&config) };
        (!raw.is_null()).then_some(Vm { raw, code, vcpus })
    }

    /// Number of its vCPUs.
    pub fn vcpus(&self) -> u32 {
        self.vcpus
    }

    /// Runs vCPU `index` on the calling thread until the VM is stopped; once for each vCPU.
    pub fn run(&self, index: u32) {
        assert!(index < self.vcpus);
        // SAFETY: the memory lives as long as `self` at least.
        unsafe { (self.code.run)(self.raw, index) }
    }

    /// Makes every vCPU end its program.
    pub fn stop(&self) {
        // SAFETY: as in `run`.
        unsafe { (self.code.stop)(self.raw) }
    }

    /// The counts of vCPU `index`, without its CPU time.
    pub fn counters(&self, index: u32) -> VcpuSample {
        // SAFETY: in the VM's memory, aligned; single words that a thread writes with plain stores.
        unsafe { sample(self.counters_of(index), false, 0) }
    }

    /// Resets the longest wait of vCPU `index`.
    pub fn reset_max_wait(&self, index: u32) {
        let counters = self.counters_of(index);
        // SAFETY: as in `counters`; the guest's contract lets it be set to 0 at any time.
        unsafe { AtomicU64::from_ptr(&raw mut (*counters).max_wait_cycles) }
            .store(0, Ordering::Relaxed);
    }

    fn counters_of(&self, index: u32) -> *mut abi::Counters {
        assert!(index < self.vcpus);
        // SAFETY: as in `run`.
        unsafe { (self.code.counters)(self.raw, index) }
    }

    /// Frees the memory after every `run` has returned. Returns whether each critical section was
    /// exclusive and every lock is free again.
    pub fn finish(self) -> bool {
        // SAFETY: `self` is the only user of the VM, and the threads have left it.
        unsafe { (self.code.free)(self.raw) == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scenario::plan::{Dist, Op, Step};

    /// guest/rng.h again, to follow it.
    struct Rng(u64);

    impl Rng {
        fn new(vm_seed: u64, vcpu: u32) -> Rng {
            let mix = unspin_guest_abi::rng::splitmix64;
            Rng(mix(vm_seed ^ mix(u64::from(vcpu) + 1)))
        }

        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
    }

    /// A vCPU does in N units what the guest's random numbers say, whatever interrupts it.
    #[test]
    fn a_vcpu_draws_what_the_guest_draws() {
        let step = |op, dist, permille| Step { op, dist, lock: 0, permille };
        let program = [
            step(Op::Compute, Dist::Uniform { min: 10, max: 90 }, 1000),
            step(Op::Lock, Dist::Const { iterations: 0 }, 250),
            step(Op::Critical, Dist::Const { iterations: 1000 }, 1000),
            step(Op::Unlock, Dist::Const { iterations: 0 }, 1000),
        ];
        let steps = unspin_guest_abi::compile(&program, 0).unwrap();
        for seed in 0..4 {
            let vm = Vm::new("tas", 1, &steps, seed, 2000).unwrap();
            let counters = std::thread::scope(|s| {
                let vcpu = s.spawn(|| vm.run(0));
                while vm.counters(0).units < 1000 {
                    std::thread::yield_now();
                }
                vm.stop();
                vcpu.join().unwrap();
                vm.counters(0)
            });
            let mut rng = Rng::new(seed, 0);
            let (mut iterations, mut acquisitions) = (0, 0);
            for _ in 0..counters.units {
                iterations += 10 + (((rng.next() >> 32) * 81) >> 32);
                if ((rng.next() >> 32) * 1000) >> 32 < 250 {
                    iterations += 1000;
                    acquisitions += 1;
                }
            }
            assert_eq!((counters.iterations, counters.acquisitions), (iterations, acquisitions));
            assert!(vm.finish());
        }
    }
}
