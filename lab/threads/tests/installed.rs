// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `make install-dev` installs, as programs use it: examples in C and C++ for this computer, for
//! i386 with a 64-bit `time_t` and for arm64 (emulated); pkg-config and CMake. The example in Rust is run
//! by `core/locks/rust/tests/counter.rs`.

mod common;

use common::{check, has, has_sdt, i386, is_there, locks_dir, scratch, TIME64};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn install(setting: &str) {
    let mut make = Command::new("make");
    make.arg("-C").arg(locks_dir().join("../..")).args(["install-dev", setting]);
    check(&mut make).expect("make install-dev");
}

/// The root that it is installed in.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = scratch().join("installed");
        let _ = std::fs::remove_dir_all(&root);
        install(&format!("DESTDIR={}", root.display()));
        root
    })
}

fn pkg_config(question: &str) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", root().join("usr/share/pkgconfig"));
    command.env("PKG_CONFIG_SYSROOT_DIR", root()).args([question, "unspin-locks"]);
    // pkg-config leaves out what compilers search anyway.
    command.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1");
    let output = command.output().expect("pkg-config");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_string).collect()
}

/// Compiles an example of `core/locks/examples` and runs it, behind `emulator` if it has one.
fn counts(compiler: &[&str], example: &str, of: &str, emulator: &[&str]) {
    let out = scratch().join(format!("installed-{of}"));
    let mut compile = Command::new(compiler[0]);
    compile.args(&compiler[1..]).args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compile.args(pkg_config("--cflags")).arg(locks_dir().join("examples").join(example));
    check(compile.arg("-o").arg(&out)).unwrap_or_else(|said| panic!("{of}: {said}"));
    let words: Vec<&str> = emulator.iter().copied().chain([out.to_str().unwrap()]).collect();
    says_the_count(Command::new(words[0]).args(&words[1..]));
}

fn says_the_count(example: &mut Command) {
    let output = example.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200000\n", "{example:?}: {output:?}");
}

#[test]
fn the_examples_count() {
    assert_eq!(pkg_config("--modversion"), [env!("CARGO_PKG_VERSION")]);
    counts(&["cc", "-std=c11", "-D_DEFAULT_SOURCE"], "counter.c", "c11", &[]);
    counts(&["cc"], "counter.c", "c", &[]);
    for std in ["-std=c++17", "-std=c++20"] {
        counts(&["c++", std], "counter.cc", &format!("cxx{std}"), &[]);
    }
    if has("clang++") {
        counts(&["clang++", "-std=c++17"], "counter.cc", "clang-cxx", &[]);
    }
    if has("clang") {
        counts(&["clang", "-std=gnu11"], "counter.c", "clang", &[]);
    }
}

/// The folder's name has a space, which pkg-config's file must keep together.
#[test]
fn the_example_counts_below_a_prefix_with_a_space() {
    let place = scratch().join("installed here");
    let _ = std::fs::remove_dir_all(&place);
    let prefix = place.join("un spin");
    install(&format!("PREFIX={}", prefix.display()));
    let compile = r#"eval "cc $(pkg-config --cflags unspin-locks) -pthread \"$1\" -o \"$2\"""#;
    let program = place.join("counter");
    let mut shell = Command::new("sh");
    shell.env("PKG_CONFIG_PATH", prefix.join("share/pkgconfig")).args(["-c", compile, "sh"]);
    shell.arg(locks_dir().join("examples/counter.c")).arg(&program);
    check(&mut shell).unwrap_or_else(|said| panic!("{said}"));
    says_the_count(&mut Command::new(program));
}

