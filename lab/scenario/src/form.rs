// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form of a run in plans and results. Identical VMs are written once, by `profile`, `program`,
//! `vcpus`, `lock` and so on. If VMs differ, these are the first VM's, and `each` has a row per VM. CPUs
//! and weights are lists over VMs, empty if no VM has any.

use crate::plan::{Arm, CgroupLayout, LinuxVm, LockKind, Run, Step, Vm};
use crate::schema::names::is_default;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unspin_diagnosis::Cause;

/// Limit of VMs that are read; scenarios have up to 64.
const VMS_MAX: u32 = 1024;
/// cgroup cpu.weight of a VM without one beside VMs with one: the kernel's default.
const WEIGHT_USUAL: u32 = 100;

/// See [`Run`] and [`Vm`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    id: u32,
    profile: String,
    #[serde(default)]
    spin_intensive: bool,
    program: Vec<Step>,
    vms: u32,
    vcpus: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    each: Vec<Vm>,
    pin: Vec<Vec<u32>>,
    weights: Vec<u32>,
    lock: LockKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tau_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spin_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    lock_group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock_clock_mhz: Option<u32>,
    cpl: u8,
    cgroup: CgroupLayout,
    arm: Arm,
    #[serde(default)]
    epoch_ple_exits: Option<u32>,
    #[serde(default)]
    epoch_min_us: Option<u32>,
    baseline: String,
    seed: u64,
    repeat: u32,
    warmup_ms: u64,
    window_ms: u64,
    stagger_ms: u64,
    alone: bool,
    trace_epochs: bool,
    trace_picks: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stalls: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wakeups_hz: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    hogs: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inject: Option<Vec<Cause>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    states: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    linux: Option<LinuxVm>,
}

/// Converts the common fields from or to a form.
macro_rules! with_what_both_have {
    ($to:ident { $($own:tt)* } of $from:ident) => {
        $to {
            $($own)*
            id: $from.id,
            profile: $from.profile.clone(),
            lock_group: $from.lock_group.clone(),
            lock_clock_mhz: $from.lock_clock_mhz,
            cgroup: $from.cgroup,
            arm: $from.arm.clone(),
            epoch_ple_exits: $from.epoch_ple_exits,
            epoch_min_us: $from.epoch_min_us,
            baseline: $from.baseline.clone(),
            seed: $from.seed,
            repeat: $from.repeat,
            warmup_ms: $from.warmup_ms,
            window_ms: $from.window_ms,
            stagger_ms: $from.stagger_ms,
            alone: $from.alone,
            trace_epochs: $from.trace_epochs,
            trace_picks: $from.trace_picks,
            stalls: $from.stalls,
            wakeups_hz: $from.wakeups_hz,
            hogs: $from.hogs,
            inject: $from.inject.clone(),
            states: $from.states,
        }
    };
}

impl From<&Run> for Form {
    fn from(run: &Run) -> Form {
        let named = |vm: &Vm| {
            let or_the_runs =
                |name: &String| if name.is_empty() { &run.profile } else { name }.clone();
            let (group, profile) = (or_the_runs(&vm.group), or_the_runs(&vm.profile));
            Vm { group, profile, ..vm.clone() }
        };
        let each = match run.is_of_alike() {
            true => Vec::new(),
            false => run.vms.iter().map(named).collect(),
        };
        let has_weights = run.vms.iter().any(|vm| vm.weight.is_some());
        let pin = run.vms.iter().filter(|_| run.is_pinned()).map(|vm| vm.pin.clone()).collect();
        let weights = run.vms.iter().filter(|_| has_weights);
        let weights = weights.map(|vm| vm.weight.unwrap_or(WEIGHT_USUAL)).collect();
        let Vm { spin_intensive, program, vcpus, lock, tau_ns, spin_ns, cpl, linux, .. } =
            run.first().clone();
        with_what_both_have!(Form {
            vms: run.vm_count(),
            spin_intensive,
            program,
            vcpus,
            each,
            pin,
            weights,
            lock,
            tau_ns,
            spin_ns,
            cpl,
            linux,
        } of run)
    }
}

