// SPDX-License-Identifier: MIT OR Apache-2.0
//! The switch of a cause: the settings of B, or the reason why this VM cannot be switched.

use super::placement::within_one_cache;
use crate::cmd::diagnose::show::title;
use crate::exit::{Cannot, Usage};
use crate::sysfs::Module;
use crate::vms;
use anyhow::{bail, Context};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use unspin_diagnosis::Cause;
use unspin_host::journal::Target;
use unspin_host::{cpus, Host, VmProcess};
use unspin_text::{counted, read_kernel_text};
use unspin_uapi::MODE;
use unspin_uapi::{Mode, Number};

/// The largest possible window, in cycles: hardly any spin lasts as long.
const WIDE: u32 = 1 << 30;

/// KVM's default maximum of polling after HLT on x86, in ns.
const POLL_NS: &str = "200000";

pub struct Places<'a> {
    pub host: &'a Host,
    /// The module's directory.
    pub sysfs: &'a Path,
    /// `/sys`.
    pub sys: &'a Path,
    pub vm: &'a VmProcess,
    pub all: &'a [VmProcess],
}

/// What alternates between A and B.
#[derive(Debug)]
pub struct Switch {
    pub cause: Cause,
    /// Descriptions of A and of B.
    pub a: String,
    pub b: String,
    /// The values of B. Those of A are the present ones.
    pub wanted: Vec<(Target, String)>,
}

/// The reason why a cause has no switch in a running VM, and what to do instead. `None`: it has
/// one.
pub fn has_none(cause: Cause) -> Option<Usage> {
    let (why, instead) = match cause {
        Cause::SpinSwitch | Cause::IdleSwitch | Cause::Cache => return None,
        Cause::Contention => (
            "other CPUs or a larger share would have to come from other VMs",
            "change its CPUs or weight as unspin diagnose advises, and diagnose it again",
        ),
        Cause::Ipi => (
            "interrupt delivery is fixed when a VM starts",
            "restart it with other settings (enable_apicv or avic), and diagnose it again",
        ),
        Cause::UserSpin => (
            "the host cannot stop programs of the guest from spinning; only turns help, and they \
             change several causes",
            "unspin set --vm VM mode=hvs coscheduling=vcrd-both, and diagnose it again",
        ),
        Cause::Device | Cause::Msr | Cause::Monitor => (
            "its devices, timers and clocks are fixed when a VM starts",
            "restart it with other settings, as unspin diagnose advises, and diagnose it again",
        ),
    };
    let name = cause.name();
    Some(Usage(format!("--ab {name}: not possible for a running VM: {why}; instead: {instead}")))
}

impl Switch {
    pub fn new(cause: Cause, places: &Places) -> anyhow::Result<Switch> {
        match cause {
            Cause::SpinSwitch => window(places),
            Cause::IdleSwitch => polling(places),
            Cause::Cache => placement(places),
            other => Err(has_none(other).unwrap_or_else(|| Usage(String::new())).into()),
        }
    }
}

/// Switches this VM's window between its present value and the largest.
fn window(places: &Places) -> anyhow::Result<Switch> {
    let module = Module::open_same_version(places.sysfs)
        .context("--ab spin-switch needs the module, which sets the window of the VM")?;
    let control = module.value("window_control").unwrap_or_default();
    if !matches!(control.as_str(), "vmx" | "svm") {
        let why =
            format!("the module cannot set windows on this host: window_control is {control:?}");
        return Err(Cannot(why).into());
    }
    let title = title(places.vm);
    let ids = vms::ids_of(&module, places.host, places.vm)?;
    let id = match &ids[..] {
        [id] => id,
        [] => bail!("{title} is not among the VMs of the module: {:?}", module.ids()?),
        many => bail!("{title} has several VMs, which --ab does not support: {many:?}"),
    };
    has_named_vcpus(places.vm, "so the CPUs that they may use are unknown")?;
    let may_use: BTreeSet<u32> =
        tids(places.vm).flat_map(|tid| places.host.usable_cpus(tid)).collect();
    if places.vm.vcpus.len() > may_use.len() {
        bail!(
            "{title} has {} vCPUs and may use {}: the module leaves the window of such a VM \
             to KVM, because without pause-loop exits its vCPUs would spin while its own lock \
             holders wait",
            places.vm.vcpus.len(),
            counted(may_use.len(), "CPU")
        );
    }
    let files = module.vm(id);
    let of = |file: &str| files.get(file).cloned().unwrap_or_default();
    let mode = of(MODE);
    // B keeps the present code for choosing siblings.
    let b_mode = match mode.as_str() {
        "hvs" | "apples" => Mode::APPLES,
        _ => Mode::APLE,
    };
    let wide = WIDE.to_string();
    // Bounds come before the window, and the mode comes last, so that no value changes another.
    let values = [
        (Number::WINDOW_MAX.file(), wide.as_str()),
        (Number::WINDOW_INIT.file(), &wide),
        (Number::WINDOW_MIN.file(), &wide),
        (Number::DELTA.file(), "0"),
        (MODE, b_mode.name()),
    ];
    let dir = places.sysfs.join("vms").join(id);
    let wanted = values.map(|(file, value)| (file_of(dir.join(file)), value.to_string()));
    Ok(Switch {
        cause: Cause::SpinSwitch,
        a: format!("pause-loop exits as they are (mode {mode})"),
        b: format!(
            "a window of {WIDE} cycles (mode {}): nearly no pause-loop exits",
            b_mode.name()
        ),
        wanted: wanted.into(),
    })
}