/// Debian's musl-gcc, with the options that the message and the page name.
#[test]
fn the_example_counts_with_musl() {
    if !has("musl-gcc") {
        return;
    }
    let program = scratch().join("installed-musl");
    let compile = |options: &str| {
        let mut compile = Command::new("musl-gcc");
        compile.args(["-static", "-Wall", "-Wextra", "-Werror"]).args(options.split_whitespace());
        compile.arg("-I").arg(root().join("usr/include")).arg("-o").arg(&program);
        check(compile.arg(locks_dir().join("examples/counter.c")))
    };
    let said = compile("").expect_err("musl-gcc does not search the kernel's headers");
    let options = said.split("musl-gcc add ").nth(1).and_then(|rest| rest.split('"').next());
    let options = options.unwrap_or_else(|| panic!("it names no options: {said}"));
    let page = std::fs::read_to_string(locks_dir().join("../../docs/locks.md")).unwrap();
    assert!(page.contains(&format!("`{options}`")), "docs/locks.md has no {options}");
    compile(options).unwrap_or_else(|said| panic!("{said}"));
    says_the_count(&mut Command::new(program));
}

#[test]
fn the_examples_count_on_arm64() {
    for (compiler, example) in
        [("aarch64-linux-gnu-gcc", "counter.c"), ("aarch64-linux-gnu-g++", "counter.cc")]
    {
        if let Some(tool) = [compiler, "qemu-aarch64"].iter().find(|tool| !is_there(tool)) {
            println!("SKIPPED: {example} on arm64: no {tool} on this computer");
            continue;
        }
        let std = if example == "counter.c" { "-std=gnu11" } else { "-std=c++17" };
        counts(&[compiler, std, "-static"], example, compiler, &["qemu-aarch64"]);
    }
}

#[test]
fn the_examples_count_on_i386_with_64_bits_of_time() {
    let Some(i386) = i386() else { return };
    let compiler = ["cc", "-std=gnu11"];
    counts(&[&compiler[..], &i386, &TIME64].concat(), "counter.c", "i386", &[]);
    let library = Command::new("c++").arg("-print-file-name=32/libstdc++.a").output();
    // A whole path only if the file exists.
    if !library.unwrap().stdout.starts_with(b"/") {
        println!("SKIPPED: counter.cc on i386: no lib32stdc++-12-dev on this computer");
        return;
    }
    let compiler = ["c++", "-std=c++17"];
    counts(&[&compiler[..], &i386, &TIME64].concat(), "counter.cc", "i386-cxx", &[]);
}

/// A lock of each kind that a header has an initializer for.
fn made(include: &Path, header: &str) -> String {
    let text = std::fs::read_to_string(include.join("unspin").join(header)).unwrap();
    let kinds = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define UNSPIN_")?.split_once("_LOCK_INIT "));
    kinds.fold(String::new(), |all, (kind, _)| {
        all + &format!(
            "struct unspin_{}_lock of_{kind} = UNSPIN_{kind}_LOCK_INIT;\n",
            kind.to_lowercase()
        )
    })
}

/// Each header is complete by itself, in both compilers, and C++ names what to include instead.
#[test]
fn every_header_can_be_included_alone() {
    let include = root().join("usr/include");
    let source = scratch().join("alone.c");
    let (mut headers, clang) = (0, has("clang"));
    for entry in std::fs::read_dir(include.join("unspin")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Parts of env.h.
        if ["stats.h", "env_linux.h", "slice_linux.h"].contains(&name.as_str()) {
            continue;
        }
        headers += 1;
        std::fs::write(&source, format!("#include <unspin/{name}>\n{}", made(&include, &name)))
            .unwrap();
        let compiles = |compiler: &str, flags: &[&str]| {
            let language = if compiler.contains("++") { "c++" } else { "c" };
            let mut compile = Command::new(compiler);
            compile.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language]);
            check(compile.args(flags).arg("-I").arg(&include).arg(&source))
        };
        if name == "locks.hpp" {
            let strict =
                ["-pedantic", "-Wshadow", "-Wold-style-cast", "-Wzero-as-null-pointer-constant"];
            for compiler in ["c++", "clang++"] {
                if has(compiler) {
                    compiles(compiler, &strict).unwrap_or_else(|said| panic!("{name}: {said}"));
                }
            }
        } else {
            compiles("cc", &[]).unwrap_or_else(|said| panic!("{name}: {said}"));
            if clang {
                compiles("clang", &[]).unwrap_or_else(|said| panic!("{name}: {said}"));
            }
            if !["env_cpu.h", "headers_linux.h"].contains(&name.as_str()) {
                let said = compiles("c++", &[]).expect_err(&name);
                assert!(said.contains("a C++ program includes locks.hpp"), "{name}: {said}");
            }
        }
    }
    assert!(headers > 10, "{headers} headers");
}

