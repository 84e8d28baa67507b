// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a host can have the module, and why.

use crate::detect::{self, Lacks};
use crate::distribution::Distribution;
use crate::host;
use crate::kernel::{self, Config, UNSUPPORTED};
use crate::sysfs::Module;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use unspin_host::place::under;
use unspin_text::fit::wrap;

/// The functions that the module redirects, what needs them, and the verdict if one is not
/// available.
const HOOKED: [(&str, &str, Verdict); 2] = [
    ("kvm_vcpu_on_spin", "any VM is in a mode other than off", Verdict::Cannot),
    ("xfer_to_guest_mode_handle_work", "VMs have turns", Verdict::CanWith),
];

/// Reasons for which the processor does not matter.
const NO_KVM: [&str; 2] = ["architecture", "no-kvm"];

/// What to look at if the package unspin-dkms is installed without the module.
const NOT_BUILT: &str = "dkms has not built it: dkms status, /var/lib/dkms/unspin";

/// From best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The module loads and works.
    Can,
    /// It works with limitations: something has to be done first, a part does not work, or the kernel
    /// is untested.
    CanWith,
    /// It does not load, or has no effect.
    Cannot,
}

/// A fact about the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// A stable identifier for programs.
    pub id: &'static str,
    /// The verdict that follows from this reason alone.
    pub verdict: Verdict,
    /// A sentence for people.
    pub text: String,
}

/// The verdict about a host, as `unspin load --check --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    schema: u32,
    /// The worst of the reasons.
    pub verdict: Verdict,
    /// The decisive ones come first.
    pub reasons: Vec<Reason>,
}

/// Where the module comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// It was installed for this kernel.
    Installed,
    /// A given file.
    File,
    /// It is built from the sources.
    Build,
}

impl Judgement {
    /// Judges the host under `root`, whose kernel is `release`.
    pub fn of(root: &Path, release: &str, from: From) -> Judgement {
        let mut all = Reasons(Vec::new());
        let loaded = under(root, "sys/module/unspin");
        if loaded.is_dir() {
            all.of_loaded(root, &loaded);
        } else {
            all.of_unloaded(root, release, from);
        }
        let mut reasons = all.0;
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.verdict));
        let verdict = reasons.first().map_or(Verdict::Can, |worst| worst.verdict);
        Judgement { schema: 1, verdict, reasons }
    }

    /// The verdict about a host that does not show its kernel's release, with the reason.
    pub fn of_unknown(why: String) -> Judgement {
        let reasons = vec![reason("no-release", Verdict::Cannot, why)];
        Judgement { schema: 1, verdict: Verdict::Cannot, reasons }
    }

    /// The reason why the host cannot have the module; `None` if it can.
    pub fn obstacle(&self) -> Option<&Reason> {
        self.reasons.first().filter(|reason| reason.verdict == Verdict::Cannot)
    }

    /// For people: the verdict, and a paragraph per reason, in lines of at most `width` cells.
    pub fn text(&self, width: usize) -> String {
        let (head, rest) = match (self.verdict, self.reasons.split_first()) {
            (Verdict::Cannot, Some((first, rest))) => {
                (format!("this host cannot have the module: {}", first.text), rest)
            }
            (Verdict::CanWith, _) => {
                ("this host can have the module, with remarks".into(), &self.reasons[..])
            }
            _ => ("this host can have the module".into(), &self.reasons[..]),
        };
        let notes = rest.iter().map(|reason| note(&reason.text, width));
        format!("{}\n{}", wrap(&head, width, "").join("\n"), notes.collect::<String>())
    }
}

/// A remark, in lines of at most `width` cells.
pub fn note(text: &str, width: usize) -> String {
    wrap(text, width, "note: ").join("\n") + "\n"
}

fn reason(id: &'static str, verdict: Verdict, text: impl Into<String>) -> Reason {
    Reason { id, verdict, text: text.into() }
}

/// The reasons so far.
struct Reasons(Vec<Reason>);

impl Reasons {
    fn add(&mut self, id: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(reason(id, verdict, text));
    }

    /// A module that runs is not kept from that, but something may keep it from having an effect.
    fn of_loaded(&mut self, root: &Path, module: &Path) {
        match Module::open_same_version(module) {
            Ok(_) => self.add("loaded", Verdict::Can, "the module is already loaded"),
            Err(e) => self.add("version", Verdict::CanWith, format!("{e:#}")),
        }
        self.of_processor(root);
        self.of_livepatches(root);
        for reason in &mut self.0 {
            reason.verdict = reason.verdict.min(Verdict::CanWith);
        }
    }

