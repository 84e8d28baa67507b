// SPDX-License-Identifier: MIT OR Apache-2.0
//! Booting from tests: one emulated computer at a time, skipped where it cannot be. docs/lab.md has
//! the variables that change them.
#![allow(dead_code)]

pub mod area;
pub mod once;
pub mod plans;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unspin_computers::{
    source_tree, Boot, Computer, Go, Kernel, Lab, LabError, ModuleBuild, Patience, Payload, Series,
    BOCHS_TOOLS, QEMU_TOOLS,
};
use unspin_scenario::result::Record;

/// Says a line at once: what tests print is kept back until they fail, and these take minutes.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Lines of a script that went well are shown this far apart; all, if `UNSPIN_VERBOSE` is set.
const SHOWN_EVERY: Duration = Duration::from_secs(15);

/// The program that goes into the computers.
pub fn inside() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_unspin-inside"))
}

/// A program of this workspace, built beside this test. If it is missing, prints that `what` is
/// skipped.
pub fn built(program: &str, what: &str) -> Option<PathBuf> {
    let path = inside().with_file_name(program);
    if !path.is_file() {
        say(&format!("SKIPPED: {what}: cargo build --release -p {program} makes the program"));
        return None;
    }
    Some(path)
}

/// The lab the tests use: `UNSPIN_LAB_DIR`, or that of the command, with the emulator of what is
/// timed if `tools` are for that. `None`, with the reason printed, where `tools` are missing.
pub fn lab(tools: &[&str]) -> Option<Lab> {
    if !has_tools(tools) {
        return None;
    }
    let dir = std::env::var_os("UNSPIN_LAB_DIR").map(PathBuf::from);
    let lab = Lab::open(dir, inside()).unwrap_or_else(|e| panic!("{e}"));
    if tools == BOCHS_TOOLS {
        let made = going(|go| lab.bochs(go));
        say(&made.unwrap_or_else(|e| panic!("{e}")).name());
    }
    Some(lab)
}

/// The kernels to test on: `UNSPIN_KERNELS` (as "6.1 6.12"), or `all`.
pub fn kernels(all: &[Series]) -> Vec<Series> {
    match std::env::var("UNSPIN_KERNELS") {
        Ok(names) => {
            let named = |name| Series::parse(name).unwrap_or_else(|| panic!("no series {name:?}"));
            let named: Vec<Series> = names.split_whitespace().map(named).collect();
            all.iter().copied().filter(|series| named.contains(series)).collect()
        }
        Err(_) => all.to_vec(),
    }
}

/// Whether `tools` are there; says so if not.
pub fn has_tools(tools: &[&str]) -> bool {
    let missing = unspin_computers::missing_tools(tools);
    if missing.is_empty() {
        return true;
    }
    let packages: Vec<String> = missing.into_iter().map(|(_, package)| package).collect();
    say(&format!("SKIPPED: emulated computers need: apt-get install {}", packages.join(" ")));
    false
}

/// A step of the lab, which says what it does.
pub fn going<T>(step: impl FnOnce(&mut Go) -> T) -> T {
    step(&mut Go::new(&AtomicBool::new(false), &mut |text| say(text)))
}

/// The series' kernel with the module built for it.
pub fn kernel(lab: &Lab, series: Series) -> Option<Kernel> {
    prepared(series.name(), going(|go| lab.build(series, go)))
}