/// Notes of the program, which `probes.rs` reads as perf and bpftrace do.
#[test]
fn a_program_has_probes_if_it_asks_for_them() {
    if !has_sdt() {
        return;
    }
    for (compiler, example) in
        [(["cc", "-std=gnu11"], "counter.c"), (["c++", "-std=c++17"], "counter.cc")]
    {
        for (flag, asked) in [("-DUNSPIN_LOCK_USDT", true), ("-DNO_PROBES", false)] {
            let of = format!("{}-probes-{asked}", compiler[0]);
            counts(&[compiler[0], compiler[1], flag], example, &of, &[]);
            let program = scratch().join(format!("installed-{of}"));
            let notes = Command::new("readelf").arg("-n").arg(program).output().unwrap();
            let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
            for probe in ["contended", "wait", "waited", "wake"] {
                let named = notes.lines().any(|line| line.trim() == format!("Name: {probe}"));
                assert_eq!(named, asked, "{of} {probe}: {notes}");
            }
        }
    }
}

/// What the classes add to the C functions.
#[test]
fn cxx_programs_may_limit_a_wait() {
    let source = scratch().join("timed.cc");
    std::fs::write(&source, TIMED).unwrap();
    let program = scratch().join("timed");
    for std in ["-std=c++11", "-std=c++20"] {
        let mut compile = Command::new("c++");
        compile.args([std, "-Wall", "-Wextra", "-Werror", "-pthread"]).args(pkg_config("--cflags"));
        check(compile.arg(&source).arg("-o").arg(&program))
            .unwrap_or_else(|said| panic!("{std}: {said}"));
        check(&mut Command::new(&program)).unwrap_or_else(|said| panic!("{std}: {said}"));
    }
}

const STDATOMIC: &str = r#"
#include <atomic>
#include <stdatomic.h>
#include <unspin/locks.hpp>

_Atomic(unsigned) n;

int main()
{
	unspin::lease lock;

	lock.lock();
	lock.unlock();
	atomic_store_explicit(&n, 1u, memory_order_relaxed);
}
"#;

