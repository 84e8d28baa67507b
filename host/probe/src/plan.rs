// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which programs fit a kernel: the arguments of its tracepoints, and the fields of its structures.
//! The programs themselves cannot check what they get.

use crate::error::Error;
use crate::types::{Kind, Type, Types};
use std::path::Path;

/// How much the programs distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Brief,
    Whole,
    /// `accesses`: including accesses to ports and to memory of devices.
    Detailed {
        accesses: bool,
    },
}

/// The argument of the tracepoint kvm_exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The vCPU, whose structure has the reason; since 5.16.
    Vcpu,
    /// The reason itself; before 5.16.
    Reason,
}

/// Whether a kernel shows how long tasks could not run because a quota was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throttling {
    Shown,
    /// The kernel has no quotas.
    Never,
    /// The kernel has quotas, but no clock of them that the programs know.
    Unknown,
}

/// The programs for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub exit: Exit,
    pub throttling: Throttling,
    /// Whether accesses to ports and to memory of devices are visible.
    pub accesses: bool,
    /// Whether the reasons of exits are known: the programs read those of kvm_intel and kvm_amd.
    pub reasons: bool,
}

/// What the programs expect of a tracepoint's arguments, from the first on.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// A number of this many bytes.
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

/// The tracepoints of programs that are always loaded.
const ALWAYS: [Tracepoint; 2] = [
    ("sched_switch", &[Number(1), Pointer("task_struct"), Pointer("task_struct")]),
    ("sched_waking", &[Pointer("task_struct")]),
];

/// The tracepoints of all extents except [`Extent::Brief`].
const OF_KVM: [Tracepoint; 6] = [
    ("sched_migrate_task", &[Pointer("task_struct"), Number(4)]),
    ("kvm_entry", &[]),
    ("kvm_userspace_exit", &[]),
    ("kvm_vcpu_wakeup", &[Number(8)]),
    ("kvm_apic_ipi", &[]),
    ("kvm_hypercall", &[Number(8)]),
];

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

/// A structure, and names of fields of which one must exist.
type Field = (&'static str, &'static [&'static str]);
const OF_TASKS: [Field; 2] = [("task_struct", &["pid"]), ("task_struct", &["__state", "state"])];
const OF_VMS: [Field; 4] = [
    ("task_struct", &["tgid"]),
    ("task_struct", &["group_leader"]),
    ("task_struct", &["comm"]),
    ("kvm_vcpu", &["arch.regs"]),
];

/// The field with the reason of an exit, by the vendor's loaded module.
const REASONS: [(&str, &[Field]); 2] = [
    ("kvm_intel", &[("vcpu_vmx", &["exit_reason", "vt.exit_reason"])]),
    ("kvm_amd", &[("vcpu_svm", &["vmcb"]), ("vmcb", &["control.exit_code"])]),
];

/// In the order in which `throttled()` in C tries them.
const THROTTLED: [&str; 3] =
    ["throttled_clock_self_time", "throttled_clock_pelt_time", "throttled_clock_task_time"];
/// A run queue has one of these fields if the kernel supports quotas.
const QUOTAS: [&str; 2] = ["runtime_enabled", "throttle_count"];

/// `uname -r` of the kernel with this `proc`.
pub fn release(proc: &Path) -> String {
    let text = read_kernel_text(proc.join("sys/kernel/osrelease"));
    text.map_or_else(|_| "of unknown release".into(), |text| text.trim().to_string())
}

impl Plan {
    /// The programs for the kernel with this `proc` and `sys` (`/proc` and `/sys`).
    ///
    /// # Errors
    /// It has no type information, or its types do not fit the programs. KVM is not loaded, or the kernel is locked
    /// down.
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
        let misfit =
            |why: Vec<String>| Error::UnknownKernel { release: release(), why: why.join("; ") };
        let plan = Fit(&types).plan(extent, &reasons).map_err(misfit)?;
        let lockdown = read_kernel_text(sys.join("kernel/security/lockdown"));
        if !has_vendor(sys) {
            return Err(Error::NoKvm);
        }
        if lockdown.is_ok_and(|text| text.contains("[confidentiality]")) {
            return Err(Error::LockedDown);
        }
        Ok(plan)
    }

    /// What is unknown on this kernel, a sentence each.
    pub fn unknown(&self) -> impl Iterator<Item = &'static str> {
        let throttled = (self.throttling == Throttling::Unknown)
            .then_some("for how long a quota stopped a vCPU is unknown");
        let accesses = (!self.accesses).then_some("which ports a guest accesses is unknown");
        let reasons = (!self.reasons)
            .then_some("why guests exit is unknown: KVM is neither kvm_intel nor kvm_amd here");
        throttled.into_iter().chain(accesses).chain(reasons)
    }
}

/// Whether KVM is loaded with the module for a vendor's processors, such as kvm_intel. Another host's types may come
/// without its list of modules.
fn has_vendor(sys: &Path) -> bool {
    let Ok(modules) = std::fs::read_dir(sys.join("module")) else { return true };
    modules.flatten().any(|module| module.file_name().as_encoded_bytes().starts_with(b"kvm_"))
}

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

    /// The reason why a tracepoint does not fit the programs.
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

/// Whether the arguments begin with the expected ones.
fn fits(takes: &[Takes], passed: &[Type]) -> bool {
    takes.len() <= passed.len() && takes.iter().zip(passed).all(|(takes, found)| takes.is(found))
}
