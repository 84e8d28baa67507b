// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin run` as users see it.

mod common;

use common::text;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A separate home directory, so that the test can read the stored library (root's is elsewhere).
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn command(args: &[&str]) -> Command {
    let mut command = common::command(&[&["run"], args].concat());
    command.env("HOME", scratch("home")).env_remove("XDG_CACHE_HOME");
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn compiled(name: &str, flags: &[&str], source: &Path) -> String {
    let out = scratch("run").join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread"]).args(flags).arg(source).arg("-o").arg(&out);
    assert!(cc.status().unwrap().success());
    out.display().to_string()
}

fn cc(name: &str, flags: &[&str]) -> String {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/threads/programs");
    compiled(name, flags, &programs.join("posix_spin.c"))
}

/// A program of this C text.
fn cc_text(name: &str, text: &str) -> String {
    let source = scratch("run").join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    compiled(name, &[], &source)
}

#[test]
fn the_locks_are_taken_over_and_counted() {
    let program = cc("spins", &[]);
    let out = run(&["--verbose", "--lock", "pv_preemptable", "--mutex", "--", &program, "codes"]);
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.starts_with("unspin: spins["), "{said}");
    assert!(
        said.contains(
            "]: pv_preemptable spin locks 6 taken, 0 waited for; pv_preemptable mutexes 0"
        ),
        "{said}"
    );
    let out = run(&["--", &program, "codes"]);
    assert!(out.status.success() && out.stderr.is_empty() && out.stdout.is_empty());
}

#[test]
fn settings_reach_the_program_and_what_is_set_stays() {
    let mut command = command(&["--tau-us", "1.5", "--mutex", "--", "sh", "-c"]);
    command
        .arg("echo $UNSPIN_LOCK $UNSPIN_MUTEX $UNSPIN_TAU_NS $LD_PRELOAD $0 $1")
        .args(["a", "b c"]);
    command.env("UNSPIN_LOCK", "preemptable").env("LD_PRELOAD", "libm.so.6");
    let out = command.output().unwrap();
    let said = text(&out.stdout);
    assert!(said.starts_with("preemptable 1 1500 libm.so.6:/"), "{said} {}", text(&out.stderr));
    assert!(said.ends_with(" a b c\n"), "{said}");
}

#[test]
fn exit_codes_are_the_programs() {
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    for (args, code, words) in [
        (["--lock", "nosuch", "true"], 2, "preemptable"),
        (["--lock", "lease", "true"], 2, "add --mutex"),
        (["--tau-us", "soon", "true"], 2, "microseconds"),
        (
            ["--tau-us", "5", "true"],
            2,
            "--tau-us needs --lock preemptable or --lock pv_preemptable",
        ),
        (["--", "nosuch-program", "x"], 2, "nosuch-program: program not found"),
        (["--", "", "x"], 2, "no program name given"),
        (["--", "/etc/passwd/x", "x"], 2, "program not found: Not a directory"),
        (
            ["--", "/etc/passwd", "x"],
            77,
            "cannot start /etc/passwd: it is not executable: chmod +x",
        ),
        (["--", "/etc", "x"], 77, "cannot start /etc: it is a directory"),
        (["--", "/dev/null", "x"], 77, "cannot start /dev/null: it is not a regular file"),
    ] {
        let out = run(&args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let out = run(&["--tau-us", "5", "--lock", "tas", "true"]);
    assert_eq!(out.status.code(), Some(2), "a lock without tau");
}

/// A file of this mode in a directory for the tests of programs that cannot start.
fn file(name: &str, mode: u32, bytes: &[u8]) -> String {
    let path = scratch("refused").join(name);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

#[test]
fn what_keeps_a_program_from_starting_is_named() {
    let interpreter = file("not-executable", 0o644, b"");
    let script = |name: &str, line: &str| file(name, 0o755, format!("#!{line}\n").as_bytes());
    let mut linker = std::fs::read(cc("no-linker", &[])).unwrap();
    let name = linker.windows(9).position(|bytes| bytes == b"/lib64/ld").unwrap();
    linker[name + 1] = b'L';
    let chain = script("needs-no-such", "/no/such/interpreter");
    for (program, words) in [
        (chain.clone(), "its interpreter /no/such/interpreter is missing: install it, or correct"),
        (script("chain", &chain), "its interpreter /no/such/interpreter is missing"),
        (script("windows", "/bin/sh\r"), "/bin/sh is followed by a carriage return"),
        (script("no-x", &interpreter), "not-executable is not executable: chmod +x"),
        (script("directory", "/etc"), "its interpreter /etc is a directory"),
        (
            file("no-linker", 0o755, &linker),
            "dynamic linker /Lib64/ld-linux-x86-64.so.2 is missing",
        ),
    ] {
        let out = run(&["--", &program]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(77), "{program}: {said}");
        assert!(said.contains(words) && !said.contains("os error"), "{program}: {said}");
    }
}

#[test]
fn a_program_in_the_path_that_cannot_start_is_named() {
    let (dir, other) = (scratch("refused-in-path"), scratch("refused-in-path/other"));
    for (name, words) in [
        ("loop", "loop: Too many levels of symbolic links"),
        ("dangling", "dangling: it is a symbolic link to something that is missing"),
        ("no-x", "no-x: it is not executable: chmod +x"),
        ("other", "other: it is a directory"),
    ] {
        let path = dir.join(name);
        let _ = match name {
            "loop" => std::os::unix::fs::symlink("loop", &path),
            "dangling" => std::os::unix::fs::symlink("nowhere", &path),
            "no-x" => std::fs::write(&path, "#!/bin/sh\n"),
            _ => Ok(()),
        };
        let path = format!("{}:/bin", dir.display());
        let out = command(&["--", name]).env("PATH", path).output().unwrap();
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(77) && said.contains(words), "{name}: {said}");
    }
    // One that can start comes later.
    let later = other.join("no-x");
    common::script::script(&later, "exit 7");
    let path = format!("{}:{}", dir.display(), other.display());
    assert_eq!(command(&["--", "no-x"]).env("PATH", path).status().unwrap().code(), Some(7));
}

#[test]
fn a_program_it_has_no_effect_on_is_named_and_run() {
    let program = cc("static", &["-static"]);
    let out = run(&["--verbose", "--", &program, "codes"]);
    assert!(out.status.success());
    assert_eq!(
        text(&out.stderr),
        format!("unspin: no effect on {program}: it is statically linked\n")
    );
    let linker = "/lib64/ld-linux-x86-64.so.2";
    if Path::new(linker).exists() {
        let said =
            text(&run(&["--verbose", "--", linker, &cc("spins-by-ld", &[]), "codes"]).stderr);
        assert!(said.contains("spin locks 6 taken") && !said.contains("no effect"), "{said}");
    }
    for (name, line) in
        [("static-1", format!(" {program} codes")), ("static-2", format!("/usr/bin/env {program}"))]
    {
        let script = file(name, 0o755, format!("#!{line}\n").as_bytes());
        let said = text(&run(&["--", &script]).stderr);
        assert!(said.contains("statically linked"), "{line}: {said}");
    }
}

/// Only root can make a file of another user.
#[test]
fn a_setuid_program_without_new_privileges_is_an_ordinary_one() {
    let program = scratch("run").join("setuid");
    std::fs::copy("/bin/true", &program).unwrap();
    if std::os::unix::fs::chown(&program, Some(65534), None).is_err() {
        println!("SKIPPED: not root");
        return;
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = command(&["--", program.to_str().unwrap()]);
    let said = text(&command.output().unwrap().stderr);
    if said.is_empty() {
        println!("SKIPPED: mounted nosuid, or no new privileges here");
        return;
    }
    assert!(said.contains("it is setuid"), "{said}");
    // SAFETY: prctl() may be called between fork() and exec().
    unsafe {
        command.pre_exec(|| {
            let (yes, zero): (libc::c_ulong, libc::c_ulong) = (1, 0);
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, zero, zero, zero);
            Ok(())
        });
    }
    let out = command.output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
}

#[test]
fn what_the_environment_asks_in_vain_is_told() {
    let mut command = command(&["true"]);
    let out = command.env("UNSPIN_LOCK", "lease").output().unwrap();
    let said = text(&out.stderr);
    let words = "no effect: UNSPIN_LOCK=lease is too large for spin locks: add --mutex";
    assert!(out.status.success() && said.contains(words), "{said}");
    command.env("UNSPIN_MUTEX", "1");
    assert!(command.output().unwrap().stderr.is_empty());
}

#[test]
fn an_ignored_sigpipe_stays_ignored() {
    let status = |before: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{before}exec \"$0\" run -- grep SigIgn /proc/self/status"));
        command.arg(env!("CARGO_BIN_EXE_unspin")).env("HOME", scratch("home"));
        let said = text(&command.output().unwrap().stdout);
        let mask = said.trim().rsplit('\t').next().unwrap();
        u64::from_str_radix(mask, 16).unwrap_or_else(|_| panic!("{said}"))
    };
    let sigpipe = 1 << (libc::SIGPIPE - 1);
    assert_eq!(status("trap '' PIPE; ") & sigpipe, sigpipe);
    assert_eq!(status("") & sigpipe, 0);
}

