// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `emulated`: a computer with VT-x and PLE, emulated by Bochs, or with SVM and a pause filter,
//! emulated by QEMU (lab/computers).

use super::emulator::Timed;
use super::guests::{self, About};
use super::lab::{explain, open, series};
use super::takes::{self, Takes};
use super::{Job, Machine, Refusal, Sink, Wish};
use crate::exit::Usage;
use std::sync::atomic::{AtomicBool, Ordering};
use unspin_computers::{Computer, Emulator, Go, Lab, LabError, Program, Series, Work};
use unspin_scenario::plan::{LinuxFiles, Plan, Run};
use unspin_scenario::result::Record;

/// Mitigations of processor vulnerabilities take much of an emulated computer's time. With rdrand and
/// rdseed boots would not be reproducible, because Bochs takes their random numbers from this
/// computer.
const CMDLINE: &str = "mitigations=off clearcpuid=rdrand,rdseed";
/// Time limit in emulated seconds. Guests boot within 5. A spinning guest would take more of this
/// computer's time than the lab waits for a record.
const PATIENCE_S: u64 = 15;

pub struct Emulated {
    lab: Lab,
    timed: Timed,
}

impl Emulated {
    pub fn new(wish: &Wish) -> anyhow::Result<Emulated> {
        Ok(Emulated { lab: open(wish.lab_dir)?, timed: wish.emulator })
    }

    fn program(&self, go: &mut Go) -> anyhow::Result<Program> {
        self.lab.program(self.timed.emulator, go).map_err(explain)
    }
}

impl Machine for Emulated {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn default_kernel(&self) -> &str {
        Series::V6_12.name()
    }

    fn check_kernel(&self, name: &str) -> Result<(), Refusal> {
        series(name).map(|_| ())
    }

    fn check_pcpus(&self, pcpus: u32) -> Result<(), Refusal> {
        match self.timed.has(pcpus) {
            true => Ok(()),
            false => Err(Refusal {
                message: format!("no emulated computer can have {pcpus} pCPUs"),
                allowed: self.timed.cpus(),
            }),
        }
    }

    fn check_plan(&self, plan: &Plan) -> Result<(), (&'static str, Refusal)> {
        guests::check_kernels(plan)?;
        if self.timed.emulator == Emulator::QemuAmd && has_linux_guests(plan) {
            return Err((
                "vm",
                Refusal {
                    message: "Linux guests, which do not boot on the emulated AMD processor".into(),
                    allowed: "the bench guest, or --emulator bochs".into(),
                },
            ));
        }
        if memory_mib(plan) <= Computer::MEMORY_MAX_MIB {
            return Ok(());
        }
        let own = Computer::bochs(1).memory_mib;
        Err((
            "vm",
            Refusal {
                message: format!(
                    "the Linux guests of a run need {} MiB together",
                    guests_mib(plan)
                ),
                allowed: format!("{} MiB on machine emulated", Computer::MEMORY_MAX_MIB - own),
            },
        ))
    }

    fn takes(&self, plan: &Plan) -> Option<Takes> {
        Some(takes::of(self.timed.emulator, plan))
    }

