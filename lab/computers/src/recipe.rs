// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inputs of the lab's own emulators: a source package of Debian 13, patches, and options.

use crate::hash::sha256;

/// A patch's name and contents.
pub(crate) type Patch = (&'static str, &'static str);

macro_rules! patch {
    ($name:literal) => {
        ($name, include_str!(concat!("../", $name)))
    };
}

/// How one emulator is built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// The name for people and for files.
    pub name: &'static str,
    pub id: &'static str,
    pub version: &'static str,
    /// The source package, its file, and the file's hash. A newer version has another hash, and the
    /// patches may not apply to it.
    pub package: &'static str,
    pub source: &'static str,
    pub source_sha256: &'static str,
    pub patches: &'static [Patch],
    pub options: &'static [&'static str],
    /// The compiler's flags. They must give the same program for any processor.
    pub flags: &'static str,
    pub compiler: &'static str,
    /// Programs that the build calls, beside the compiler.
    pub tools: &'static [&'static str],
    /// Libraries by their names in pkg-config, with the least version and Debian's package.
    pub libraries: &'static [(&'static str, &'static str, &'static str)],
    /// Python programs that Debian 12 lacks in this version: architecture-independent packages of
    /// Debian 13, which run from their unpacked directory.
    pub python: &'static [&'static str],
    /// The build directory below the source, and the command that builds there.
    pub dir: &'static str,
    pub make: &'static [&'static str],
    pub program: &'static str,
    /// Bytes that its configure accepts in no path.
    pub refused_in_paths: &'static [u8],
    /// The option that prints its version.
    pub version_option: &'static [&'static str],
    pub progress: Progress,
    /// Duration on two CPUs.
    pub minutes: &'static str,
}

/// How to read the progress from a build's log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The number of lines with one of these texts at the end of the build.
    Lines(&'static [&'static str], usize),
    /// Lines begin with the progress, as in `[57/1298]`.
    Counts,
}

/// Only the features that Bochs's computers use. Repeat speedups, a part of "all optimizations",
/// are off: with them a string instruction of one CPU advances the clock of all CPUs.
pub(crate) const BOCHS: Recipe = Recipe {
    name: "Bochs",
    id: "bochs",
    version: "3.0",
    package: "bochs",
    source: "bochs_3.0+dfsg.orig.tar.xz",
    source_sha256: "78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b",
    patches: &[
        patch!("bochs/1-commit-rip-after-an-exception.patch"),
        patch!("bochs/2-interrupt-mask-at-vm-entry.patch"),
        patch!("bochs/3-each-processor-at-the-stated-rate.patch"),
    ],
    options: &[
        "--with-nogui",
        "--enable-smp",
        "--enable-cpu-level=6",
        "--enable-x86-64",
        "--enable-vmx=2",
        "--enable-avx",
        "--enable-evex",
        "--enable-cet",
        "--enable-fpu",
        "--enable-pci",
        "--enable-long-phy-address",
        "--enable-cdrom",
        "--enable-handlers-chaining",
        "--enable-trace-linking",
        "--enable-fast-function-calls",
        "--disable-repeat-speedups",
        "--disable-debugger",
        "--disable-debugger-gui",
        "--disable-plugins",
        "--disable-docbook",
    ],
    flags: "-O3",
    compiler: "g++",
    tools: &["make", "patch", "tar", "strip"],
    libraries: &[],
    python: &[],
    dir: ".",
    make: &["make", "bochs", "-j"],
    program: "bochs",
    refused_in_paths: b"",
    version_option: &["-q", "--help"],
    progress: Progress::Lines(&[" -c "], 464),
    minutes: "1 to 4",
};

/// QEMU with only a PC, its serial port and port 0xE9: an AMD processor with a pause filter.
pub(crate) const QEMU_AMD: Recipe = Recipe {
    name: "QEMU",
    id: "qemu-amd",
    version: "10.0.13",
    package: "qemu",
    source: "qemu_10.0.13+ds.orig.tar.xz",
    source_sha256: "6a0888e806c2ffc0c5f0733e974f9aea55491950d3c47c98669c8b236dde59ae",
    patches: &[
        patch!("qemu-amd/1-firmware-that-is-not-installed.patch"),
        patch!("qemu-amd/2-svm-pause-filter.patch"),
        patch!("qemu-amd/3-rounds-of-processors.patch"),
    ],
    options: &[
        "--target-list=x86_64-softmmu",
        "--without-default-features",
        "--without-default-devices",
        "--with-devices-x86_64=unspin",
        "--enable-system",
        "--enable-tcg",
        "--enable-trace-backends=nop",
        "--disable-debug-info",
        "--disable-docs",
        "--disable-download",
        "--disable-fdt",
        "--disable-guest-agent",
        "--disable-install-blobs",
        "--disable-kvm",
        "--disable-pixman",
        "--disable-tools",
        "--disable-werror",
    ],
    flags: "-O2",
    compiler: "gcc",
    tools: &["ninja", "pkg-config", "python3", "patch", "tar", "strip"],
    libraries: &[("glib-2.0", "2.66", "libglib2.0-dev"), ("zlib", "1.2", "zlib1g-dev")],
    python: &["meson", "python3-pycotap"],
    dir: "build",
    make: &["ninja", "qemu-system-x86_64"],
    program: "qemu-system-x86_64",
    refused_in_paths: b" \t\n:",
    version_option: &["--version"],
    progress: Progress::Counts,
    minutes: "4 to 8",
};

