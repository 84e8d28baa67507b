// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration and the headers of a host's kernel, and what the module needs of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unspin_host::place::under;
use unspin_host::source::release_of_headers;
use unspin_text::read_kernel;

/// A kind of kernel that the module does not support.
pub(crate) struct Unsupported {
    pub id: &'static str,
    /// Lines of its configuration.
    lines: &'static str,
    /// Options that it lacks.
    needs: &'static str,
    /// What it is or does, after "this kernel".
    pub what: &'static str,
}

const fn kind(
    id: &'static str,
    lines: &'static str,
    needs: &'static str,
    what: &'static str,
) -> Unsupported {
    Unsupported { id, lines, needs, what }
}

const BTF: &str = "CONFIG_DEBUG_INFO_BTF CONFIG_DEBUG_INFO_BTF_MODULES CONFIG_BPF_EVENTS";
const FTRACE: &str = "CONFIG_FTRACE CONFIG_FUNCTION_TRACER CONFIG_DYNAMIC_FTRACE \
                      CONFIG_DYNAMIC_FTRACE_WITH_ARGS CONFIG_KPROBES CONFIG_TRACEPOINTS";

/// Kernels for which core/kmod/compat/compat.h refuses the build, or on which the module refuses to load.
pub(crate) const UNSUPPORTED: [Unsupported; 6] = [
    kind("no-modules", "", "CONFIG_MODULES", "loads no modules"),
    kind("realtime", "CONFIG_PREEMPT_RT=y", "", "is PREEMPT_RT"),
    kind("cfi", "CONFIG_CFI_CLANG=y CONFIG_CFI=y", "", "checks indirect calls (CFI)"),
    kind("lto", "CONFIG_LTO_CLANG=y", "", "was built with link-time optimization (LTO)"),
    kind("btf", "", BTF, "has no type information (BTF) of KVM"),
    kind("no-ftrace", "", FTRACE, "cannot redirect functions (ftrace, kprobes, tracepoints)"),
];

/// The configuration of a kernel; empty if the host does not show it.
pub(crate) struct Config(String);

impl Config {
    /// That of the running kernel comes first. The headers may be those of another kernel.
    pub fn of(root: &Path, release: &str) -> Config {
        let files = [
            Some(under(root, &format!("lib/modules/{release}/config"))),
            has_headers(root, release).then(|| headers(root, release).join(".config")),
            Some(under(root, &format!("boot/config-{release}"))),
        ];
        let running = unpacked(&under(root, "proc/config.gz"));
        let in_files = || files.into_iter().flatten().find_map(|file| text(&file));
        Config(running.or_else(in_files).unwrap_or_default())
    }

    pub fn is_shown(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn has(&self, line: &str) -> bool {
        self.0.lines().any(|is| is == line)
    }

    pub fn is_off(&self, option: &str) -> bool {
        self.has(&format!("# {option} is not set"))
    }

    /// Whether the kernel is of this kind. An option that depends on one that is off is not listed.
    pub fn is(&self, kind: &Unsupported) -> bool {
        let is_whole = self.has("CONFIG_X86_64=y");
        let lacks =
            |option: &str| self.is_off(option) || (is_whole && !self.has(&format!("{option}=y")));
        let lines = kind.lines.split_whitespace().any(|line| self.has(line));
        lines || kind.needs.split_whitespace().any(lacks)
    }
}

/// The kernel's headers.
pub(crate) fn headers(root: &Path, release: &str) -> PathBuf {
    under(root, &format!("lib/modules/{release}/build"))
}

/// Whether the headers are there, and of this kernel.
pub(crate) fn has_headers(root: &Path, release: &str) -> bool {
    release_of_headers(&headers(root, release)).as_deref() == Some(release)
}

/// The text of a file of the kernel or about it, whatever its encoding; `None` if there is none.
pub(crate) fn text(path: &Path) -> Option<String> {
    read_kernel(path).ok().and_then(of_bytes)
}

fn of_bytes(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (!text.trim().is_empty()).then_some(text)
}

/// The text of a file that gzip has compressed; `None` also if there is no gzip.
fn unpacked(path: &Path) -> Option<String> {
    // Opening a FIFO would wait for a writer.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut gzip = Command::new("gzip");
    gzip.arg("-dc").stdin(File::open(path).ok()?).stderr(Stdio::null());
    of_bytes(gzip.output().ok()?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    /// All that the module needs.
    fn whole() -> String {
        let needs = UNSUPPORTED.iter().flat_map(|kind| kind.needs.split_whitespace());
        needs.fold(String::from("CONFIG_X86_64=y\n"), |all, option| format!("{all}{option}=y\n"))
    }

    fn kinds(config: &str) -> String {
        let config = Config(config.into());
        let found = UNSUPPORTED.iter().filter(|kind| config.is(kind)).map(|kind| kind.id);
        found.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_whole_configuration_does_not_list_is_off() {
        assert_eq!((kinds(&whole()), kinds("CONFIG_KVM=m\n")), (String::new(), String::new()));
        for (option, kind) in [
            ("CONFIG_MODULES", "no-modules"),
            ("CONFIG_DEBUG_INFO_BTF_MODULES", "btf"),
            ("CONFIG_BPF_EVENTS", "btf"),
            ("CONFIG_DYNAMIC_FTRACE_WITH_ARGS", "no-ftrace"),
            ("CONFIG_KPROBES", "no-ftrace"),
            ("CONFIG_TRACEPOINTS", "no-ftrace"),
        ] {
            assert_eq!(kinds(&whole().replace(&format!("{option}=y\n"), "")), kind, "{option}");
            assert_eq!(kinds(&format!("# {option} is not set\n")), kind, "{option}");
        }
    }

    #[test]
    fn a_file_without_text_hides_no_other() {
        let root = Scratch::with(&[("boot/config-6.12", b"CONFIG_A=\"\xe9\"\nCONFIG_CFI=y\n")]);
        root.write("lib/modules/6.12/config", "\n");
        root.write("proc/config.gz", "CONFIG_B=y\n");
        assert!(Config::of(&root, "6.12").has("CONFIG_CFI=y"));
        let build = root.write("lib/modules/6.12/build/.config", "CONFIG_C=y\n");
        assert!(!Config::of(&root, "6.12").has("CONFIG_C=y"), "of headers of an unknown kernel");
        let release = build.with_file_name("include/generated/utsrelease.h");
        root.write(release, "#define UTS_RELEASE \"6.12\"\n");
        assert!(Config::of(&root, "6.12").has("CONFIG_C=y"));
    }
}
