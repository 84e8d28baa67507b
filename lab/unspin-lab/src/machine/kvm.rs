// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `kvm`: the agent runs the plan on this host, with the module loaded.

use super::guests::{self, About};
use super::{lab, Job, Machine, Refusal, Sink, Wish};
use crate::detect;
use crate::exit::Cannot;
use crate::host;
use crate::sysfs::{root, Module};
use crate::vms::{self, Vm};
use anyhow::{bail, Context};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unspin_agent::EXIT_CANNOT;
use unspin_host::Host;
use unspin_scenario::plan::{LinuxFiles, Plan};
use unspin_scenario::result::Record;
use unspin_text::counted;
use unspin_vmm::ends_with_this_thread;

pub struct Kvm {
    release: String,
    /// Directory of kernels of Linux guests.
    lab_dir: Option<PathBuf>,
    _loaded: Option<Loaded>,
}

/// How the module gets into the kernel.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    IsLoaded,
    BuildAndLoad,
}

/// Facts that decide whether plans can run on a host.
struct ThisHost<'a> {
    root: &'a Path,
    release: &'a str,
    is_root: bool,
    cpus: u32,
}

/// The way to load the module on `host`, or why plans cannot run there.
fn way(host: &ThisHost, wish: &Wish) -> Result<Way, String> {
    detect::kvm(host.root)?;
    if host.cpus < wish.pcpus {
        return Err(format!(
            "the scenario needs {}, and this host has {}",
            counted(wish.pcpus, "CPU"),
            host.cpus
        ));
    }
    let module = host.root.join("sys/module/unspin");
    if module.is_dir() {
        let module = Module::open_same_version(&module).map_err(|e| format!("{e:#}"))?;
        let host = Host::at(&host.root.join("proc"));
        let vms = vms::all(&module, &host).map_err(|e| format!("{e:#}"))?;
        nobody_else(vms.iter().map(Vm::to_string).collect())?;
        return Ok(Way::IsLoaded);
    }
    if !wish.load {
        return Err(
            "the module is not loaded: sudo unspin load --build, or use bench --load".into()
        );
    }
    if let Some(why) = host::obstacle(host.root, host.release, host.is_root) {
        return Err(format!("the module is not loaded, and cannot be loaded: {why}"));
    }
    let processes = Host::at(&host.root.join("proc")).vm_processes();
    let processes = processes.map_err(|e| format!("cannot look for VMs in /proc: {e}"))?;
    nobody_else(processes.iter().map(|vm| vm.title().to_string()).collect())?;
    Ok(Way::BuildAndLoad)
}

fn nobody_else(vms: Vec<String>) -> Result<(), String> {
    if vms.is_empty() {
        return Ok(());
    }
    Err(format!(
        "other VMs run on this host ({}), and a bench would change their settings; stop them first",
        vms.join(", ")
    ))
}

/// The module, loaded for one bench. Dropping it unloads the module.
struct Loaded;

impl Loaded {
    fn new(release: &str, stop: &AtomicBool) -> anyhow::Result<Loaded> {
        let file = host::build(release, stop, &|text| say!("{text}"))?;
        say!("loading the module");
        host::insert(Some(&file))?;
        Ok(Loaded)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        say!("unloading the module");
        if let Err(e) = host::remove() {
            say!("the module stays loaded: {e:#}");
        }
    }
}

impl Kvm {
    /// This host, whose files are under `root`. Loads the module if it is not loaded and `wish`
    /// allows it.
    pub fn new(root: &Path, wish: &Wish) -> anyhow::Result<Kvm> {
        let release = host::release(root)?;
        let cpus = unspin_agent::online_cpus().unwrap_or(1);
        let host = ThisHost { root, release: &release, is_root: host::is_root(), cpus };
        let loaded = match way(&host, wish).map_err(Cannot)? {
            Way::IsLoaded => None,
            Way::BuildAndLoad => Some(Loaded::new(&release, wish.stop)?),
        };
        let lab_dir = wish.lab_dir.map(Path::to_path_buf);
        Ok(Kvm { release, lab_dir, _loaded: loaded })
    }
}

impl Machine for Kvm {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn default_kernel(&self) -> &str {
        &self.release
    }

