// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles c/bench.c once a lock, and once a peer, and lists what there is.

use std::fmt::Write;
use std::path::{Path, PathBuf};

#[allow(dead_code)]
#[path = "src/locks.rs"]
mod locks;

struct Subject {
    name: String,
    header: PathBuf,
    prefix: String,
    node: bool,
    init: bool,
}

fn main() {
    let crate_dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let locks_dir = crate_dir.join("../../locks");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for path in ["c", "build.rs", "src/locks.rs", "../../locks"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let ck = Path::new("/usr/include/ck_spinlock.h").is_file();
    let mut subjects: Vec<Subject> = locks::LOCKS
        .iter()
        .map(|lock| Subject {
            name: lock.name.to_string(),
            header: locks_dir.join(lock.header),
            prefix: lock.name.to_string(),
            node: lock.node,
            init: false,
        })
        .collect();
    for (peer, node, from_ck) in [
        ("pthread_spin", false, false),
        ("pthread_mutex", false, false),
        ("pthread_adaptive", false, false),
        ("ck_fas", false, true),
        ("ck_ticket", false, true),
        ("ck_mcs", true, true),
    ] {
        if from_ck && !ck {
            println!(
                "cargo::warning=no ck_spinlock.h (libck-dev): {peer} is no peer in this build"
            );
            continue;
        }
        subjects.push(Subject {
            name: peer.to_string(),
            header: crate_dir.join("c/peers.h"),
            prefix: format!("peer_{peer}"),
            node,
            init: true,
        });
    }
    let mut table = String::from("extern \"C\" {\n");
    for s in &subjects {
        compile(s, &crate_dir, ck);
        writeln!(
            table,
            "    fn unspin_bench_{}(c: *const Config, o: *mut Thread, w: *mut u64) -> i32;",
            s.name
        )
        .unwrap();
    }
    table.push_str(
        "}\n/// Every lock and peer of this build.\npub static SUBJECTS: &[Subject] = &[\n",
    );
    for s in &subjects {
        writeln!(
            table,
            "    Subject {{ name: {:?}, peer: {}, run: unspin_bench_{} }},",
            s.name, s.init, s.name
        )
        .unwrap();
    }
    table.push_str("];\n");
    std::fs::write(out.join("subjects.rs"), table).expect("OUT_DIR can be written");
}

fn compile(s: &Subject, crate_dir: &Path, ck: bool) {
    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .opt_level(2)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .define("LOCK_HEADER", Some(format!("\"{}\"", s.header.display()).as_str()))
        .define("LOCK(op)", Some(format!("{}_##op", s.prefix).as_str()))
        .define("BENCH", Some(format!("unspin_bench_{}", s.name).as_str()));
    if s.node {
        build.define("WITH_NODE", None);
    }
    if ck {
        build.define("PEERS_CK", None);
    }
    if s.init {
        build.define("BENCH_INIT(lock)", Some(format!("{}_init(lock)", s.prefix).as_str()));
    }
    build.file(crate_dir.join("c/bench.c")).compile(&format!("unspin_bench_{}", s.name));
}
