// SPDX-License-Identifier: MIT OR Apache-2.0
//! What compilers say of the headers: warnings, and what is missing.

mod common;

use common::{changed_locks, check, has, i386, locks_dir, scratch};
use std::path::Path;
use std::process::Command;

/// The message names the one that is missing. Debian's musl-gcc, for one, finds none.
#[test]
fn missing_headers_of_the_kernel_are_named() {
    let own = Command::new("cc").arg("-print-file-name=include").output().unwrap();
    let own = String::from_utf8(own.stdout).unwrap();
    let some = scratch().join("some-kernel-headers");
    std::fs::create_dir_all(some.join("linux")).unwrap();
    std::fs::write(some.join("linux/futex.h"), "").unwrap();
    let source = scratch().join("no-kernel-headers.c");
    for (language, header, option) in
        [("c", "lease.h", "-nostdinc"), ("c++", "locks.hpp", "-nostdinc++")]
    {
        std::fs::write(&source, format!("#include \"{header}\"\n")).unwrap();
        let says = |folders: &[&Path]| {
            let mut compile = Command::new("cc");
            compile.args(["-ffreestanding", "-fsyntax-only", "-nostdinc", option, "-x", language]);
            compile.args(["-isystem", own.trim(), "-I"]).arg(locks_dir());
            for folder in folders {
                compile.arg("-idirafter").arg(folder);
            }
            check(compile.arg(&source)).expect_err("headers are missing")
        };
        let said = says(&[]);
        assert!(said.contains("linux/futex.h is missing: install"), "{language}: {said}");
        let said = says(&[some.as_path()]);
        assert!(said.contains("asm/types.h is missing: it is"), "{language}: {said}");
    }
}

/// Warnings that programs may ask for: in both languages, in C, in C++.
const STRICT: [&str; 10] = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pedantic",
    "-Wshadow",
    "-Wcast-qual",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wundef",
    "-Wmissing-declarations",
];
const STRICT_C: [&str; 3] = ["-std=gnu11", "-Wstrict-prototypes", "-Wmissing-prototypes"];
const STRICT_CXX: [&str; 3] = ["-std=c++11", "-Wold-style-cast", "-Wzero-as-null-pointer-constant"];

/// Makes the templates real.
const CXX: &str = r#"
#include "locks.hpp"

int main()
{
	unspin::lease lease;
	unspin::tas_nap nap;

	return lease.try_lock_for(std::chrono::seconds(1)) && nap.try_lock_until(std::chrono::steady_clock::now());
}
"#;

/// Compilers, each with options.
fn compilers() -> Vec<Vec<&'static str>> {
    let mut all = vec![vec!["cc"], vec!["c++"]];
    for name in ["clang", "clang++", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"] {
        if has(name) {
            all.push(vec![name]);
        }
    }
    if let Some(i386) = i386() {
        all.push([&["cc"][..], &i386].concat());
    }
    all
}

/// Compiles a source file with all of these warnings.
fn strict(compiler: &[&str], source: &Path, locks: &Path, setting: &str) -> Result<(), String> {
    let is_cxx = compiler[0].ends_with("++");
    let mut compile = Command::new(compiler[0]);
    compile.args(&compiler[1..]).args(STRICT).args(if is_cxx { STRICT_CXX } else { STRICT_C });
    // Without "strict" gcc warns on processors that cannot read such addresses; x86 and arm64 can.
    let is_clang = compiler[0].starts_with("clang");
    compile.arg(if is_clang { "-Wcast-align" } else { "-Wcast-align=strict" });
    check(compile.arg(setting).args(["-O2", "-fsyntax-only", "-I"]).arg(locks).arg(source))
}

#[test]
fn no_header_makes_a_compiler_warn() {
    let entries = std::fs::read_dir(locks_dir()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // env.h includes stats.h if it is asked for.
    let headers: Vec<String> =
        names.filter(|name| name.ends_with(".h") && name != "stats.h").collect();
    assert!(headers.len() > 10, "{headers:?}");
    // env.h is the first, because its parts need it.
    let all = headers.join("\"\n#include \"");
    let (c, cxx) = (scratch().join("strict.c"), scratch().join("strict.cc"));
    std::fs::write(&c, format!("#include \"env.h\"\n#include \"{all}\"\n")).unwrap();
    std::fs::write(&cxx, CXX).unwrap();
    let cast = changed_locks("locks-cast", "slice_linux.h", "(void *)(", "(");
    for compiler in compilers() {
        let of_c =
            ["-DUNSPIN_LOCK_ONE_OBJECT", "-DUNSPIN_LOCK_LINUX_FUTEX=0", "-DUNSPIN_LOCK_STATS"];
        let is_cxx = compiler[0].ends_with("++");
        let (source, settings) = if is_cxx { (&cxx, &of_c[..2]) } else { (&c, &of_c[..]) };
        for setting in settings {
            strict(&compiler, source, &locks_dir(), setting)
                .unwrap_or_else(|said| panic!("{compiler:?} {setting}: {said}"));
        }
        // 32-bit processors have no such areas.
        if !compiler.contains(&"-m32") {
            let said = strict(&compiler, source, &cast, "-O2").expect_err("a cast without void *");
            assert!(said.contains("cast-align"), "{compiler:?}: {said}");
        }
    }
}