/// Boots these kernels, as far as they are tested on and can be had, one after the other, and fails with
/// all that is wrong: `boot` says what is.
pub fn on_kernels(tools: &[&str], all: &[Series], boot: impl Fn(&Lab, &Kernel) -> Vec<String>) {
    let Some(lab) = lab(tools) else { return };
    let of_kernel = |series| Some(boot(&lab, &kernel(&lab, series)?));
    let wrong = kernels(all).into_iter().filter_map(of_kernel).collect::<Vec<_>>().concat();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The tests of one program boot one computer at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static COMPUTER: Mutex<()> = Mutex::new(());
    COMPUTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel; or `None`, with the reason printed, where packages cannot be downloaded.
pub fn prepared<T>(name: &str, kernel: Result<T, LabError>) -> Option<T> {
    match kernel {
        Ok(kernel) => Some(kernel),
        Err(
            e @ (LabError::NoKernelPackage { .. }
            | LabError::Download { .. }
            | LabError::MissingTool { .. }),
        ) => {
            say(&format!("SKIPPED: kernel {name}: {e}"));
            None
        }
        Err(e) => panic!("kernel {name}: {e}"),
    }
}

/// A module of kmod/test, built for a kernel.
pub fn test_module(lab: &Lab, kernel: &Kernel, name: &str) -> Vec<u8> {
    let work = lab.dir().join("kernels").join(format!("{name}-{}", kernel.release));
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work).unwrap_or_else(|e| panic!("{}: {e}", work.display()));
    let source = source_tree().join("core/kmod/test").join(name);
    for file in ["Kbuild", &format!("{name}.c")] {
        let (from, to) = (source.join(file), work.join(file));
        std::fs::copy(&from, to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }
    let module = work.join(format!("{name}.ko"));
    run(Command::new("make").arg("-C").arg(&kernel.headers).arg(format!("M={}", work.display())));
    run(Command::new("strip").arg("--strip-debug").arg(&module));
    read(&module)
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The output of a script.
pub struct Heard {
    pub lines: Vec<String>,
    pub passed: u32,
    pub failed: u32,
    /// The console, as far as it was printed.
    pub console: String,
}

/// What a script gets beside the kernel and itself.
#[derive(Clone)]
pub struct Extras<'a> {
    /// Name in the computer, without a leading slash, and contents.
    pub files: Vec<(String, Vec<u8>)>,
    pub programs: Vec<PathBuf>,
    /// More kernel parameters.
    pub cmdline: &'a str,
    /// Longest silence, CPU time of the emulator.
    pub silence: Duration,
}

/// As stock kernels need it.
pub const NO_EXTRAS: Extras = Extras {
    files: Vec::new(),
    programs: Vec::new(),
    cmdline: "",
    silence: Duration::from_secs(600),
};

/// Boots `computer` with `script`, which makes at least so many checks: one that ends early makes
/// fewer. Returns what is wrong.
pub fn checked(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    script: &str,
    name: &str,
    checks_min: u32,
    extras: Extras,
) -> Vec<String> {
    let heard = script_with(lab, kernel, computer, script, name, extras);
    verdict(kernel.series, &heard, checks_min, &heard.console)
}

/// The same with each of these kernels, as far as they are tested on and can be had. Fails if
/// anything is wrong.
pub fn checks(
    name: &str,
    tools: &[&str],
    all: &[Series],
    computer: &Computer,
    script: &str,
    checks_min: u32,
    extras: Extras,
) {
    on_kernels(tools, all, |lab, kernel| {
        let name = format!("{name}-{}", kernel.series.name());
        checked(lab, kernel, computer, script, &name, checks_min, extras.clone())
    });
}

/// Boots the kernels `all` under QEMU with the command `unspin` and `script`, which makes at least
/// so many checks. Fails if a check of the script fails, or if `judged` rejects its output.
pub fn command_under_qemu(
    name: &str,
    all: &[Series],
    script: &str,
    checks_min: u32,
    judged: impl Fn(&[String]) -> Vec<String>,
) {
    let Some(command) = built("unspin", name) else { return };
    let script = format!("{script}\nfinish");
    on_kernels(QEMU_TOOLS, all, |lab, kernel| {
        let series = kernel.series.name();
        let extras = Extras { programs: vec![command.clone()], ..NO_EXTRAS };
        let computer = Computer::qemu_in_virtual_time(4);
        let name = format!("{name}-{series}");
        let heard = script_with(lab, kernel, &computer, &script, &name, extras);
        let mut wrong = verdict(kernel.series, &heard, checks_min, &heard.console);
        wrong.extend(judged(&heard.lines).into_iter().map(|what| format!("{series}: {what}")));
        wrong
    });
}

/// Boots `computer` with `script` (after inside.sh); says each line with its time. A computer
/// that stalled for no reason of the module's is booted once more, and one whose emulator made flags
/// that no processor has; a computer that does so again has failed.
pub fn script_with(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    script: &str,
    name: &str,
    extras: Extras,
) -> Heard {
    let (heard, outcome) = booted(lab, kernel, computer, script, name, &extras);
    let ended = |heard: Heard, outcome: Result<(), LabError>| {
        // What came first on the console is why; its end is only where.
        let first: Vec<&str> = splats(&heard.console).into_iter().take(10).collect();
        let text = first.join("\n");
        outcome.unwrap_or_else(|e| panic!("{}: {e}\n{text}", kernel.series.name()));
        heard
    };
    if let (Err(e), Some(flags)) = (&outcome, impossible_flags(&heard.console)) {
        say(&format!("{name}: {e}\n{flags}\nThese flags are the emulator's fault; once more"));
        // The same image would take the same way: the boot is deterministic.
        let cmdline = format!("{} unspin.once_more", extras.cmdline);
        let (heard, outcome) =
            booted(lab, kernel, computer, script, name, &Extras { cmdline: &cmdline, ..extras });
        return ended(heard, outcome);
    }
    if outcome.is_err() || !stalled_elsewhere(&heard.console) {
        return ended(heard, outcome);
    }
    for line in stall(&heard.console) {
        say(&format!("{name}: {line}"));
    }
    say(&format!("{name}: the emulator kept an interrupt from a CPU; once more"));
    let (heard, outcome) = booted(lab, kernel, computer, script, name, &extras);
    ended(heard, outcome)
}

/// The line of a crash whose flags have bits that every processor keeps at 0 (22 to 31). QEMU 7.2 makes such flags
/// for some images, in nested VMs' computers; QEMU 10 boots the same images.
pub fn impossible_flags(console: &str) -> Option<&str> {
    const RESERVED: u32 = !0 << 22;
    console.lines().find(|line| {
        let (_, flags) = line.split_once("FLAGS: ").unwrap_or_default();
        let flags = flags.split_whitespace().next().unwrap_or_default();
        u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & RESERVED != 0)
    })
}