    fn boots(&self) -> bool {
        false
    }

    fn check_plan(&self, plan: &Plan) -> Result<(), (&'static str, Refusal)> {
        guests::check_kernels(plan)
    }

    fn image(&self, _: &AtomicBool) -> anyhow::Result<String> {
        // The note identifies a build, but only root may read it; otherwise use the hash of the
        // sources.
        let module = ["notes/.note.gnu.build-id", "srcversion", "version"]
            .iter()
            .find_map(|name| std::fs::read(root().join(name)).ok());
        let mut code = module.unwrap_or_default();
        code.extend(unspin_computers::guests_hash().map_err(lab::explain)?.into_bytes());
        super::job::program_hash(&code)
    }

    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()> {
        let (plan, about) = self.with_guests(job)?;
        (job.say)("starting the agent");
        let file = job.dir.join("plan.json");
        unspin_text::write_atomic(&file, plan.to_json().as_bytes())?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut agent = Command::new(program);
        agent.arg("agent").arg(&file).args(["--out", "stdout"]);
        agent.stdin(Stdio::null()).stdout(Stdio::piped());
        ends_with_this_thread(&mut agent, libc::SIGTERM);
        let mut agent = agent.spawn().context("cannot start the agent")?;
        let read = read_records(&mut agent, job.stop, &mut |mut record| {
            about.tell(&mut record);
            sink(record)
        });
        if read.is_err() {
            terminate(&agent);
        }
        let status = agent.wait().context("cannot wait for the agent")?;
        let ended = read?;
        if status.code() == Some(EXIT_CANNOT) {
            return Err(
                Cannot("machine kvm: the agent cannot run the plan on this host".into()).into()
            );
        }
        if !ended && !job.stop.load(Ordering::Relaxed) {
            bail!("the agent ended before the end of its plan ({status})");
        }
        Ok(())
    }
}

impl Kvm {
    /// The job's plan, with the places of its Linux guests' files, and the facts about them. QEMU
    /// is the host's own.
    fn with_guests(&self, job: &Job) -> anyhow::Result<(Plan, About)> {
        let mut plan = job.plan.clone();
        if plan.runs.iter().all(|run| guests::of(run).next().is_none()) {
            return Ok((plan, About::default()));
        }
        let lab = lab::lab(self.lab_dir.as_deref())?;
        let parts = guests::parts(
            &lab,
            &plan,
            &mut unspin_computers::Go::new(job.stop, &mut |text| (job.say)(text)),
        )?;
        let kernels = parts.kernels.into_iter();
        let qemu = "qemu-system-x86_64";
        plan.linux = Some(LinuxFiles {
            qemu: qemu.into(),
            firmware: None,
            kernels: kernels.map(|(name, file)| (name, file.display().to_string())).collect(),
            initramfs: parts.initramfs.display().to_string(),
            cmdline: String::new(),
            patience_s: 60,
        });
        Ok((plan, parts.about.with_qemu(guests::qemu_version(qemu))))
    }
}

/// Passes the agent's records on. Returns whether the last one was End.
fn read_records(agent: &mut Child, stop: &AtomicBool, sink: &mut Sink) -> anyhow::Result<bool> {
    let Some(stdout) = agent.stdout.take() else {
        bail!("the agent has no output");
    };
    let done = AtomicBool::new(false);
    let agent = &*agent;
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    terminate(agent);
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let read = pass_on(BufReader::new(stdout), sink);
        done.store(true, Ordering::Relaxed);
        read
    })
}

fn pass_on(lines: impl BufRead, sink: &mut Sink) -> anyhow::Result<bool> {
    let mut ended = false;
    for line in lines.lines() {
        let line = line.context("cannot read from the agent")?;
        let record = Record::from_json(line.as_bytes())
            .with_context(|| format!("the agent wrote a line that is not a record: {line:.200}"))?;
        ended = matches!(record, Record::End { .. });
        sink(record)?;
    }
    Ok(ended)
}

