// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin run` as users see it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A separate home directory, so that the test can read the stored library (root's is elsewhere).
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.arg("run").args(args).env("HOME", scratch("home")).env_remove("XDG_CACHE_HOME");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn cc(name: &str, flags: &[&str]) -> String {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/threads/programs/posix_spin.c");
    let out = scratch("run").join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread"]).args(flags).arg(source).arg("-o").arg(&out);
    assert!(cc.status().unwrap().success());
    out.display().to_string()
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.args(["run", "--tau-us", "1.5", "--mutex", "--", "sh", "-c"]);
    command
        .arg("echo $UNSPIN_LOCK $UNSPIN_MUTEX $UNSPIN_TAU_NS $LD_PRELOAD $0 $1")
        .args(["a", "b c"]);
    command.env("UNSPIN_LOCK", "tas").env("LD_PRELOAD", "libm.so.6");
    let out = command.env("HOME", scratch("home")).output().unwrap();
    let said = text(&out.stdout);
    assert!(said.starts_with("tas 1 1500 libm.so.6:/"), "{said} {}", text(&out.stderr));
    assert!(said.ends_with(" a b c\n"), "{said}");
}

#[test]
fn exit_codes_are_the_programs() {
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    for (args, code, words) in [
        (["--lock", "nosuch", "true"], 2, "preemptable"),
        (["--lock", "lease", "true"], 2, "add --mutex"),
        (["--tau-us", "soon", "true"], 2, "microseconds"),
        (["--", "nosuch-program", "x"], 2, "nosuch-program: program not found"),
        (["--", "/etc/passwd", "x"], 77, "cannot start /etc/passwd"),
    ] {
        let out = run(&args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
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
    let script = scratch("run").join("script");
    std::fs::write(&script, format!("#! {program} codes\n")).unwrap();
    let mut chmod = Command::new("chmod");
    assert!(chmod.arg("+x").arg(&script).status().unwrap().success());
    let said = text(&run(&["--", script.to_str().unwrap()]).stderr);
    assert!(said.contains("statically linked"), "{said}");
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
    let source = scratch("run").join("daemon.c");
    std::fs::write(&source, DAEMON).unwrap();
    let program = scratch("run").join("daemon");
    let mut cc = Command::new("cc");
    assert!(cc.arg(&source).arg("-o").arg(&program).status().unwrap().success());
    let (data, said) = (scratch("run").join("data"), scratch("run").join("said"));
    for (closes, counts) in [("2", false), ("", true)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
        command.args(["run", "--verbose", "--"]).arg(&program).arg(&data).args([closes]);
        command.env("HOME", scratch("home")).stderr(std::fs::File::create(&said).unwrap());
        assert!(command.status().unwrap().success());
        assert_eq!(std::fs::read_to_string(&data).unwrap(), "data\n");
        assert_eq!(std::fs::read_to_string(&said).unwrap().contains("spin locks"), counts);
    }
}

#[test]
fn the_manual_tells_the_settings() {
    let dir = scratch("man");
    let mut man = Command::new(env!("CARGO_BIN_EXE_unspin"));
    assert!(man.arg("man").arg(&dir).status().unwrap().success());
    let page = std::fs::read_to_string(dir.join("unspin-run.1")).unwrap();
    for setting in ["UNSPIN_LOCK", "UNSPIN_MUTEX", "UNSPIN_TAU_NS", "UNSPIN_VERBOSE", "LD_PRELOAD"]
    {
        assert!(page.contains(setting), "{setting}");
    }
    assert!(page.contains("\\-\\-tau\\-us"), "{page}");
}
