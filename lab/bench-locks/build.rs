// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles c/bench.c once a lock, an arm and a peer, and lists what there is. A peer that cannot be
//! built is an error: figures against fewer peers would look better than they are.

use std::fmt::Write;
use std::path::{Path, PathBuf};

#[allow(dead_code)]
#[path = "../threads/src/locks.rs"]
mod locks;

struct Subject {
    name: String,
    header: PathBuf,
    prefix: String,
    node: bool,
    peer: bool,
    define: Vec<(&'static str, Option<&'static str>)>,
}

fn main() {
    let crate_dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let locks_dir = crate_dir.join("../../core/locks");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for path in ["c", "src", "build.rs", "../threads/src/locks.rs", "../../core/locks"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for (file, package) in [
        ("/usr/include/ck_spinlock.h", "libck-dev"),
        ("/usr/include/absl/synchronization/mutex.h", "libabsl-dev"),
    ] {
        assert!(
            Path::new(file).is_file(),
            "no {file}: install Debian's {package} (make test-deps does), its locks are peers"
        );
    }
    let subjects = subjects(&crate_dir, &locks_dir);
    let all = subjects.iter().map(|s| ("unspin_bench", s, build(s, &crate_dir)));
    let mut tables = compile("/// Every lock, arm and peer.\npub static SUBJECTS", all);
    let counting = subjects.iter().filter(|s| !s.peer).map(|s| {
        let mut build = build(s, &crate_dir);
        build.define("UNSPIN_LOCK_STATS", None);
        ("unspin_count", s, build)
    });
    tables += &compile("/// Every lock and arm, counting.\npub static COUNTED", counting);
    std::fs::write(out.join("subjects.rs"), tables).expect("OUT_DIR can be written");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .warnings_into_errors(true)
        .file(crate_dir.join("c/cxx.cc"))
        .compile("unspin_bench_cxx");
    println!("cargo::rustc-link-lib=absl_synchronization");
    println!("cargo::rustc-link-lib=absl_base");
    c().file(crate_dir.join("c/spin_program.c")).compile("unspin_bench_spin_program");
    println!("cargo::rustc-env=UNSPIN_BENCH_CODE={:016x}", code(&crate_dir, &locks_dir));
}

/// Every lock, then the arms, then the peers.
fn subjects(crate_dir: &Path, locks_dir: &Path) -> Vec<Subject> {
    let subject = |name: &str, header: PathBuf, prefix: String| Subject {
        name: name.to_string(),
        header,
        prefix,
        node: false,
        peer: false,
        define: Vec::new(),
    };
    let mut subjects = Vec::new();
    for lock in locks::LOCKS {
        let prefix = format!("unspin_{}", lock.name);
        let subject = subject(lock.name, locks_dir.join(lock.header), prefix);
        subjects.push(Subject { node: lock.node, ..subject });
    }
    let arms = crate_dir.join("c/arms.h");
    for lock in ["preemptable", "pv_preemptable"] {
        for (arm, tau) in
            [("tau_code", "UNSPIN_PREEMPTABLE_TAU_CODE_NS"), ("tau_short", "ARM_TAU_SHORT_NS")]
        {
            let mut define = vec![("ARM_TAU_NS", Some(tau))];
            if lock == "pv_preemptable" {
                define.push(("ARM_PV", None));
            }
            let subject = subject(&format!("{lock}_{arm}"), arms.clone(), format!("arm_{lock}"));
            subjects.push(Subject { define, ..subject });
        }
    }
    let halts_soon = subject("pv_ticket_2048", arms, "arm_pv_ticket".to_string());
    subjects.push(Subject { define: vec![("ARM_TICKET", None)], ..halts_soon });
    for peer in [
        "pthread_spin",
        "pthread_mutex",
        "pthread_adaptive",
        "ck_fas",
        "ck_ticket",
        "ck_mcs",
        "abseil",
        "abseil_mutex",
        "std_mutex",
        "parking_lot",
    ] {
        let subject = subject(peer, crate_dir.join("c/peers.h"), format!("peer_{peer}"));
        subjects.push(Subject { node: peer == "ck_mcs", peer: true, ..subject });
    }
    subjects
}

/// Compiles them, each with the prefix of its function; the table of them, whose declaration is `table`.
fn compile<'a>(
    table: &str,
    subjects: impl Iterator<Item = (&'a str, &'a Subject, cc::Build)>,
) -> String {
    let (mut externs, mut rows) = (String::new(), String::new());
    for (prefix, Subject { name, peer, .. }, mut build) in subjects {
        let run = format!("{prefix}_{name}");
        build.define("BENCH", Some(run.as_str())).compile(&run);
        writeln!(
            externs,
            "    fn {run}(c: *const Config, o: *mut Thread, w: *mut Window, n: *mut Counts) -> i32;"
        )
        .unwrap();
        writeln!(rows, "    Subject {{ name: {name:?}, peer: {peer}, run: {run} }},").unwrap();
    }
    format!("extern \"C\" {{\n{externs}}}\n{table}: &[Subject] = &[\n{rows}];\n")
}

fn c() -> cc::Build {
    let mut build = cc::Build::new();
    build.std("gnu11").opt_level(2).extra_warnings(true).warnings_into_errors(true);
    build
}

/// c/bench.c for that lock.
fn build(s: &Subject, crate_dir: &Path) -> cc::Build {
    let mut build = c();
    build
        .define("UNSPIN_LOCK_ONE_OBJECT", None)
        .define("LOCK_HEADER", Some(format!("\"{}\"", s.header.display()).as_str()))
        .define("LOCK(op)", Some(format!("{}_##op", s.prefix).as_str()));
    if s.node {
        build.define("WITH_NODE", None);
    }
    for &(name, value) in &s.define {
        build.define(name, value);
    }
    if s.peer {
        build.define("BENCH_INIT(lock)", Some(format!("{}_init(lock)", s.prefix).as_str()));
    }
    build.file(crate_dir.join("c/bench.c"));
    build
}

/// FNV-1a of all code that is measured or measures: samples of other code are not this code's.
fn code(crate_dir: &Path, locks_dir: &Path) -> u64 {
    let mut files = Vec::new();
    for dir in [locks_dir.to_path_buf(), crate_dir.join("c"), crate_dir.join("src")] {
        for entry in std::fs::read_dir(&dir).expect("a directory of the source") {
            let path = entry.expect("a directory of the source").path();
            if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    let bytes = files.iter().flat_map(|f| std::fs::read(f).expect("a source file"));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
