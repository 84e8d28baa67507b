// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin spinners`: where vCPUs spin, and where the host interrupts them, by guest symbol.

mod show;

use crate::exit::{Cannot, Usage};
use crate::fit::terminal_width;
use crate::forward::lab_command;
use crate::host::{is_root, TESTED};
use crate::progress::Passing;
use crate::span::{seconds, stopped_by_signals};
use crate::{out, vms};
use anyhow::bail;
use show::{Document, Names, Watched};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use unspin_diagnosis::spinners::{entries, Error, Ready, Samples, Symbols, TRACEFS};
use unspin_host::{Host, VmProcess};

const HELP: &str = "\
Prints 2 tables per VM: where vCPUs spun for so long that they left the guest (pause-loop exits), and \
where interrupts of the host stopped them (about one sample per timer tick of a running vCPU).

The host kernel counts the exits. Nothing is installed in the guest, and the module is optional. Exits are \
slightly slower while it counts. Requires root.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VM: any of its names, its UUID or VMID, or PID-N from `unspin status`. KIND:NAME selects
    /// the kind of name, as in vmid:104, pid:4242 or name:web1. Default: all VMs.
    #[arg(value_name = "VM")]
    vm: Option<OsString>,
    /// How long to count, in seconds, 0.1 to 3600.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Symbols of the guest kernel: a copy of its /proc/kallsyms, read as root since its last boot.
    #[arg(long, value_name = "FILE", conflicts_with = "guest_kernel")]
    kallsyms: Option<PathBuf>,
    /// Take the symbols from Debian's kernel package of this series: 6.1, 6.12 or 7.3. The guest
    /// must run that kernel, started with -kernel or with nokaslr.
    #[arg(long, value_name = "SERIES")]
    guest_kernel: Option<String>,
    /// Print JSON, with all values.
    #[arg(long)]
    json: bool,
    /// Directory for the kernels of --guest-kernel [default: out/lab; for an installed unspin
    /// ~/.cache/unspin/lab, for root /var/cache/unspin/lab].
    #[arg(long, value_name = "DIR")]
    lab_dir: Option<PathBuf>,
    #[arg(long, hide = true, default_value = TRACEFS)]
    tracefs: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    // Report errors of the command line first. A pipe given as a file can be interrupted.
    let kallsyms = args.kallsyms.as_deref().map(of_file).transpose()?;
    let series = args.guest_kernel.as_deref().map(series).transpose()?;
    if !is_root() {
        return Err(Cannot("only root may see where VMs spin: sudo unspin spinners".into()).into());
    }
    // A second signal does not end the command either, because its counting would stay in the
    // kernel.
    let stop = stopped_by_signals()?;
    let ready = Ready::new(&args.tracefs).map_err(cannot)?;
    let host = Host::default();
    let vms = chosen(args, &host)?;
    let names = match series {
        Some(series) => Some(of_series(args, series)?),
        None => kallsyms,
    };
    let threads: Vec<Vec<i32>> = vms.iter().map(|vm| threads(&host, vm)).collect();
    let samples = collect(args, ready, &threads.concat(), &stop)?;
    let watched: Vec<Watched> = vms
        .iter()
        .zip(&threads)
        .map(|(vm, threads)| Watched {
            vm,
            threads: threads.len(),
            samples: samples.of_threads(threads),
        })
        .collect();
    let document = Document::new(args.seconds, names.as_ref(), samples.dropped, &watched);
    for warning in document.warnings(names.as_ref()) {
        say!("unspin: {warning}");
    }
    match args.json {
        true => out::json(&document),
        false => out::print(&document.text(terminal_width())),
    }
}

fn series(name: &str) -> anyhow::Result<&'static str> {
    TESTED.into_iter().find(|series| *series == name).ok_or_else(|| {
        let known = TESTED.join(", ");
        let more = "for another kernel use --kallsyms FILE";
        Usage(format!("--guest-kernel {name:?} is not supported; allowed: {known}; {more}")).into()
    })
}

fn of_file(path: &Path) -> anyhow::Result<Names> {
    let symbols = Symbols::read(path).map_err(|e| Usage(e.to_string()))?;
    Ok(Names::of_file(symbols, path))
}

/// As in unspin-lab, which fetches the kernel.
fn of_series(args: &Args, series: &'static str) -> anyhow::Result<Names> {
    let mut lab = lab_command();
    lab.args(["lab", "symbols", series]);
    if let Some(dir) = &args.lab_dir {
        lab.arg("--lab-dir").arg(dir);
    }
    let took = lab.stderr(Stdio::inherit()).output();
    let took = took.map_err(|e| Cannot(format!("--guest-kernel needs unspin-lab: {e}")))?;
    if !took.status.success() {
        bail!("unspin-lab lab symbols {series}: {}", took.status);
    }
    let name = format!("the symbols of Debian's kernel {series}");
    let symbols = Symbols::parse(&String::from_utf8_lossy(&took.stdout), Path::new(&name))?;
    Ok(Names::of_series(symbols, series))
}

fn chosen(args: &Args, host: &Host) -> anyhow::Result<Vec<VmProcess>> {
    vms::say_unseen(host);
    let all = vms::processes(host)?;
    match &args.vm {
        Some(given) => Ok(vec![vms::find_process(all, host, given)?]),
        None if all.is_empty() => bail!("no VM runs on this host"),
        None => Ok(all),
    }
}

/// The threads of its vCPUs. If not all are known, all its threads: only vCPUs leave a guest.
fn threads(host: &Host, vm: &VmProcess) -> Vec<i32> {
    let vcpus: Vec<u32> = match vm.is_all_known() {
        true => vm.vcpus.iter().map(|vcpu| vcpu.tid).collect(),
        false => host.threads(vm.pid),
    };
    vcpus.into_iter().filter_map(|tid| i32::try_from(tid).ok()).collect()
}

fn collect(
    args: &Args,
    ready: Ready,
    threads: &[i32],
    stop: &AtomicBool,
) -> anyhow::Result<Samples> {
    let mut passing = Passing::new(args.seconds, "counting exits");
    let room = entries(threads.len(), args.seconds);
    ready
        .start(threads, room)
        .and_then(|collector| {
            collector.wait(args.seconds, stop, &mut |passed| passing.at(passed))?;
            collector.finish()
        })
        .map_err(cannot)
}

/// A missing capability of this computer is not a failure of the command.
fn cannot(e: Error) -> anyhow::Error {
    match e.is_of_this_computer() {
        true => Cannot(e.to_string()).into(),
        false => e.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    #[test]
    fn vcpus_are_watched_and_without_names_all_threads() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        let thread = |tid: u32, comm: &str| fake.write(&format!("proc/41/task/{tid}/comm"), comm);
        thread(41, "qemu-system-x86");
        thread(44, "worker");
        let host = fake.host();
        let watched = || threads(&host, &host.vm_process(41).unwrap());
        assert_eq!(watched(), [41, 44]);
        thread(43, "CPU 1/KVM");
        thread(42, "CPU 0/KVM");
        assert_eq!(watched(), [42, 43]);
    }

    #[test]
    fn what_the_kernel_lacks_is_not_what_went_wrong() {
        let lacks = cannot(Error::NoHistograms);
        assert!(lacks.downcast_ref::<Cannot>().is_some());
        let failed = cannot(Error::Interrupted);
        assert!(failed.downcast_ref::<Cannot>().is_none());
        assert_eq!(failed.to_string(), "interrupted");
    }
}
