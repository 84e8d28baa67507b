// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the bench guest (guest/) into the flat image that the VMM embeds.

use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: &[&str] = &[
    "-std=c11",
    "-m64",
    "-O2",
    "-ffreestanding",
    "-fno-pic",
    "-fno-pie",
    "-mno-red-zone",
    "-mgeneral-regs-only",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-ident",
    "-fcf-protection=none",
    "-march=x86-64",
    "-mtune=generic",
    "-Wall",
    "-Wextra",
    "-Werror",
];

const STALLS: &str = "-DGUEST_STALLS";
const REPORTS: &str = "-DGUEST_REPORTS";
const IMAGES: [(&str, &[&str]); 4] = [
    ("guest", &[]),
    ("guest-stalls", &[STALLS]),
    ("guest-reports", &[REPORTS]),
    ("guest-stalls-reports", &[STALLS, REPORTS]),
];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (guest, core) = (root.join("lab/guest"), root.join("core"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for dir in [&guest, &core.join("locks"), &core.join("policy"), &core.join("uapi")] {
        println!("cargo:rerun-if-changed={}", dir.display());
    }
    println!("cargo:rerun-if-changed=build.rs");

    let compiler = cc::Build::new().warnings(false).get_compiler();
    // Images whose waiting loops take longer because they also count.
    for (image, defines) in IMAGES {
        let mut objects = Vec::new();
        for source in ["start.S", "main.c", "../../core/policy/vcrd.c"] {
            let name = Path::new(source).file_name().expect("a file").to_string_lossy();
            if name == "vcrd.c" && !defines.contains(&REPORTS) {
                continue;
            }
            let object = out.join(format!("{image}-{name}")).with_extension("o");
            let mut compile = Command::new(compiler.path());
            compile.args(FLAGS).args(defines).arg("-I").arg(&guest).arg("-c");
            run(compile.arg(guest.join(source)).arg("-o").arg(&object));
            objects.push(object);
        }
        let mut link = Command::new("ld");
        link.args(["--build-id=none", "--oformat", "binary", "-T"]).arg(guest.join("guest.ld"));
        run(link.args(&objects).arg("-o").arg(out.join(image).with_extension("bin")));
    }
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| {
        panic!("cannot start {command:?}: {e}; install a C compiler and binutils")
    });
    assert!(status.success(), "{command:?} failed: {status}");
}
