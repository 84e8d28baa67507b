// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of a run, and the machine built from it.

mod arm;
mod build;
mod check;
mod settings;

use crate::core::Host;
use crate::guest::Budgets;
use unspin_guest_abi::rng::{stagger_ns, vm_seed};
use unspin_scenario::plan::{Arm, LockChoice, Op, Role, Run, Step, Vm};

/// CONFIG_HZ of Debian's and Ubuntu's kernels.
const TICK_USUAL_HZ: u32 = 250;

/// One VM of a machine.
#[derive(Debug, Clone)]
pub struct VmSetup {
    /// Spread over its vCPUs' random numbers.
    pub seed: u64,
    pub start_ns: u64,
    /// pCPU of each vCPU; empty: any.
    pub pin: Vec<u32>,
    /// Its weight against the other VMs'.
    pub weight: u32,
    /// Limit of its CPU time, in millionths of the host's CPU time; `None`: no quota.
    pub quota_ppm: Option<u32>,
    /// Shares of each vCPU's own cgroup within the VM's (layout `vcpu`); empty: all equal.
    pub vcpu_shares: Vec<u64>,
    /// Static coscheduling (CON) runs its vCPUs together.
    pub concurrent: bool,
    /// Its vCPUs are asymmetric in arms with asym.
    pub shaped: bool,
    pub vcpus: u32,
    pub lock: LockChoice,
    /// Privilege level at which it spins.
    pub cpl: u8,
    /// Threads of its program. If there are as many as vCPUs, none ever leaves its own.
    pub threads: u32,
    /// Timer ticks per second of its kernel; 0: none, unless threads share vCPUs.
    pub tick_hz: u32,
    /// The arm's settings for it.
    pub arm: Arm,
    pub program: Vec<Step>,
}

/// A run for the model: the plan's [`Run`], VM by VM.
#[derive(Debug, Clone)]
pub struct Setup {
    pub host: Host,
    pub run: Run,
    pub vms: Vec<VmSetup>,
    /// Count waits that spin for longer than this, ns, as stalls.
    pub stall_ns: Option<u64>,
    /// Keep the state changes of the first VM's vCPUs.
    pub watched: bool,
    /// Budgets that replace those of the locks' headers.
    pub budgets: Budgets,
    /// APLE's waste includes the time for which a vCPU is switched out in a PLE exit, as in APPLES
    /// (TPDS 2017, 3.1.3). The module leaves it out (`core/policy/aple.h`).
    pub wastes_switched_out: bool,
}

impl Setup {
    /// The VMs as the agent starts them: seeds, staggered starts, pinning and weights.
    pub fn new(host: &Host, run: &Run) -> Setup {
        let of_vm = |(number, vm): (u32, &Vm)| {
            let seed = vm_seed(run.seed, number);
            VmSetup {
                seed,
                start_ns: stagger_ns(seed, run.stagger_ms),
                pin: vm.pin.clone(),
                weight: vm.weight.unwrap_or(1),
                quota_ppm: vm.quota_ppm,
                vcpu_shares: Vec::new(),
                concurrent: vm.gangs(),
                shaped: vm.role == Role::Shaped,
                vcpus: vm.vcpus,
                lock: vm.lock_choice(),
                cpl: vm.cpl,
                threads: vm.threads.unwrap_or(vm.vcpus),
                tick_hz: vm.tick_hz,
                arm: run.arm_of(vm),
                program: vm.program.clone(),
            }
        };
        let host = host.clone().on(&run.arm.platform);
        let vms = (0..).zip(&run.vms).map(of_vm).collect();
        let budgets = Budgets::default();
        Setup {
            host,
            vms,
            run: run.clone(),
            stall_ns: None,
            watched: false,
            budgets,
            wastes_switched_out: false,
        }
    }
}

fn sends_messages(setup: &VmSetup) -> bool {
    setup.program.iter().any(|s| s.op == Op::SocketLock)
}