    fn of_unloaded(&mut self, root: &Path, release: &str, from: From) {
        let config = Config::of(root, release);
        let too_old = host::too_old(release);
        self.0.extend(too_old.map(|text| reason("kernel-too-old", Verdict::Cannot, text)));
        self.of_architecture(root, &config);
        self.of_kernel(root, release, &config);
        self.of_kvm(root, &config);
        self.of_settings(root);
        if self.0.iter().all(|reason| !NO_KVM.contains(&reason.id)) {
            self.of_processor(root);
        }
        self.of_redirection(root);
        // Give no advice if it cannot help.
        if self.0.iter().all(|reason| reason.verdict != Verdict::Cannot) {
            self.of_source(root, release, &config, from);
        }
        let untested = host::untested(release);
        self.0.extend(untested.map(|text| reason("untested", Verdict::CanWith, text)));
        let taint = "an out-of-tree module taints the kernel (flag O, and E if it is unsigned) \
                     until the next boot";
        self.add("taint", Verdict::Can, taint);
    }

    fn of_architecture(&mut self, root: &Path, config: &Config) {
        let arch = read(root, "proc/sys/kernel/arch");
        let arch = match arch.trim() {
            "" | "x86_64" if config.is_off("CONFIG_64BIT") => "32-bit",
            "" | "x86_64" => return,
            arch => arch,
        };
        let text = format!("the module needs an x86-64 kernel, this one is {arch}");
        self.add("architecture", Verdict::Cannot, text);
    }

    /// Kernels that the module never supports.
    fn of_kernel(&mut self, root: &Path, release: &str, config: &Config) {
        let version = read(root, "proc/sys/kernel/version") + &read(root, "proc/version");
        let is_realtime = read(root, "sys/kernel/realtime").trim() == "1"
            || ["PREEMPT_RT", "PREEMPT RT"].iter().any(|word| version.contains(word));
        let has_no_types = is_kvm_a_module(root)
            && under(root, "sys/kernel").is_dir()
            && !under(root, "sys/kernel/btf/kvm").exists();
        let is_clang = !config.is_shown() && version.contains("clang version");
        // CachyOS calls some of its kernels so.
        let is_lto = is_clang && release.split(['-', '+', '_', '.']).any(|part| part == "lto");
        for kind in &UNSUPPORTED {
            let is_seen = match kind.id {
                "realtime" => is_realtime,
                "lto" => is_lto,
                "btf" => has_no_types,
                _ => false,
            };
            if is_seen || config.is(kind) {
                let text = format!("this kernel {}, which the module does not support", kind.what);
                self.add(kind.id, Verdict::Cannot, text);
            }
        }
        if is_clang && !is_lto {
            let text = "this kernel was built with clang, and its configuration is not shown: the \
                        module does not support kernels with link-time optimization (LTO) or \
                        checks of indirect calls (CFI)";
            self.add("clang", Verdict::CanWith, text);
        }
    }

    fn of_kvm(&mut self, root: &Path, config: &Config) {
        let options = ["CONFIG_VIRTUALIZATION", "CONFIG_KVM"].into_iter();
        let off = options.chain(detect::kvm_option(root)).find(|option| config.is_off(option));
        if let Some(option) = off {
            let text = format!("this kernel was built without KVM ({option})");
            self.add("no-kvm", Verdict::Cannot, text);
        }
        let is_there = under(root, "sys/module/kvm").is_dir();
        if (is_there && !is_kvm_a_module(root)) || config.has("CONFIG_KVM=y") {
            let text = "KVM is built into this kernel: the module needs KVM as a module";
            self.add("kvm-built-in", Verdict::Cannot, text);
        }
    }

    /// What is set, and can be another way at the next boot or at once.
    fn of_settings(&mut self, root: &Path) {
        let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
        let clocks = read(root, clocks);
        if !clocks.is_empty() && clocks.split_whitespace().all(|clock| clock != "tsc") {
            let text = "this machine's TSC is unstable, and the module measures time with it";
            self.add("tsc", Verdict::Cannot, text);
        }
        if read(root, "proc/sys/kernel/modules_disabled").trim() == "1" {
            let text = "this kernel loads no more modules until the next boot \
                        (kernel.modules_disabled=1)";
            self.add("modules-disabled", Verdict::Cannot, text);
        }
        if read(root, "proc/sys/kernel/ftrace_enabled").trim() == "0" {
            let text = "ftrace is off: sysctl kernel.ftrace_enabled=1";
            self.add("ftrace-off", Verdict::CanWith, text);
        }
    }