/// Switches KVM's polling after HLT. It is a setting of the whole host.
fn polling(places: &Places) -> anyhow::Result<Switch> {
    let others: Vec<String> =
        places.all.iter().filter(|vm| vm.pid != places.vm.pid).map(title).collect();
    if !others.is_empty() {
        bail!(
            "--ab idle-switch sets halt_poll_ns of KVM, which applies to all VMs: it needs a host \
             with 1 VM, and this host also runs {}",
            others.join(", ")
        );
    }
    let path = places.sys.join("module/kvm/parameters/halt_poll_ns");
    let now = match read_kernel_text(&path) {
        Ok(text) => text.trim().to_string(),
        Err(e) => return Err(Cannot(format!("cannot read {}: {e}", path.display())).into()),
    };
    if fs::metadata(&path).is_ok_and(|file| file.permissions().readonly()) {
        let why = format!(
            "{}: this kernel does not allow the change at run time; boot with kvm.halt_poll_ns={} \
             on the kernel command line, and compare",
            path.display(),
            if now == "0" { POLL_NS } else { "0" }
        );
        return Err(Cannot(why).into());
    }
    let (a, b, value) = match now.as_str() {
        "0" => ("no polling after HLT", format!("polling of up to {POLL_NS} ns"), POLL_NS),
        _ => ("polling after HLT as it is", "no polling".to_string(), "0"),
    };
    Ok(Switch {
        cause: Cause::IdleSwitch,
        a: format!("{a} (halt_poll_ns {now})"),
        b: format!("{b} (halt_poll_ns {value})"),
        wanted: vec![(file_of(path), value.to_string())],
    })
}

/// Switches the CPUs of vCPUs between the present ones and one each within a last-level cache.
fn placement(places: &Places) -> anyhow::Result<Switch> {
    let (vm, title) = (places.vm, title(places.vm));
    has_named_vcpus(vm, "so they cannot be placed one by one")?;
    let allowed: Vec<BTreeSet<u32>> = tids(vm).map(|tid| places.host.usable_cpus(tid)).collect();
    let all: BTreeSet<u32> = allowed.iter().flatten().copied().collect();
    let system = places.sys.join("devices/system");
    let Some(caches) = cpus::by_last_level_cache(&system, &all) else {
        return Err(Cannot("the kernel does not report which CPUs share a cache".into()).into());
    };
    let count = vm.vcpus.len();
    if caches.len() == 1 {
        let list = cpus::list(&all);
        return Err(Cannot(format!(
            "the CPUs that {title} may use ({list}) share one last-level cache: nothing to compare"
        ))
        .into());
    }
    let rank = |cpu| cpus::thread_of_core(&system, cpu);
    let Some(placed) = within_one_cache(&caches, &allowed, rank) else {
        let lists: Vec<String> = caches.values().map(cpus::list).collect();
        return Err(Cannot(format!(
            "{title} has {count} vCPUs, and no last-level cache has as many CPUs that they may \
             use; caches: {}",
            lists.join("; ")
        ))
        .into());
    };
    let target = |(tid, cpu): (u32, &u32)| (Target::Affinity { tid }, cpu.to_string());
    let chosen: BTreeSet<u32> = placed.iter().copied().collect();
    let threads = chosen.iter().filter(|cpu| rank(**cpu) > 0).count();
    let shared = match threads {
        0 => String::new(),
        n => format!(", {n} of them second threads of a core"),
    };
    Ok(Switch {
        cause: Cause::Cache,
        a: format!("vCPUs as placed now: CPUs of {} last-level caches", caches.len()),
        b: format!("a CPU per vCPU, all in one cache: {}{shared}", cpus::list(&chosen)),
        wanted: tids(vm).zip(&placed).map(target).collect(),
    })
}

fn has_named_vcpus(vm: &VmProcess, so: &str) -> anyhow::Result<()> {
    if vm.is_all_known() {
        return Ok(());
    }
    let why = format!(
        "{} does not name its vCPU threads, {so}; start QEMU with -name debug-threads=on",
        title(vm)
    );
    Err(Cannot(why).into())
}

fn tids(vm: &VmProcess) -> impl Iterator<Item = u32> + '_ {
    vm.vcpus.iter().map(|vcpu| vcpu.tid)
}

fn file_of(path: PathBuf) -> Target {
    Target::File { path }
}