/// Asks the agent to end its VMs and itself.
fn terminate(agent: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(agent.id()) {
        // SAFETY: kill only sends a signal. The child has not been waited for, so the pid is still
        // its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::emulator::Timed;
    use std::os::unix::process::ExitStatusExt;
    use unspin_scratch::Scratch;

    const RELEASE: &str = "6.12.43+deb13-amd64";

    /// A host that consists of files: PLE, and headers for its kernel.
    struct Fake(Scratch);

    impl Fake {
        fn new() -> Fake {
            let fake = Fake(Scratch::with(&[
                ("proc/cpuinfo", "flags : vmx\nvmx flags : ple\n"),
                ("dev/kvm", ""),
                ("sys/module/kvm_intel/parameters/ple_gap", "128\n"),
            ]));
            let headers = format!("lib/modules/{RELEASE}/build/include/generated/utsrelease.h");
            fake.file(&headers, &format!("#define UTS_RELEASE \"{RELEASE}\"\n"));
            fake
        }

        /// A process that has a VM.
        fn vm(&self, pid: u32, args: &[&str]) {
            self.0.vm(pid, args);
            self.file(&format!("proc/{pid}/task/{pid}/comm"), "qemu-system-x86\n");
        }

        fn file(&self, path: &str, text: &str) {
            self.0.write(path, text);
        }

        fn way(&self, load: bool, change: impl Fn(&mut ThisHost)) -> Result<Way, String> {
            let mut host = ThisHost { root: &self.0, release: RELEASE, is_root: true, cpus: 4 };
            change(&mut host);
            let stop = AtomicBool::new(false);
            way(
                &host,
                &Wish { pcpus: 4, load, lab_dir: None, emulator: Timed::default(), stop: &stop },
            )
        }
    }

    #[test]
    fn a_capable_host_loads_the_module_where_it_may() {
        let fake = Fake::new();
        assert_eq!(fake.way(true, |_| {}), Ok(Way::BuildAndLoad));
        let why = |load, change: fn(&mut ThisHost)| fake.way(load, change).unwrap_err();
        assert!(why(false, |_| {}).contains("unspin load --build"));
        assert!(why(true, |h| h.release = "6.8.0-31-generic")
            .contains("headers of this kernel are not installed"));
        assert!(why(true, |h| h.release = "6.12.1-other").contains("headers"));
        assert!(why(true, |h| h.is_root = false).contains("only root"));
        assert!(
            why(true, |h| h.cpus = 2).contains("the scenario needs 4 CPUs, and this host has 2")
        );
        fake.file("sys/kernel/security/lockdown", "none integrity [confidentiality]");
        assert!(why(true, |_| {}).contains("lockdown"));
        fake.file("sys/kernel/security/lockdown", "[none] integrity confidentiality");
        fake.vm(412, &["qemu-system-x86_64", "-name", "guest=web1"]);
        assert!(why(true, |_| {}).contains("other VMs run on this host (web1)"));
        fake.file("proc/cpuinfo", "flags : fpu\n");
        assert!(why(true, |_| {}).contains("neither VT-x nor AMD-V"));
    }

    /// The thread stands for the program, which is what ends in practice.
    #[test]
    fn what_is_started_ends_with_who_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("60");
            ends_with_this_thread(&mut command, libc::SIGTERM);
            command.spawn().unwrap()
        };
        let mut orphan = std::thread::spawn(start).join().unwrap();
        assert_eq!(orphan.wait().unwrap().signal(), Some(libc::SIGTERM));
        let mut waited_for = start();
        assert!(waited_for.try_wait().unwrap().is_none());
        terminate(&waited_for);
        waited_for.wait().unwrap();
    }

    #[test]
    fn a_loaded_module_serves_unless_others_have_vms() {
        let fake = Fake::new();
        fake.file("sys/module/unspin/default/mode", "off\n");
        fake.file("sys/module/unspin/version", "0.0.1\n");
        assert!(fake.way(false, |_| {}).unwrap_err().contains("has version 0.0.1, this command"));
        fake.file("sys/module/unspin/version", env!("CARGO_PKG_VERSION"));
        for load in [false, true] {
            assert_eq!(fake.way(load, |h| h.is_root = false), Ok(Way::IsLoaded));
        }
        fake.file("sys/module/unspin/vms/412-0/mode", "off\n");
        assert!(fake.way(true, |_| {}).unwrap_err().contains("412-0"));
    }
}