impl Form {
    /// An error text if a list does not have a value per VM.
    fn wrong(&self) -> Option<String> {
        let (id, vms) = (self.id, self.vms);
        if vms > VMS_MAX {
            return Some(format!("run {id} is of {vms} VMs; at most {VMS_MAX}"));
        }
        let lists = [
            ("describes", self.each.len()),
            ("has CPUs for", self.pin.len()),
            ("has weights for", self.weights.len()),
        ];
        let (has, len) = lists.into_iter().find(|(_, len)| ![0, vms as usize].contains(len))?;
        Some(format!("run {id} {has} {len} VMs of {vms}"))
    }

    fn vms(&mut self) -> Vec<Vm> {
        if self.each.is_empty() {
            let alike = Vm {
                spin_intensive: self.spin_intensive,
                lock: self.lock,
                tau_ns: self.tau_ns,
                spin_ns: self.spin_ns,
                cpl: self.cpl,
                linux: self.linux.take(),
                ..Vm::new(std::mem::take(&mut self.program), self.vcpus)
            };
            self.each = vec![alike; self.vms as usize];
        }
        for (vm, pin) in self.each.iter_mut().zip(self.pin.drain(..)) {
            vm.pin = pin;
        }
        for (vm, weight) in self.each.iter_mut().zip(&self.weights) {
            vm.weight = Some(*weight);
        }
        std::mem::take(&mut self.each)
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Form::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Run, D::Error> {
        let mut form = Form::deserialize(deserializer)?;
        match form.wrong() {
            Some(wrong) => Err(D::Error::custom(wrong)),
            None => {
                let vms = form.vms();
                Ok(with_what_both_have!(Run { vms, } of form))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn written(run: &Run) -> Value {
        serde_json::to_value(run).unwrap()
    }

    #[test]
    fn vms_are_written_one_by_one_only_where_they_differ() {
        let alike = Run { profile: "p".into(), ..Run::new(vec![], 2, 4) };
        let json = written(&alike);
        assert_eq!((&json["vms"], &json["vcpus"], json.get("each")), (&json!(2), &json!(4), None));
        assert_eq!((&json["pin"], &json["weights"]), (&json!([]), &json!([])));
        let mut placed = alike.clone().weighted(&[1, 2]);
        placed.vms[1].pin = vec![3; 4];
        let json = written(&placed);
        assert_eq!((&json["pin"], json.get("each")), (&json!([[], [3, 3, 3, 3]]), None));
        assert_eq!(json["weights"], json!([1, 2]));
        let differ: [fn(&mut Vm); 8] = [
            |vm| vm.group = "g".into(),
            |vm| vm.vcpus = 3,
            |vm| vm.cpl = 3,
            |vm| vm.lock = LockKind::Mcs,
            |vm| vm.spin_ns = Some(1000),
            |vm| vm.mode_off = true,
            |vm| vm.gang = Some(false),
            |vm| vm.quota_ppm = Some(1),
        ];
        for change in differ {
            let mut run = placed.clone();
            change(&mut run.vms[1]);
            let json = written(&run);
            assert_eq!((&json["each"][0]["group"], &json["vcpus"]), (&json!("p"), &json!(4)));
            let back: Run = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(written(&back), json);
            assert_eq!((back.vms[1].vcpus, &back.vms[1].pin), (run.vms[1].vcpus, &vec![3; 4]));
        }
        for run in [alike, placed, Run::new(vec![], 0, 4)] {
            let back: Run = serde_json::from_value(written(&run)).unwrap();
            assert_eq!(back, run);
        }
    }

    #[test]
    fn lists_are_of_every_vm_or_of_none() {
        let mut two = Run { id: 7, ..Run::new(vec![], 2, 1) };
        two.vms[1].vcpus = 2;
        let each = written(&two)["each"][0].clone();
        for (key, value, why) in [
            ("each", json!([each]), "run 7 describes 1 VMs of 2"),
            ("pin", json!([[0]]), "run 7 has CPUs for 1 VMs of 2"),
            ("weights", json!([1, 2, 3]), "run 7 has weights for 3 VMs of 2"),
            ("vms", json!(4_000_000_000u32), "run 7 is of 4000000000 VMs; at most 1024"),
            ("cpus", json!(1), "unknown field `cpus`"),
        ] {
            let mut json = written(&two);
            json[key] = value;
            let error = serde_json::from_value::<Run>(json).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