    fn image(&self, stop: &AtomicBool) -> anyhow::Result<String> {
        self.program(&mut Go::new(stop, &mut |text| say!("{text}")))?;
        let hash = self.lab.image_hash(self.timed.emulator).map_err(explain)?;
        let Computer { emulator, quantum, pause, topology, module, .. } = self.timed.computer(1);
        let mut settings = match emulator {
            Emulator::QemuAmd => format!("quantum={quantum},pause={pause}"),
            _ => String::new(),
        };
        if let Some(topology) = topology {
            settings += &format!(",topology={topology}");
        }
        if !module {
            settings += ",module=no";
        }
        Ok(match settings.is_empty() {
            true => hash,
            false => unspin_computers::sha256(&[hash.as_bytes(), settings.as_bytes()]),
        })
    }

    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()> {
        let kernel = self
            .lab
            .build(
                series(job.kernel).map_err(Usage::from)?,
                &mut Go::new(job.stop, &mut |text| (job.say)(text)),
            )
            .map_err(explain)?;
        if job.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted.into());
        }
        let (work, about) = self.with_guests(job)?;
        let memory_mib = memory_mib(&work.plan);
        let computer = Computer { memory_mib, ..self.timed.computer(work.plan.host.pcpus) };
        let program = self.program(&mut Go::new(job.stop, &mut |text| (job.say)(text)))?;
        (job.say)(&format!("booting {}", kernel.release));
        let mut lost = None;
        let name = job.dir.file_name().unwrap_or(job.dir.as_os_str()).to_string_lossy();
        let booted =
            self.lab.boot_plan(&kernel, &computer, &work, &name, job.stop, &mut |mut r| {
                describe(&mut r, &computer, &program);
                about.tell(&mut r);
                if let Err(e) = sink(r) {
                    // If records cannot be written, do not go on making them.
                    job.stop.store(true, Ordering::Relaxed);
                    lost.get_or_insert(e);
                }
            });
        match (lost, booted) {
            (Some(e), _) => Err(e),
            (None, booted) => booted.map_err(explain),
        }
    }
}

impl Emulated {
    /// The job's plan, with the places of its Linux guests' files in the computer, and these files.
    fn with_guests(&self, job: &Job) -> anyhow::Result<(Work, About)> {
        let mut plan = job.plan.clone();
        if !has_linux_guests(&plan) {
            return Ok((plan.into(), About::default()));
        }
        let mut say = |text: &str| (job.say)(text);
        let mut go = Go::new(job.stop, &mut say);
        let qemu = self.lab.qemu(&mut go).map_err(explain)?;
        let mut copies = qemu.files;
        let parts = guests::parts(&self.lab, &plan, &mut go)?;
        let kernels = parts.kernels.into_iter().map(|(series, file)| {
            let inside = format!("guests/vmlinux-{series}");
            copies.push((inside.clone(), file));
            (series, format!("/{inside}"))
        });
        let kernels = kernels.collect();
        let initramfs = "guests/initramfs".to_string();
        copies.push((initramfs.clone(), parts.initramfs));
        plan.linux = Some(LinuxFiles {
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            firmware: Some("/usr/share/qemu".into()),
            kernels,
            initramfs: format!("/{initramfs}"),
            cmdline: CMDLINE.into(),
            patience_s: PATIENCE_S,
        });
        Ok((Work { plan, copies }, parts.about.with_qemu(Some(qemu.version))))
    }
}

fn has_linux_guests(plan: &Plan) -> bool {
    plan.runs.iter().any(|run| guests::of(run).next().is_some())
}

/// The largest amount of memory that Linux guests of one run need together.
fn guests_mib(plan: &Plan) -> u32 {
    let of_run = |run: &Run| guests::of(run).map(|linux| linux.guest.memory_mib).sum::<u32>();
    plan.runs.iter().map(of_run).max().unwrap_or(0)
}

/// The memory of the computer: its own, and its guests'.
fn memory_mib(plan: &Plan) -> u32 {
    let own = Computer::bochs(1).memory_mib;
    match guests_mib(plan) {
        0 => own,
        guests => (guests + own).next_multiple_of(64),
    }
}

fn describe(record: &mut Record, computer: &Computer, program: &Program) {
    if let Record::Begin(b) = record {
        b.settings.insert("emulator".to_string(), described(computer, program));
    }
}

/// Everything about an emulated computer that may affect figures.
fn described(computer: &Computer, program: &Program) -> String {
    let Computer { cpus, ips, quantum, pause, memory_mib, .. } = computer;
    let mut text = format!(
        "{}, {} processor, {cpus} CPUs, {ips} instructions a second, {memory_mib} MiB, turns of \
         {quantum} instructions",
        program.name(),
        program.vendor()
    );
    if computer.emulator == Emulator::QemuAmd {
        text += &format!(", PAUSE takes {pause}");
    }
    if let Some(topology) = computer.topology {
        text += &format!(", sockets x cores x threads {topology}");
    }
    if !computer.module {
        text += ", without the module";
    }
    match program.patches() {
        none if none.is_empty() => text,
        patches => format!("{text}, patches {patches}"),
    }
}
