// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a host can have the module, and why.

use crate::detect::{self, Lacks};
use crate::distribution::Distribution;
use crate::host::{self, config};
use crate::sysfs::Module;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use unspin_host::place::under;
use unspin_text::fit::wrap;
use unspin_text::read_kernel_text;

/// The functions that the module redirects, what needs them, and the verdict if one is not
/// available.
const HOOKED: [(&str, &str, Verdict); 2] = [
    ("kvm_vcpu_on_spin", "any VM is in a mode other than off", Verdict::Cannot),
    ("xfer_to_guest_mode_handle_work", "VMs have turns", Verdict::CanWith),
];

/// Kernels for which core/kmod/compat/compat.h refuses the build, or on which the module refuses to load: an id, lines of
/// their configuration, and what they are.
const UNSUPPORTED: [(&str, &[&str], &str); 6] = [
    ("no-modules", &["# CONFIG_MODULES is not set"], "loads no modules"),
    ("realtime", &["CONFIG_PREEMPT_RT=y"], "is PREEMPT_RT"),
    ("cfi", &["CONFIG_CFI_CLANG=y", "CONFIG_CFI=y"], "checks indirect calls (CFI)"),
    ("lto", &["CONFIG_LTO_CLANG=y"], "was built with link-time optimization (LTO)"),
    (
        "btf",
        &["# CONFIG_DEBUG_INFO_BTF is not set", "# CONFIG_DEBUG_INFO_BTF_MODULES is not set"],
        "has no type information (BTF) of KVM",
    ),
    (
        "no-ftrace",
        &[
            "# CONFIG_FTRACE is not set",
            "# CONFIG_FUNCTION_TRACER is not set",
            "# CONFIG_DYNAMIC_FTRACE is not set",
            "# CONFIG_KPROBES is not set",
        ],
        "cannot redirect functions (ftrace, kprobes)",
    ),
];

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
            all.of_loaded(&loaded);
        } else {
            let too_old = host::too_old(release);
            all.0.extend(too_old.map(|text| reason("kernel-too-old", Verdict::Cannot, text)));
            all.of_kernel(root, release);
            all.of_processor(root);
            all.of_redirection(root);
            // Give no advice if it cannot help.
            if all.0.iter().all(|reason| reason.verdict != Verdict::Cannot) {
                all.of_source(root, release, from);
            }
            let untested = host::untested(release);
            all.0.extend(untested.map(|text| reason("untested", Verdict::CanWith, text)));
            let taint =
                "an out-of-tree module taints the kernel (flag O, and E if it is unsigned) \
                         until the next boot";
            all.add("taint", Verdict::Can, taint);
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

    fn of_loaded(&mut self, module: &Path) {
        match Module::open_same_version(module) {
            Ok(_) => self.add("loaded", Verdict::Can, "the module is already loaded"),
            Err(e) => self.add("version", Verdict::CanWith, format!("{e:#}")),
        }
    }

    /// Kernels that the module never supports, and settings of other kernels.
    fn of_kernel(&mut self, root: &Path, release: &str) {
        let read = |p: &str| read_kernel_text(under(root, p)).unwrap_or_default();
        let config = config(root, release);
        let version = read("proc/sys/kernel/version") + &read("proc/version");
        let is_realtime = read("sys/kernel/realtime").trim() == "1"
            || ["PREEMPT_RT", "PREEMPT RT"].iter().any(|word| version.contains(word));
        let is_in = |option: &&str| config.lines().any(|line| line == *option);
        let modules = read("proc/modules");
        let is_module = modules.lines().any(|line| line.starts_with("kvm "));
        let has_types = |of: &str| under(root, &format!("sys/kernel/btf/{of}")).exists();
        let is_clang = config.is_empty() && version.contains("clang version");
        // CachyOS calls some of its kernels so.
        let is_lto = is_clang && release.split(['-', '+', '_', '.']).any(|part| part == "lto");
        for (id, options, what) in UNSUPPORTED {
            let is_seen = match id {
                "realtime" => is_realtime,
                "lto" => is_lto,
                "btf" => is_module && has_types("vmlinux") && !has_types("kvm"),
                _ => false,
            };
            if is_seen || options.iter().any(is_in) {
                let text = format!("this kernel {what}, which the module does not support");
                self.add(id, Verdict::Cannot, text);
            }
        }
        if is_clang && !is_lto {
            let text = "this kernel was built with clang, and its configuration is not shown: the \
                        module does not support kernels with link-time optimization (LTO) or \
                        checks of indirect calls (CFI)";
            self.add("clang", Verdict::CanWith, text);
        }
        if read("proc/sys/kernel/modules_disabled").trim() == "1" {
            let text = "this kernel loads no more modules until the next boot \
                        (kernel.modules_disabled=1)";
            self.add("modules-disabled", Verdict::Cannot, text);
        }
        if (under(root, "sys/module/kvm").is_dir() && !is_module) || is_in(&"CONFIG_KVM=y") {
            let text = "KVM is built into this kernel: the module needs KVM as a module";
            self.add("kvm-built-in", Verdict::Cannot, text);
        }
        if read("proc/sys/kernel/ftrace_enabled").trim() == "0" {
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
    fn of_source(&mut self, root: &Path, release: &str, from: From) {
        let missing = match from {
            From::Build => host::obstacle(root, release, true),
            From::Installed => not_installed(root, release),
            From::File => None,
        };
        self.0.extend(missing.map(|text| reason("not-installed", Verdict::CanWith, text)));
        if from != From::Build && host::must_be_signed(root, release) {
            let text = "Secure Boot or signature enforcement is on: sign the module with an \
                        enrolled key (mokutil --import CERT.der)";
            self.add("signature", Verdict::CanWith, text);
        }
    }

    /// Other users of the same functions.
    fn of_redirection(&mut self, root: &Path) {
        let enabled = under(root, "sys/kernel/tracing/enabled_functions");
        let redirected = read_kernel_text(enabled).unwrap_or_default();
        for (hooked, when, without) in HOOKED {
            let patches = livepatches(root, hooked);
            for patch in &patches {
                let text = format!(
                    "livepatch {patch} has replaced {hooked}, which the module replaces while \
                     {when}; only 1 can, so the module refuses this while the livepatch is loaded"
                );
                self.add("livepatch", without, text);
            }
            let is_redirected =
                |line: &str| line.split_whitespace().next() == Some(hooked) && line.contains(" I ");
            if patches.is_empty() && redirected.lines().any(is_redirected) {
                let text = format!(
                    "another module has redirected {hooked} (ftrace, IPMODIFY), which this one \
                     replaces while {when}"
                );
                self.add("redirected", without, text);
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
    }
}

/// What to do if modprobe would not find the module.
fn not_installed(root: &Path, release: &str) -> Option<String> {
    let list = under(root, &format!("lib/modules/{release}/modules.dep"));
    let listed = read_kernel_text(list).unwrap_or_default().contains("/unspin.ko");
    (!listed).then(|| {
        let headers = Distribution::of(root, release).headers(release);
        format!(
            "the module is not installed for this kernel: install the package unspin-dkms and the \
             headers of this kernel ({headers}), or use `unspin load --build`"
        )
    })
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