impl Recipe {
    /// The hash of all inputs of a build.
    pub(crate) fn hash(&self, compiler: &str) -> String {
        self.hash_with(self.patches, compiler)
    }

    fn hash_with(&self, patches: &[Patch], compiler: &str) -> String {
        let mut parts = vec![self.source_sha256, self.flags, compiler];
        parts.extend(self.options);
        parts.extend(patches.iter().map(|(_, text)| change(text)));
        sha256(&parts)
    }

    /// Names of its patches, for provenances.
    pub(crate) fn patch_names(&self) -> String {
        let stem = |&(name, _): &Patch| {
            let file = name.rsplit('/').next().unwrap_or(name);
            file.trim_end_matches(".patch")
        };
        self.patches.iter().map(stem).collect::<Vec<&str>>().join(", ")
    }
}

impl Progress {
    /// Progress in percent. The end is reported separately.
    pub(crate) fn percent_done(&self, log: &str) -> usize {
        let (done, all) = match *self {
            Progress::Lines(texts, all) => {
                let counts = |line: &&str| texts.iter().any(|text| line.contains(text));
                (log.lines().filter(counts).count(), all)
            }
            Progress::Counts => log.lines().rev().find_map(counts).unwrap_or((0, 1)),
        };
        (100 * done / all.max(1)).min(99)
    }

    /// Says the progress of `what` whenever the log so far shows another `step` percent.
    pub(crate) fn reported<'a>(
        &'a self,
        what: &'a str,
        step: usize,
        say: &'a mut dyn FnMut(&str),
    ) -> impl FnMut(&str) + 'a {
        let mut said = 0;
        move |log: &str| {
            let percent = self.percent_done(log);
            if percent >= said + step {
                said = percent - percent % step;
                say(&format!("{what}: {said} %"));
            }
        }
    }
}

/// Extracts 57 and 1298 from `[57/1298] Compiling`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (done, all) = line.strip_prefix('[')?.split_once(']')?.0.split_once('/')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// The changes of a patch without its comments.
fn change(patch: &str) -> &str {
    patch.split_once("\n---\n").map_or(patch, |(_, change)| change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_another_with_each_thing_in_it() {
        for recipe in [&BOCHS, &QEMU_AMD] {
            let first = recipe.hash("cc 12");
            assert_eq!(first, recipe.hash("cc 12"));
            assert_ne!(first, recipe.hash("cc 14"));
            assert_ne!(first, recipe.hash_with(&recipe.patches[..2], "cc 12"));
            let mut other = recipe.patches.to_vec();
            other[0].1 = "other";
            assert_ne!(first, recipe.hash_with(&other, "cc 12"));
            let text = recipe.patches[0].1;
            other[0].1 = text.replacen("Description: ", "Description: Really, ", 1).leak();
            assert_eq!(first, recipe.hash_with(&other, "cc 12"));
        }
        assert_ne!(BOCHS.hash("cc 12"), QEMU_AMD.hash("cc 12"));
    }

    #[test]
    fn patches_say_what_they_are_for() {
        for (name, text) in BOCHS.patches.iter().chain(QEMU_AMD.patches) {
            for field in ["Description: ", "\nForwarded: ", "\nApplies-To: ", "\n---\ndiff --git "]
            {
                assert!(text.contains(field), "{name} has no {field:?}");
            }
        }
        assert!(QEMU_AMD.patch_names().ends_with(", 3-rounds-of-processors"));
    }

    #[test]
    fn progress_ends_below_the_whole() {
        let Progress::Lines(_, objects) = BOCHS.progress else { panic!("lines are counted") };
        assert_eq!(BOCHS.progress.percent_done("checking for gcc\n"), 0);
        let lines = |count: usize| "g++ -c -O3 x.cc -o x.o\n".repeat(count);
        assert_eq!(BOCHS.progress.percent_done(&lines(objects / 2)), 50);
        assert_eq!(BOCHS.progress.percent_done(&lines(2 * objects)), 99);
        for (log, percent) in [
            ("Found ninja\n", 0),
            ("[1/200] Generating\n", 0),
            ("[1/200] Generating\n[50/200] Compiling C object [x/y]\nwarning: [\n", 25),
            ("[200/200] Linking target\n", 99),
        ] {
            assert_eq!(Progress::Counts.percent_done(log), percent, "{log}");
        }
    }
}