/// Period of the guest kernel's ticks, which threads that share vCPUs need.
fn tick_ns(setup: &VmSetup) -> u64 {
    match setup.tick_hz {
        0 if setup.threads == setup.vcpus => 0,
        0 => 1_000_000_000 / u64::from(TICK_USUAL_HZ),
        hz => 1_000_000_000 / u64::from(hz),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::arm::module;
    use super::*;
    use crate::core::Kernel;
    use unspin_policy::aple;
    use unspin_scenario::plan::ApleParams;
    use unspin_scenario::plan::{CgroupLayout, Window, YieldTo};

    /// Two VMs of four vCPUs on four pCPUs, a contended ticket lock each.
    pub(crate) fn two_vms() -> Setup {
        let program = vec![
            Step::new(Op::Compute, 1000),
            Step::new(Op::Lock, 0),
            Step::new(Op::Critical, 500),
            Step::new(Op::Unlock, 0),
        ];
        let run = Run {
            profile: "test".into(),
            arm: Arm { name: "stock".into(), observe: true, ..Arm::default() },
            epoch_ple_exits: Some(50),
            warmup_ms: 20,
            window_ms: 50,
            stagger_ms: 5,
            ..Run::new(program, 2, 4).with(|vm| {
                (vm.spin_intensive, vm.pin) = (true, vec![0, 1, 2, 3]);
            })
        };
        Setup::new(&Host::lab(4, Kernel::V6_12), &run)
    }

    fn refused(change: fn(&mut Setup), why: &str) {
        let mut setup = two_vms();
        change(&mut setup);
        let error = setup.build().err().expect(why).to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        refused(|s| s.vms.clear(), "no VMs");
        refused(|s| s.vms[1].vcpus = 257, "257 vCPUs; a VM has 1 to 256");
        refused(|s| s.vms[1].pin = vec![0], "pins 1 vCPUs of 4");
        refused(|s| s.vms[1].pin[2] = 4, "pCPU 4; the host has 4");
        refused(|s| s.vms[0].weight = 0, "cpu.weight is 1 to 10000");
        refused(|s| s.vms[0].weight = 2, "weights need cgroups");
        refused(|s| s.vms[0].vcpu_shares = vec![1024; 4], "need the layout `vcpu`");
        let few = |s: &mut Setup| {
            (s.run.cgroup, s.vms[0].vcpu_shares) = (CgroupLayout::Vcpu, vec![1024]);
        };
        refused(few, "1 shares; one a vCPU");
        let none = |s: &mut Setup| {
            let vcpus = s.vms[0].vcpus as usize;
            (s.run.cgroup, s.vms[0].vcpu_shares) = (CgroupLayout::Vcpu, vec![1; vcpus]);
        };
        refused(none, "2 to 262144");
        refused(|s| s.run.window_ms = 0, "window_ms is 0");
        refused(|s| s.host.khz = 0, "a host of 4 pCPUs of 0 kHz");
        refused(|s| s.vms[0].program.truncate(3), "never released");
    }

    /// The selection's categories of vCPUs that lost their pCPU after a while.
    fn preempted(setup: &Setup) -> Vec<(u8, u8)> {
        let mut sim = setup.build().unwrap();
        let mut seen = Vec::new();
        for ms in 1..60 {
            sim.run_until(ms * 1_000_000);
            for vm in sim.kvm().vms.iter() {
                let lost = vm.slots.iter().zip(&vm.stock).filter(|(_, stock)| stock.preempted != 0);
                seen.extend(lost.map(|(slot, stock)| (slot.user_mode, stock.in_kernel)));
            }
        }
        seen
    }

    #[test]
    fn selections_know_who_was_in_user_mode() {
        let of_kernel = preempted(&two_vms());
        assert!(of_kernel.len() > 50 && of_kernel.iter().all(|seen| *seen == (0, 1)));
        let mut setup = two_vms();
        setup.vms.iter_mut().for_each(|vm| vm.cpl = 3);
        let of_user = preempted(&setup);
        assert!(of_user.len() > 50 && of_user.iter().all(|seen| *seen == (1, 0)));
        // In the kernel, except for the spinning at its barrier.
        let mut setup = two_vms();
        for vm in &mut setup.vms {
            vm.program = vec![Step::new(Op::Compute, 100_000), Step::new(Op::UserBarrier, 0)];
        }
        let both = preempted(&setup);
        assert!(both.contains(&(1, 0)) && both.contains(&(0, 1)));
    }

    #[test]
    fn the_module_is_set_as_the_arm_says() {
        let mut run = two_vms().run;
        let is = |run: &Run| {
            let m = module(run, &run.arm, 4);
            (m.counts, m.window_on, m.select.is_some(), m.window_cycles)
        };
        assert_eq!(is(&run), (true, false, false, 8192));
        run.arm.observe = false;
        assert_eq!(is(&run), (false, false, false, 8192));
        run.arm.window = Window::Fixed { cycles: 2048 };
        assert_eq!(is(&run), (true, true, false, 2048));
        run.arm.window = Window::Aple(ApleParams::default());
        run.arm.yield_to = YieldTo::HVS;
        assert_eq!(is(&run), (true, true, true, 8192));
        assert_eq!(module(&run, &run.arm, 4).params, aple::Params::default());
    }
}