/// C++'s own stdatomic.h (since 23; clang has it before) and the headers' names do not meet.
#[test]
fn cxx_programs_may_include_stdatomic_before() {
    let source = scratch().join("stdatomic.cc");
    std::fs::write(&source, STDATOMIC).unwrap();
    for compiler in [&["c++", "-std=c++23"], &["clang++", "-std=c++17"], &["clang++", "-std=c++20"]]
    {
        if has(compiler[0]) {
            let mut compile = Command::new(compiler[0]);
            compile.args([compiler[1], "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
            check(compile.args(pkg_config("--cflags")).arg(&source))
                .unwrap_or_else(|said| panic!("{compiler:?}: {said}"));
        }
    }
}

#[test]
fn cxx_programs_have_no_statistics() {
    let mut compile = Command::new("c++");
    compile.args(["-DUNSPIN_LOCK_STATS", "-fsyntax-only"]).args(pkg_config("--cflags"));
    let said = check(compile.arg(locks_dir().join("examples/counter.cc"))).expect_err("refused");
    assert!(said.contains("for C programs") && !said.contains("stats.h"), "{said}");
}

/// A program that a POSIX macro hides syscall() from is refused, not compiled with a warning.
#[test]
fn a_program_without_syscall_is_refused() {
    let include = root().join("usr/include");
    for flags in [&["-std=c11"][..], &["-std=gnu11", "-D_XOPEN_SOURCE=700"]] {
        let mut compile = Command::new("cc");
        compile.args(flags).arg("-I").arg(&include).arg("-fsyntax-only");
        let said = check(compile.arg(locks_dir().join("examples/counter.c"))).expect_err("refused");
        assert!(said.contains("hide syscall()"), "{said}");
    }
}

const TIMED: &str = r#"
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <thread>
#include <unspin/locks.hpp>

template <class Lock> static bool ends_in_time()
{
	using namespace std::chrono;
	Lock lock;
	std::unique_lock<Lock> held(lock);
	bool had[6];

	std::thread other([&] {
		had[0] = std::unique_lock<Lock>(lock, milliseconds(5)).owns_lock();
		had[1] = std::unique_lock<Lock>(lock, system_clock::now() - hours(1)).owns_lock();
		had[2] = std::unique_lock<Lock>(lock, steady_clock::time_point::min()).owns_lock();
		had[5] = std::unique_lock<Lock>(lock, duration<double>(NAN)).owns_lock();
	});
	other.join();
	std::thread waits([&] {
		had[3] = std::unique_lock<Lock>(lock, hours::max()).owns_lock();
		had[4] = std::unique_lock<Lock>(lock, time_point<system_clock, hours>::max()).owns_lock();
	});
	held.unlock();
	waits.join();
	return !had[0] && !had[1] && !had[2] && had[3] && had[4] && !had[5];
}

static void pass_us(int us)
{
	const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);

	while (std::chrono::steady_clock::now() < end)
		;
}

/* Tries of 100 ms to get a lock that another thread takes again and again. */
static int gets_a_busy_one(int tries)
{
	unspin::lease lock;
	std::atomic<bool> end{false};
	int got = 0;

	std::thread other([&] {
		while (!end) {
			std::lock_guard<unspin::lease> guard(lock);
			pass_us(10);
		}
	});
	for (int i = 0; i < tries; i++) {
		pass_us(500);
		if (lock.try_lock_for(std::chrono::milliseconds(100))) {
			got++;
			lock.unlock();
		}
	}
	end = true;
	other.join();
	return got;
}

int main()
{
	const bool good = ends_in_time<unspin::lease>() && ends_in_time<unspin::tas_nap>();
	const int got = gets_a_busy_one(20);

	std::printf("%s, %d of 20\n", good ? "good" : "a limit is wrong", got);
	return !good || got < 19;
}
"#;

#[test]
fn cmake_finds_it() {
    if !has("cmake") {
        return;
    }
    let dir = scratch().join("installed-cmake");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let example = locks_dir().join("examples/counter.cc");
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(counter CXX)\n\
         find_package(unspin-locks {} REQUIRED)\nfind_package(Threads REQUIRED)\n\
         set(CMAKE_CXX_STANDARD 17)\nadd_executable(counter {})\n\
         target_link_libraries(counter unspin::locks Threads::Threads)\n",
        env!("CARGO_PKG_VERSION"),
        example.display()
    );
    std::fs::write(dir.join("CMakeLists.txt"), text).unwrap();
    let build = dir.join("build");
    let configure = |build: &Path| {
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&dir).arg("-B").arg(build);
        check(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", root().join("usr").display())))
    };
    configure(&build).expect("it is found");
    check(Command::new("cmake").arg("--build").arg(&build)).expect("it compiles");
    says_the_count(&mut Command::new(build.join("counter")));
    for (asked, is_found) in [
        ("0.0.1...99", true),
        ("0.0.1...0.0.9", false),
        (concat!("0.0.1...<", env!("CARGO_PKG_VERSION")), false),
        ("REQUIRED COMPONENTS lease", false),
        ("OPTIONAL_COMPONENTS lease", true),
    ] {
        let text = format!(
            "cmake_minimum_required(VERSION 3.19)\nproject(asks NONE)\n\
             find_package(unspin-locks {asked})\nif(NOT unspin-locks_FOUND)\n\
             message(FATAL_ERROR \"it is not found\")\nendif()\n"
        );
        std::fs::write(dir.join("CMakeLists.txt"), text).unwrap();
        assert_eq!(configure(&dir.join("asks")).is_ok(), is_found, "{asked}");
    }
}