#[test]
fn a_closed_output_stays_closed() {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" run -- /bin/echo hi >&-"]).arg(env!("CARGO_BIN_EXE_unspin"));
    let out = command.env("HOME", scratch("home")).env("LC_ALL", "C").output().unwrap();
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.contains("Bad file descriptor"), "{said}");
}

const ENVIRONMENT: &str = r#"
#include <stdio.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
	char *odd[] = { "B=1", "no assignment", "A=2", "B=3", "LD_PRELOAD=", "LD_PRELOAD=libm.so.6", NULL };

	if (argc > 1)
		return execve(argv[1], argv + 1, odd);
	for (; *environ; environ++)
		puts(*environ);
	return 0;
}
"#;

#[test]
fn the_environment_stays_as_it_is() {
    let program = cc_text("environment", ENVIRONMENT);
    let mut command = Command::new(&program);
    command.args([env!("CARGO_BIN_EXE_unspin"), "run", "--mutex", "--"]).arg(&program);
    let said = text(&command.output().unwrap().stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..4], ["B=1", "no assignment", "A=2", "B=3"], "{said}");
    assert!(lines[4].starts_with("LD_PRELOAD=libm.so.6:/"), "the last is kept: {said}");
    assert_eq!(lines[5..], ["UNSPIN_MUTEX=1"], "{said}");
}

const DAEMON: &str = r#"
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int file;

	(void)argc;
	if (*argv[2])
		close(2);
	file = open(argv[1], O_CREAT | O_TRUNC | O_RDWR, 0644);
	return (*argv[2] && file != 2) || write(file, "data\n", 5) != 5;
}
"#;

/// A daemon closes its descriptors, and what it opens next gets their numbers.
#[test]
fn counts_stay_out_of_the_programs_files() {
    let program = cc_text("daemon", DAEMON);
    let (data, said) = (scratch("run").join("data"), scratch("run").join("said"));
    for (closes, counts) in [("2", false), ("", true)] {
        let mut command = command(&["--verbose", "--", &program, data.to_str().unwrap(), closes]);
        command.stderr(std::fs::File::create(&said).unwrap());
        assert!(command.status().unwrap().success());
        assert_eq!(std::fs::read_to_string(&data).unwrap(), "data\n");
        assert_eq!(std::fs::read_to_string(&said).unwrap().contains("spin locks"), counts);
    }
}
