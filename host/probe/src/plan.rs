// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which programs fit a kernel: what its tracepoints pass, and which fields its structures have. The programs
//! would take whatever is passed for what they expect.

use crate::error::Error;
use crate::types::{Kind, Type, Types};
use std::path::Path;

/// How much the programs tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Brief,
    Whole,
    /// `accesses`: those of ports and of devices' memory too.
    Detailed {
        accesses: bool,
    },
}

/// What the tracepoint kvm_exit passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The vCPU, in whose structure the reason is; since 5.16.
    Vcpu,
    /// The reason; before.
    Reason,
}

/// Whether a kernel shows for how long tasks could not run because a quota was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throttling {
    Shown,
    /// It has no quotas.
    Never,
    /// Quotas are known to it, and no clock of them that the programs know.
    Unknown,
}

/// The programs for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub exit: Exit,
    pub throttling: Throttling,
    /// Whether accesses to ports and to memory of devices are seen.
    pub accesses: bool,
    /// Whether it is known why guests exit: the programs read that of kvm_intel and of kvm_amd.
    pub reasons: bool,
}

/// What the programs take of a tracepoint's arguments, from the first on.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// A number of so many bytes.
    Number(u32),
    /// A pointer to this structure.
    Pointer(&'static str),
}
use unspin_text::read_kernel_text;
use Takes::{Number, Pointer};

impl Takes {
    fn is(self, found: &Type) -> bool {
        match self {
            Number(bytes) => found.kind == Kind::Number(bytes),
            Pointer(to) => found.kind == Kind::Pointer(Some(to.into())),
        }
    }

    fn text(self) -> String {
        match self {
            Number(bytes) => format!("a number of {bytes} bytes"),
            Pointer(to) => format!("struct {to} *"),
        }
    }
}

type Tracepoint = (&'static str, &'static [Takes]);

/// The tracepoints of the programs that are always loaded.
const ALWAYS: [Tracepoint; 2] = [
    ("sched_switch", &[Number(1), Pointer("task_struct"), Pointer("task_struct")]),
    ("sched_waking", &[Pointer("task_struct")]),
];

/// Those of all but [`Extent::Brief`].
const OF_KVM: [Tracepoint; 6] = [
    ("sched_migrate_task", &[Pointer("task_struct"), Number(4)]),
    ("kvm_entry", &[]),
    ("kvm_userspace_exit", &[]),
    ("kvm_vcpu_wakeup", &[Number(8)]),
    ("kvm_apic_ipi", &[]),
    ("kvm_hypercall", &[Number(8)]),
];

/// Those of accesses.
const OF_ACCESSES: [Tracepoint; 3] = [
    ("kvm_pio", &[Number(4), Number(4)]),
    ("kvm_mmio", &[Number(4), Number(4), Number(8)]),
    ("kvm_fast_mmio", &[Number(8)]),
];

const EXIT: &str = "kvm_exit";
const EXITS: [(Exit, &[Takes]); 2] = [
    (Exit::Vcpu, &[Pointer("kvm_vcpu"), Number(4)]),
    (Exit::Reason, &[Number(4), Pointer("kvm_vcpu"), Number(4)]),
];

/// Fields: a structure, and in it one of these.
type Field = (&'static str, &'static [&'static str]);
const OF_TASKS: [Field; 2] = [("task_struct", &["pid"]), ("task_struct", &["__state", "state"])];
const OF_VMS: [Field; 4] = [
    ("task_struct", &["tgid"]),
    ("task_struct", &["group_leader"]),
    ("task_struct", &["comm"]),
    ("kvm_vcpu", &["arch.regs"]),
];

/// Where the reason of an exit is, by the vendor's module that is loaded.
const REASONS: [(&str, &[Field]); 2] = [
    ("kvm_intel", &[("vcpu_vmx", &["exit_reason", "vt.exit_reason"])]),
    ("kvm_amd", &[("vcpu_svm", &["vmcb"]), ("vmcb", &["control.exit_code"])]),
];

/// As `throttled()` in C reads them.
const THROTTLED: [&str; 3] =
    ["throttled_clock_self_time", "throttled_clock_pelt_time", "throttled_clock_task_time"];
/// A run queue has one of these where the kernel knows quotas.
const QUOTAS: [&str; 2] = ["runtime_enabled", "throttle_count"];

/// `uname -r` of the kernel that `proc` shows.
pub fn release(proc: &Path) -> String {
    let text = read_kernel_text(proc.join("sys/kernel/osrelease"));
    text.map_or_else(|_| "of unknown release".into(), |text| text.trim().to_string())
}

impl Plan {
    /// The programs for the kernel that `proc` and `sys` (`/proc` and `/sys`) show.
    ///
    /// # Errors
    /// It shows no types, or others than the programs are made for.
    pub fn of(proc: &Path, sys: &Path, extent: Extent) -> Result<Plan, Error> {
        let dir = sys.join("kernel/btf");
        let release = || release(proc);
        if !dir.join("vmlinux").exists() {
            return Err(Error::NoTypes(dir.join("vmlinux").display().to_string()));
        }
        let types = Types::read(&dir).map_err(|(path, cause)| Error::UnreadableTypes {
            path: path.display().to_string(),
            cause: cause.to_string(),
        })?;
        let has_kvm = || dir.join("kvm").exists() || types.prototype(EXIT).is_some();
        if extent != Extent::Brief && !has_kvm() {
            return Err(match sys.join("module/kvm").exists() {
                true => Error::NoModuleTypes { release: release() },
                false => Error::NoKvm,
            });
        }
        let modules = REASONS.iter().filter(|(name, _)| sys.join("module").join(name).exists());
        let reasons: Vec<Field> = modules.flat_map(|(_, fields)| *fields).copied().collect();
        match Fit(&types).plan(extent, &reasons) {
            Ok(plan) => Ok(plan),
            Err(why) => Err(Error::UnknownKernel { release: release(), why: why.join("; ") }),
        }
    }
}

impl Plan {
    /// What cannot be seen on this kernel, a sentence each.
    pub fn unknown(&self) -> impl Iterator<Item = &'static str> {
        let throttled = (self.throttling == Throttling::Unknown)
            .then_some("for how long a quota stopped a vCPU is unknown");
        let accesses = (!self.accesses).then_some("which ports a guest accesses is unknown");
        let reasons = (!self.reasons)
            .then_some("why guests exit is unknown: KVM is neither kvm_intel nor kvm_amd here");
        throttled.into_iter().chain(accesses).chain(reasons)
    }
}

/// Asks whether programs fit.
struct Fit<'a>(&'a Types);

