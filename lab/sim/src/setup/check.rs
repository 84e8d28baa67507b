// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which runs cannot be simulated, and why.

use super::{sends_messages, Setup, VmSetup};
use crate::core::CreditHost;
use crate::engine::TIMERS_MAX;
use crate::error::Error;
use crate::guest::{GROUP, GROUPS_MAX};
use unspin_policy::gang;
use unspin_scenario::module;
use unspin_scenario::plan::{self, CgroupLayout, Coscheduling, CoschedulingMechanism, YieldTo};

/// Largest number of threads of a VM.
const THREADS_MAX: u32 = 1024;
const TICK_MAX_HZ: u32 = 10_000;
/// Largest number of vCPUs of a VM; the largest of APSys'15 has 160.
const VCPUS_MAX: u32 = 256;
/// What the simulator cannot see its guests do.
const NO_USER_SPINNING: &str = "the simulator's guests do not spin in user space: coscheduling may be none, con, vcrd (with Credit) or vcrd-ple there";
/// The range of cpu.shares in Linux.
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

impl Setup {
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |text| Error::Run { id: self.run.id, text };
        self.check_vms().map_err(wrong)?;
        self.check_pins_and_weights().map_err(wrong)?;
        self.check_scheduler().map_err(wrong)?;
        self.check_host()
    }

    fn check_vms(&self) -> Result<(), String> {
        if self.vms.is_empty() {
            return Err("no VMs".into());
        }
        for vm in &self.vms {
            vm.check_size()?;
        }
        if self.host.physical && self.vms.len() > 1 {
            return Err("a physical machine without a VMM runs one system, not VMs".into());
        }
        Ok(())
    }

    fn check_pins_and_weights(&self) -> Result<(), String> {
        let run = &self.run;
        for (pin, vcpus) in self.vms.iter().map(|vm| (&vm.pin, vm.vcpus)) {
            if !pin.is_empty() && pin.len() != vcpus as usize {
                return Err(format!("pins {} vCPUs of {vcpus}", pin.len()));
            }
            if let Some(p) = pin.iter().find(|p| **p >= self.host.pcpus) {
                return Err(format!("pins to pCPU {p}; the host has {}", self.host.pcpus));
            }
        }
        if let Some(vm) = self.vms.iter().find(|vm| !(1..=10_000).contains(&vm.weight)) {
            return Err(format!("weight {}; cpu.weight is 1 to 10000", vm.weight));
        }
        if run.cgroup == CgroupLayout::Libvirt {
            return Err("machine sim has no cgroup layout `libvirt`; use `vcpu`".into());
        }
        let unequal = self.vms.iter().any(|vm| vm.weight != self.vms[0].weight);
        if self.host.capped && run.cgroup == CgroupLayout::Flat && !run.alone {
            return Err("caps need cgroups; use the layout `vm` or `vcpu`".into());
        }
        if self.vms.iter().any(|vm| vm.quota_ppm.is_some()) {
            if run.cgroup == CgroupLayout::Flat {
                return Err("a quota needs a cgroup; use the layout `vm` or `vcpu`".into());
            }
            if self.host.credit.is_some() {
                return Err("Credit knows no quota of one VM; use scheduler = \"fair\"".into());
            }
        }
        if unequal && run.cgroup == CgroupLayout::Flat && self.host.credit.is_none() {
            return Err("weights need cgroups; use the layout `vm` or `vcpu`".into());
        }
        for vm in self.vms.iter().filter(|vm| !vm.vcpu_shares.is_empty()) {
            if run.cgroup != CgroupLayout::Vcpu || self.host.credit.is_some() {
                return Err("shares of vCPUs need the layout `vcpu`".into());
            }
            if vm.vcpu_shares.len() != vm.vcpus as usize
                || !vm.vcpu_shares.iter().all(|s| SHARES.contains(s))
            {
                return Err(format!("{} shares; one a vCPU, 2 to 262144", vm.vcpu_shares.len()));
            }
        }
        Ok(())
    }

    fn check_scheduler(&self) -> Result<(), String> {
        let missing = match self.run.arm.coscheduling_mechanism {
            CoschedulingMechanism::Park => None,
            CoschedulingMechanism::SchedExt => Some("sched_ext, but [host] scheduler = \"credit\""),
            CoschedulingMechanism::Scheduler => Some("unspin schedule"),
        };
        if let Some(missing) = missing {
            return Err(format!("the simulator has no {missing}; coscheduling_mechanism = \"park\" there, or left out"));
        }
        match &self.host.credit {
            Some(credit) => self.check_credit(credit)?,
            None => self.check_turns()?,
        }
        self.host.asym.check().map_err(|error| format!("asymmetric vCPUs: {error}"))?;
        if self.run.window_ms == 0 {
            return Err("window_ms is 0".into());
        }
        Ok(())
    }

    /// Turns that the module makes.
    fn check_turns(&self) -> Result<(), String> {
        let arm = &self.run.arm;
        match arm.coscheduling {
            Coscheduling::None => return Ok(()),
            Coscheduling::Con | Coscheduling::VcrdPle => {}
            Coscheduling::Vcrd => {
                return Err("the fair scheduler does not get reports of guests; coscheduling = \
                            \"vcrd\" needs Credit (scheduler in [host])"
                    .into());
            }
            Coscheduling::VcrdUser | Coscheduling::VcrdBoth => return Err(NO_USER_SPINNING.into()),
        }
        if !module::acts(arm) {
            return Err(
                "the module makes turns, and the arm leaves its VMs to KVM; set yield_to or \
                        window in addition to coscheduling"
                    .into(),
            );
        }
        if arm.asym != plan::Asym::default() {
            return Err("asymmetric vCPUs and turns do not go together".into());
        }
        if self.host.pcpus as usize > gang::CPUS_MAX {
            return Err(format!("turns of {} pCPUs; at most {}", self.host.pcpus, gang::CPUS_MAX));
        }
        Ok(())
    }

    fn check_credit(&self, credit: &CreditHost) -> Result<(), String> {
        let arm = &self.run.arm;
        if matches!(arm.coscheduling, Coscheduling::VcrdUser | Coscheduling::VcrdBoth) {
            return Err(NO_USER_SPINNING.into());
        }
        if credit.xen && arm.turn_us.is_some() {
            return Err(
                "turn_us is the length of turns or of slots, and Xen's Credit has none; use \
                        scheduler = \"credit\" or \"credit-capped\""
                    .into(),
            );
        }
        credit.params.check().map_err(|error| format!("Credit: {error}"))?;
        credit.vcrd.check().map_err(|error| format!("VCRD: {error}"))?;
        if arm.yield_to != YieldTo::Stock {
            return Err("Credit has no directed yield; use yield_to = \"stock\"".into());
        }
        if arm.asym != plan::Asym::default() {
            return Err("asymmetric vCPUs need the fair scheduler".into());
        }
        Ok(())
    }

    fn check_host(&self) -> Result<(), Error> {
        let (pcpus, khz, tick_ns) = (self.host.pcpus, self.host.khz, self.host.tick_ns);
        // HVS distinguishes pCPUs by 16 bits.
        let pcpus_fit = (1..=1 << 16).contains(&pcpus);
        if !pcpus_fit || !(1_000..=100_000_000).contains(&khz) || tick_ns < 1000 {
            return Err(Error::Host { pcpus, khz, tick_ns });
        }
        if self.host.threads_share_cores && pcpus % 2 == 1 {
            let text = format!("{pcpus} pCPUs; cores with 2 threads need an even number");
            return Err(Error::Run { id: self.run.id, text });
        }
        if !(1..=100).contains(&self.host.thread_speed_percent) {
            let text =
                format!("a thread's speed of {} %; 1 to 100", self.host.thread_speed_percent);
            return Err(Error::Run { id: self.run.id, text });
        }
        let timers = self.layout().timers();
        if timers > TIMERS_MAX {
            let text = format!("needs {timers} timers; the model has {TIMERS_MAX}");
            return Err(Error::Run { id: self.run.id, text });
        }
        Ok(())
    }
}

impl VmSetup {
    fn check_size(&self) -> Result<(), String> {
        if !(1..=VCPUS_MAX).contains(&self.vcpus) {
            return Err(format!("{} vCPUs; a VM has 1 to {VCPUS_MAX}", self.vcpus));
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(format!("{} threads; a VM has 1 to {THREADS_MAX}", self.threads));
        }
        if self.tick_hz > TICK_MAX_HZ {
            return Err(format!("{} ticks a second; at most {TICK_MAX_HZ}", self.tick_hz));
        }
        let in_groups = self.threads % GROUP == 0 && self.threads / GROUP <= GROUPS_MAX;
        if sends_messages(self) && !in_groups {
            let text = format!("{GROUP} to {} threads, in groups of {GROUP}", GROUPS_MAX * GROUP);
            return Err(format!("{} threads send messages; they are {text}", self.threads));
        }
        Ok(())
    }
}