/// Whether CPUs stalled and the module was not in any of their stacks. QEMU 7.2 in virtual time now and
/// then keeps an interrupt from a CPU until the stall detector's NMI, which no kernel can do; on a
/// busy host it also gives a CPU no time for longer than the detector waits.
pub fn stalled_elsewhere(console: &str) -> bool {
    let report = stall(console);
    !report.is_empty() && !report.iter().any(|line| line.contains(" [unspin]"))
}

/// The reports of the stall detector on a console: the CPUs, their places and stacks.
pub fn stall(console: &str) -> Vec<&str> {
    const REPORT: usize = 160;
    console
        .lines()
        .skip_while(|line| !line.contains("detected stalls on CPUs"))
        .take(REPORT)
        .collect()
}

fn booted(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    script: &str,
    name: &str,
    extras: &Extras,
) -> (Heard, Result<(), LabError>) {
    let payload = Payload {
        script: format!("{}\n{script}", include_str!("../inside.sh")),
        files: extras.files.clone(),
        copies: Vec::new(),
        programs: [vec![inside()], extras.programs.clone()].concat(),
        module: ModuleBuild::ForTests,
    };
    let boot = Boot {
        kernel,
        computer,
        payload: &payload,
        // A crash ends the boot at once; a log that holds a thousand loads.
        cmdline: &format!("oops=panic panic=-1 log_buf_len=4M {}", extras.cmdline),
        patience: Patience { record: extras.silence, ..Patience::default() },
        stop: &AtomicBool::new(false),
    };
    let start = Instant::now();
    let verbose = std::env::var_os("UNSPIN_VERBOSE").is_some();
    let mut shown = start;
    let mut heard = Heard { lines: Vec::new(), passed: 0, failed: 0, console: String::new() };
    let outcome = lab.boot(&boot, name, &mut |record| match record {
        Record::Log { text } => {
            if verbose || shown.elapsed() >= SHOWN_EVERY || !text.starts_with("ok ") {
                shown = Instant::now();
                say(&format!(
                    "[{:4}s] {}: {text}",
                    start.elapsed().as_secs(),
                    kernel.series.name()
                ));
            }
            heard.lines.push(text);
        }
        Record::End { runs, failed } => (heard.passed, heard.failed) = (runs, failed),
        other => say(&format!("{other:?}")),
    });
    let console = std::fs::read(lab.boot_dir(name).join("console.txt")).unwrap_or_default();
    heard.console = String::from_utf8_lossy(&console).into_owned();
    if outcome.is_err() {
        return (heard, outcome);
    }
    say(&format!(
        "{} on {}: {} passed, {} failed, {} s",
        name,
        kernel.release,
        heard.passed,
        heard.failed,
        start.elapsed().as_secs()
    ));
    (heard, outcome)
}

/// Cycles of a test that repeats itself: `UNSPIN_CYCLES`, or as many as usual.
pub fn cycles(usual: u32) -> u32 {
    match std::env::var("UNSPIN_CYCLES") {
        Ok(text) => text.parse().expect("UNSPIN_CYCLES is a number"),
        Err(_) => usual,
    }
}

/// Failures of a boot: checks that failed, checks that are missing, and kernel warnings on
/// `console`, the part of the console where none is expected; then the end of the kernel's log.
pub fn verdict(series: Series, heard: &Heard, checks_min: u32, console: &str) -> Vec<String> {
    let mut wrong: Vec<String> =
        heard.lines.iter().filter(|line| line.starts_with("FAILED")).cloned().collect();
    wrong.extend(splats(console).into_iter().map(str::to_string));
    let made = heard.passed + heard.failed;
    if made < checks_min {
        wrong.push(format!("only {made} checks were made"));
    }
    if heard.failed > 0 {
        wrong.push(format!("{} checks failed", heard.failed));
    }
    if !wrong.is_empty() {
        let places = stall(console).into_iter().filter(|line| line.contains("RIP: "));
        wrong.extend(places.map(str::to_string));
        wrong.extend(heard.lines.iter().filter(|line| line.starts_with("log: ")).cloned());
    }
    wrong.into_iter().map(|what| format!("{}: {what}", series.name())).collect()
}

/// Lines of a console that no healthy kernel prints.
pub fn splats(console: &str) -> Vec<&str> {
    const MARKS: &[&str] = &[
        "BUG:",
        "WARNING: ",
        "Oops",
        "Call Trace",
        "general protection",
        "lockup",
        "detected stalls",
        "self-detected stall",
        "hung task",
        "blocked for more than",
        "Kernel panic",
        "refcount_t:",
        "corruption",
        "scheduling while atomic",
        "ODEBUG: ",
        "sleeping function called",
    ];
    console.lines().filter(|line| MARKS.iter().any(|mark| line.contains(mark))).collect()
}