impl Fit<'_> {
    fn plan(&self, extent: Extent, reasons: &[Field]) -> Result<Plan, Vec<String>> {
        let mut why = Vec::new();
        let tracepoints = |all: &[Tracepoint]| -> Vec<String> {
            all.iter().filter_map(|(name, takes)| self.misfit(name, &[takes])).collect()
        };
        why.extend(tracepoints(&ALWAYS));
        why.extend(self.missing(&OF_TASKS));
        let mut exit = Exit::Vcpu;
        if extent != Extent::Brief {
            why.extend(tracepoints(&OF_KVM));
            why.extend(self.missing(&OF_VMS));
            match self.exit() {
                Ok(found) => exit = found,
                Err(text) => why.push(text),
            }
            if exit == Exit::Vcpu {
                why.extend(self.missing(reasons));
            }
        }
        match why.is_empty() {
            true => Ok(Plan {
                exit,
                throttling: self.throttling(),
                accesses: tracepoints(&OF_ACCESSES).is_empty(),
                reasons: !reasons.is_empty(),
            }),
            false => Err(why),
        }
    }

    fn exit(&self) -> Result<Exit, String> {
        let passed = self.0.prototype(EXIT).unwrap_or_default();
        let fitting = EXITS.iter().find(|(_, takes)| fits(takes, &passed));
        let misfit = || self.misfit(EXIT, &EXITS.map(|(_, takes)| takes)).unwrap_or_default();
        fitting.map(|(exit, _)| *exit).ok_or_else(misfit)
    }

    /// Why a tracepoint is not what the programs are made for.
    fn misfit(&self, name: &str, takes: &[&[Takes]]) -> Option<String> {
        let Some(passed) = self.0.prototype(name) else {
            return Some(format!("there is no tracepoint {name}"));
        };
        if takes.iter().any(|takes| fits(takes, &passed)) {
            return None;
        }
        let passed: Vec<String> = passed.iter().map(Type::to_string).collect();
        let wanted = takes.iter().map(|takes| {
            let takes: Vec<String> = takes.iter().map(|takes| takes.text()).collect();
            format!("({})", takes.join(", "))
        });
        let wanted: Vec<String> = wanted.collect();
        Some(format!(
            "the tracepoint {name} passes ({}), and the programs take {}",
            passed.join(", "),
            wanted.join(" or ")
        ))
    }

    fn missing(&self, fields: &[Field]) -> Vec<String> {
        let is_missing = |(structure, names): &&Field| {
            names.iter().all(|name| self.0.field(structure, name).is_none())
        };
        let text = |(structure, names): &Field| {
            format!("struct {structure} has no field {}", names.join(" or "))
        };
        fields.iter().filter(is_missing).map(text).collect()
    }

    fn throttling(&self) -> Throttling {
        let has = |names: &[&str]| names.iter().any(|n| self.0.field("cfs_rq", n).is_some());
        match (has(&THROTTLED), has(&QUOTAS)) {
            (true, _) => Throttling::Shown,
            (false, true) => Throttling::Unknown,
            (false, false) => Throttling::Never,
        }
    }
}

/// Whether what is passed begins with what is taken.
fn fits(takes: &[Takes], passed: &[Type]) -> bool {
    takes.len() <= passed.len() && takes.iter().zip(passed).all(|(takes, found)| takes.is(found))
}
