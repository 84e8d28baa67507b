// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes of a program that is compiled with `UNSPIN_LOCK_USDT`, and of the library that `unspin run` preloads, as
//! perf and bpftrace read them: notes in the file say where they are, and the kernel counts how often threads come by.

mod common;

use common::{build, check, has_sdt, library, locks_dir, scratch};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often a thread of the program waits.
const ROUNDS: u64 = 5;
/// Each probe, and the number of its arguments.
const PROBES: [(&str, usize); 4] = [("contended", 1), ("wait", 2), ("waited", 2), ("wake", 2)];

/// `of` tells apart the tests that build it. perf knows programs by their build ID.
fn program(of: &str) -> PathBuf {
    let rounds = format!("-DROUNDS={ROUNDS}");
    build(&locks_dir(), "probes", of, &["-DUNSPIN_LOCK_USDT", &rounds, "-Wl,--build-id"])
}

fn output(command: &mut Command) -> String {
    let output =
        command.env("LC_ALL", "C").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn hex(text: &str) -> u64 {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// A place of the program at which a probe fires.
struct Place {
    probe: String,
    arguments: usize,
    /// In the file.
    offset: u64,
}

/// Those that the notes of the file name. A probe has one for each copy of an inline function.
fn places(program: &Path) -> Vec<Place> {
    let headers = output(Command::new("readelf").arg("-lW").arg(program));
    // Of each loaded part: where it is in the file, its address and its length.
    let parts: Vec<[u64; 3]> = headers
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.first() == Some(&"LOAD"))
        .map(|words| [words[1], words[2], words[4]].map(hex))
        .collect();
    let in_file = |address: u64| {
        let part = parts.iter().find(|part| address >= part[1] && address - part[1] < part[2]);
        let part = part.unwrap_or_else(|| panic!("{address:#x} is not in the file: {headers}"));
        address - part[1] + part[0]
    };
    let notes = output(Command::new("readelf").arg("-n").arg(program));
    let place = |note: &str| {
        let field = |name: &str| {
            let field = note.lines().find_map(|line| line.trim().strip_prefix(name));
            field.unwrap_or_else(|| panic!("no {name} in {note}")).trim().to_string()
        };
        let location = field("Location:");
        Place {
            probe: field("Name:"),
            arguments: field("Arguments:").split_whitespace().count(),
            offset: in_file(hex(location.split(',').next().unwrap())),
        }
    };
    notes.split("Provider: unspin\n").skip(1).map(place).collect()
}

/// Counts of a place, one for each CPU. When they are closed, the kernel removes the probe. Counts of one process
/// with its children would not do: the kernel copies them to each thread, and reads the path in its memory.
fn watch(program: &Path, place: &Place) -> io::Result<Vec<File>> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let kind: u64 = kind.trim().parse().expect("a number");
    let path = CString::new(program.as_os_str().as_bytes()).unwrap();
    // The first members of the kernel's `struct perf_event_attr`, up to the offset: 72 bytes.
    let attr = [kind | (72 << 32), 0, 0, 0, 0, 0, 0, path.as_ptr() as u64, place.offset];
    // SAFETY: it has no preconditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let [any, cloexec]: [libc::c_long; 2] = [-1, 8];
    let mut counts = Vec::new();
    for cpu in 0..cpus {
        // SAFETY: the kernel reads `attr` and the path, which live as long as the call.
        let file = unsafe {
            libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), any, cpu, any, cloexec)
        };
        if file < 0 {
            let error = io::Error::last_os_error();
            // A CPU that is off.
            if error.raw_os_error() == Some(libc::ENODEV) {
                continue;
            }
            return Err(error);
        }
        // SAFETY: nothing else has this descriptor.
        counts.push(unsafe { File::from_raw_fd(file as i32) });
    }
    Ok(counts)
}

fn sum(counts: &[File]) -> u64 {
    let read = |mut count: &File| {
        let mut bytes = [0; 8];
        count.read_exact(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    };
    counts.iter().map(read).sum()
}

/// Runs a command and gives how often each of [`PROBES`] of a file fired, or none if the kernel does not count.
fn fired(file: &Path, command: &mut Command) -> Option<[u64; 4]> {
    let places = places(file);
    for (probe, arguments) in PROBES {
        let of: Vec<_> = places.iter().filter(|place| place.probe == probe).collect();
        assert!(!of.is_empty(), "no note of {probe}");
        assert!(of.iter().all(|place| place.arguments == arguments), "arguments of {probe}");
    }
    let watched: io::Result<Vec<_>> =
        places.iter().map(|place| Ok((place, watch(file, place)?))).collect();
    let watched = match watched {
        Ok(watched) => watched,
        Err(error) => {
            // No uprobes in this kernel, or not for this user.
            let refused = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENOSYS];
            let code = error.raw_os_error().expect("an error of the kernel");
            assert!(refused.contains(&code), "{error}");
            println!("SKIPPED: counting probes: this kernel lets this user count none: {error}");
            return None;
        }
    };
    check(command).unwrap_or_else(|said| panic!("{said}"));
    Some(PROBES.map(|(probe, _)| -> u64 {
        let of = watched.iter().filter(|(place, _)| place.probe == probe);
        of.map(|(_, counts)| sum(counts)).sum()
    }))
}

#[test]
fn probes_fire_when_threads_wait() {
    if !has_sdt() {
        return;
    }
    let program = program("counted");
    let Some([contended, wait, waited, wake]) = fired(&program, &mut Command::new(&program)) else {
        return;
    };
    assert_eq!((contended, wake), (ROUNDS, ROUNDS), "once in each round");
    assert!(wait >= ROUNDS && waited == wait, "{wait} halts, {waited} ends of halts");
}

/// The program has none of its own.
#[test]
fn probes_of_unspin_run_fire_when_threads_wait() {
    if !has_sdt() {
        return;
    }
    let library = library(&locks_dir().join("interpose"), "libprobes");
    let rounds = format!("-DROUNDS={ROUNDS}");
    let program = build(&locks_dir(), "probes", "preloaded", &["-DPRELOADED", &rounds]);
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", &library).env("UNSPIN_LOCK", "pv_preemptable");
    let Some([contended, wait, waited, wake]) = fired(&library, &mut command) else { return };
    assert_eq!(contended, ROUNDS, "once in each round");
    // A waiter that halts again while it is woken makes its own release wake, too.
    assert!((ROUNDS..=2 * ROUNDS).contains(&wake), "{wake} times a thread woke others");
    assert!(wait >= ROUNDS && waited == wait, "{wait} halts, {waited} ends of halts");
}

/// In a cache of its own, so that nothing stays on this computer.
#[test]
fn perf_lists_the_probes() {
    if !has_sdt() {
        return;
    }
    // Ubuntu's perf is a script that fails if there is none for the kernel.
    if !Command::new("perf").arg("--version").output().is_ok_and(|said| said.status.success()) {
        println!("SKIPPED: what perf lists: no perf on this computer");
        return;
    }
    let (program, cache) = (program("listed"), scratch().join("perf-cache"));
    let _ = std::fs::remove_dir_all(&cache);
    let perf =
        |words: &[&str]| output(Command::new("perf").arg("--buildid-dir").arg(&cache).args(words));
    perf(&["buildid-cache", "--add", program.to_str().unwrap()]);
    let listed = perf(&["list", "sdt"]);
    for (probe, _) in PROBES {
        let name = format!("sdt_unspin:{probe}");
        // perf may name the program behind an @.
        let is_it = |word: &str| word.split('@').next() == Some(name.as_str());
        assert!(listed.split_whitespace().any(is_it), "no {name}: {listed}");
    }
}