    fn of_processor(&mut self, root: &Path) {
        let (id, verdict, why) = match detect::processor(root) {
            Ok(_) => return,
            Err(Lacks::Processor(why)) => ("processor", Verdict::Cannot, why),
            Err(Lacks::Kvm(why)) => ("kvm-setting", Verdict::CanWith, why),
        };
        self.add(id, verdict, format!("{why}: without PLE exits the module has no effect"));
    }

    /// What has to be done to get the module.
    fn of_source(&mut self, root: &Path, release: &str, config: &Config, from: From) {
        let must_be_signed = host::must_be_signed(root, config);
        let missing = match from {
            From::Build if must_be_signed => None,
            From::Build => host::can_build(root, release).err(),
            From::Installed => not_installed(root, release),
            From::File => None,
        };
        self.0.extend(missing.map(|text| reason("not-installed", Verdict::CanWith, text)));
        if must_be_signed {
            let text = match from {
                From::Build => host::UNSIGNED,
                _ => {
                    "Secure Boot or signature enforcement is on: sign the module with an enrolled \
                     key (mokutil --import CERT.der)"
                }
            };
            self.add("signature", Verdict::CanWith, text);
        }
    }

    /// Other users of the same functions.
    fn of_redirection(&mut self, root: &Path) {
        let replaced = self.of_livepatches(root);
        let redirected = read(root, "sys/kernel/tracing/enabled_functions");
        for (hooked, when, without) in HOOKED {
            let is_redirected =
                |line: &str| line.split_whitespace().next() == Some(hooked) && line.contains(" I ");
            if !replaced.contains(&hooked) && redirected.lines().any(is_redirected) {
                let text = format!(
                    "another module has redirected {hooked} (ftrace, IPMODIFY), which this one \
                     replaces while {when}"
                );
                self.add("redirected", without, text);
            }
        }
    }

    /// Returns the functions that livepatches replace.
    fn of_livepatches(&mut self, root: &Path) -> Vec<&'static str> {
        let mut replaced = Vec::new();
        for (hooked, when, without) in HOOKED {
            for patch in livepatches(root, hooked) {
                let text = format!(
                    "livepatch {patch} has replaced {hooked}, which the module replaces while \
                     {when}; only 1 can, so the module refuses this while the livepatch is loaded"
                );
                self.add("livepatch", without, text);
                replaced.push(hooked);
            }
        }
        if under(root, "sys/kernel/livepatch").is_dir() {
            let [one, other] = HOOKED.map(|(hooked, ..)| hooked);
            let text = format!(
                "a livepatch loaded later takes precedence: the module releases its hooks while it \
                 loads, and if it replaces {one} or {other}, every VM is set to off"
            );
            self.add("livepatch-later", Verdict::Can, text);
        }
        replaced
    }
}

/// The text of a file; empty if it cannot be read.
fn read(root: &Path, path: &str) -> String {
    kernel::text(&under(root, path)).unwrap_or_default()
}

/// What is built in has no initstate.
fn is_kvm_a_module(root: &Path) -> bool {
    read(root, "proc/modules").lines().any(|line| line.starts_with("kvm "))
        || under(root, "sys/module/kvm/initstate").exists()
}

/// What to do if modprobe would not find the module.
fn not_installed(root: &Path, release: &str) -> Option<String> {
    // NixOS keeps modules in the second place.
    let mut lists = ["", "run/booted-system/kernel-modules/"]
        .into_iter()
        .map(|dir| read(root, &format!("{dir}lib/modules/{release}/modules.dep")));
    if lists.any(|list| list.contains("/unspin.ko")) {
        return None;
    }
    let distribution = Distribution::of(root, release);
    let headers = distribution.headers(release);
    let how = match under(root, "var/lib/dkms/unspin").is_dir() {
        _ if distribution.is_image() => headers,
        true if kernel::has_headers(root, release) => NOT_BUILT.into(),
        true => format!("{NOT_BUILT}; the headers of this kernel are missing ({headers})"),
        false if kernel::has_headers(root, release) => "install the package unspin-dkms".into(),
        false => {
            format!("install the package unspin-dkms and the headers of this kernel ({headers})")
        }
    };
    let or = if distribution.is_image() { "" } else { ", or use `unspin load --build`" };
    Some(format!("the module is not installed for this kernel: {how}{or}"))
}

/// Livepatches that replace a function, as PATCH/OBJECT/FUNCTION,POSITION.
fn livepatches(root: &Path, function: &str) -> Vec<String> {
    let mut found = Vec::new();
    for patch in entries(&under(root, "sys/kernel/livepatch")) {
        let functions = entries(&patch).into_iter().flat_map(|object| entries(&object));
        let prefix = format!("{function},");
        if functions.into_iter().any(|f| name(&f).starts_with(&prefix)) {
            found.push(name(&patch));
        }
    }
    found
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}

fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
