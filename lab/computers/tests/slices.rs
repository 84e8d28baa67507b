// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended time slices (core/locks/slice_linux.h) on a kernel that has them, which the lab builds: `lease` and a
//! test-and-set lock with 4 threads per CPU, with and without, in turn within one boot (tests/slices.c).
//!
//! `UNSPIN_CPUS` (2): CPUs of the computer. `UNSPIN_CYCLES` (3): measurements of each kind.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use unspin_computers::{source_tree, Computer, Emulator, Slices, DEBUG_TOOLS, QEMU_TOOLS};
use unspin_scratch::Scratch;

const LOCKS: [(&str, &[&str]); 2] = [("lease", &[]), ("tas", &["-DSLICES_TAS"])];
/// One instruction takes 1 ns, and a PAUSE 40: slower than today's processors. At 200 MHz, the way into the kernel
/// and back would take as long as an extension.
const IPS: u64 = 1_000_000_000;
const PAUSE: u32 = 40;
/// Iterations of some 10 us and 50 us, of 2 instructions each.
const SECTIONS: &str = "5000 25000";
const WINDOW_MS: u32 = 250;
/// The kernel's usual extension and its longest, ns. 0: none is asked for.
const EXTENSIONS: &str = "0 5000 50000";
/// Of each lock, each section and each extension.
const KINDS: u32 = 2 * 2 * 3;
const CYCLES: u32 = 3;

#[test]
#[ignore = "builds a kernel, and emulates some 20 s of 2 CPUs: make soak-slices"]
fn holders_get_extended_slices() {
    let Some(lab) = common::lab(&[QEMU_TOOLS, DEBUG_TOOLS].concat()) else { return };
    let cpus = std::env::var("UNSPIN_CPUS").map_or(2, |n| n.parse().expect("UNSPIN_CPUS"));
    let program = common::going(|go| lab.program(Emulator::QemuAmd, go));
    let Some(_) = common::prepared("the lab's QEMU", program) else { return };
    let built = common::going(|go| lab.build_slices(go));
    let Some(slices) = common::prepared("slices", built) else { return };
    let dir = Scratch::new();
    let mut programs = LOCKS.map(|(name, flags)| program_of(&dir, name, flags)).to_vec();
    programs.push(slices.dynamic_linker.clone());
    let computer = Computer { ips: IPS, pause: PAUSE, ..Computer::qemu_amd(cpus) };
    let extras = common::Extras { programs, files: library(&slices), ..common::NO_EXTRAS };
    let script = script(cpus);
    let name = format!("slices-{cpus}");
    let heard = common::script_with(&lab, &slices.kernel, &computer, &script, &name, extras);
    let runs: Vec<&String> = heard.lines.iter().filter(|line| line.contains(" per_s=")).collect();
    let least = KINDS * common::cycles(CYCLES);
    let wrong = common::verdict(slices.kernel.series, &heard, least, &heard.console);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for (lock, _) in LOCKS {
        let of = |what: &str| -> u64 {
            let runs = runs.iter().filter(|run| run.starts_with(lock) && run.contains(what));
            runs.map(|run| number(run, "sgrant")).sum()
        };
        assert!(of(" 5000 ns ") > 0 && of(" 50000 ns ") > 0, "{lock}: no slice was extended");
        assert_eq!(of(" 0 ns "), 0, "{lock}: slices were extended that nobody asked for");
    }
}

/// The value of `name=` in a line.
fn number(line: &str, name: &str) -> u64 {
    let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
    let value = words.find(|(found, _)| *found == name).map(|(_, value)| value);
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// Builds tests/slices.c with a lock.
fn program_of(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (tests, program) = (source_tree().join("lab/computers/tests"), dir.join(name));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    gcc.args(["-DBENCH=bench_slices", "-DUNSPIN_LOCK_ONE_OBJECT", "-DLOCK(op)=slices_##op"]);
    gcc.arg(format!("-DLOCK_HEADER=\"{}\"", tests.join("slices.h").display()));
    gcc.arg(tests.join("../../bench-locks/c/bench.c")).arg(tests.join("slices.c"));
    let status = gcc.arg("-o").arg(&program).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{gcc:?}: {status:?}");
    program
}

fn library(slices: &Slices) -> Vec<(String, Vec<u8>)> {
    let libc = slices.dynamic_linker.with_file_name("libc.so.6");
    vec![("libc.so.6".into(), std::fs::read(&libc).unwrap_or_else(|e| panic!("{e}")))]
}

fn script(cpus: u32) -> String {
    let (cycles, threads) = (common::cycles(CYCLES), 4 * cpus);
    let locks = LOCKS.map(|(name, _)| name).join(" ");
    format!(
        r#"
measured() {{
	line=$(ld-linux-x86-64.so.2 --library-path / /bin/$1 $3 $2 {cpus} {threads} {WINDOW_MS}) &&
		say "$1 $2 iterations $4 ns round $round: $line"
}}
round=0
while [ $round -lt {cycles} ]; do
	for iterations in {SECTIONS}; do for lock in {locks}; do for ns in {EXTENSIONS}; do
		with=with
		if [ $ns = 0 ]; then with=without; else echo $ns > /sys/kernel/debug/rseq/slice_ext_nsec; fi
		check "$lock $iterations $ns runs" measured $lock $iterations $with $ns
	done; done; done
	round=$((round + 1))
done
finish
"#
    )
}
