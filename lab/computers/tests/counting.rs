// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library that counts a program's calls (guest/linux/count.c) and the runner that starts programs
//! in a guest (guest/linux/runner.c), on this computer: the shared area is a file.

mod common;

use common::area::area_file;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unspin_computers::source_tree;
use unspin_guest_abi::area::{self, Area, Mapped};
use unspin_scratch::Scratch;
use unspin_vmm::ends_with_this_thread;

/// The directory of compiled programs.
struct Built {
    dir: Scratch,
}

impl Built {
    fn new() -> Built {
        Built { dir: Scratch::new() }
    }

    fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let target = self.dir.join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]).args(flags);
        gcc.arg("-o").arg(&target).arg(source_tree().join(source));
        assert!(gcc.status().expect("gcc").success(), "{source}");
        target
    }

    fn library(&self) -> PathBuf {
        let flags = ["-fPIC", "-shared", "-mgeneral-regs-only"];
        self.compile("libunspin-count.so", "lab/guest/linux/count.c", &flags)
    }

    fn area(&self) -> Mapped {
        area_file(&self.dir.join("area"), 0, area::BYTES as u64)
    }
}

/// A program of calls (counting.c) under the library.
struct Counted {
    built: Built,
    library: PathBuf,
    program: PathBuf,
    area: Mapped,
}

impl Counted {
    fn new() -> Counted {
        let built = Built::new();
        let (library, area) = (built.library(), built.area());
        let flags = ["-pthread", "-Wl,-z,now"];
        let program = built.compile("calls", "lab/computers/tests/counting.c", &flags);
        area.guest.version.store(area::VERSION, Ordering::Relaxed);
        area.guest.magic.store(area::MAGIC, Ordering::Release);
        Counted { built, library, program, area }
    }

    fn run_in(&self, area: &Path, counts: &str, arguments: &[&str]) -> Output {
        let mut program = Command::new(&self.program);
        program.env("UNSPIN_AREA", area).env("UNSPIN_COUNT", counts);
        program.env("LD_PRELOAD", &self.library).args(arguments).output().unwrap()
    }

    /// Units and slots that a run takes.
    #[track_caller]
    fn counts(&self, counts: &str, arguments: &[&str]) -> (u64, u32) {
        let before = (self.area.units(), self.area.next_slot.load(Ordering::Relaxed));
        let out = self.run_in(&self.built.dir.join("area"), counts, arguments);
        assert!(out.status.success(), "{arguments:?}: {out:?}");
        let after = (self.area.units(), self.area.next_slot.load(Ordering::Relaxed));
        (after.0 - before.0, after.1 - before.1)
    }
}

#[test]
fn every_call_of_every_thread_and_process_counts_once() {
    let calls = Counted::new();
    // Few: where other programs are busy a thread that yields waits some ms for its next turn.
    assert_eq!(calls.counts("sched_yield", &["threads", "16", "250"]), (4000, 16));
    // The parent and its children.
    assert_eq!(calls.counts("sched_yield", &["forks", "12", "200"]), (4800, 13));
    assert_eq!(calls.counts("sched_yield", &["exec", "5"]), (5, 5));
    // More threads than slots: some count in one, at the same time and one after the other.
    let many = area::SLOTS + 1;
    let slots = many as u32;
    let at_once = ["shared", &many.to_string(), "2000000"];
    assert_eq!(calls.counts("getppid", &at_once), (4_000_000 + many as u64, slots));
    let in_turn = ["turns", &many.to_string()];
    assert_eq!(calls.counts("sched_yield", &in_turn), (many as u64, slots));
    assert_eq!(calls.counts("madvise,semop", &["threads", "4", "100"]), (0, 0));
}

#[test]
fn calls_get_their_arguments_and_give_their_results() {
    let calls = Counted::new();
    let counted = "open,fcntl,write,pread,mmap,syscall,close,unlink";
    // The functions of counting.c's `pass`; counted or not, the program checks the values they
    // return.
    assert_eq!(calls.counts(counted, &["pass"]).0, 12);
    assert_eq!(calls.counts("semop", &["pass"]), (0, 0));
    assert!(calls.counts("malloc,calloc,realloc,free", &["pass"]).0 >= 3);
}

/// As the head of count.c and docs/linux-guests.md say.
#[test]
fn a_count_takes_eight_instructions() {
    let calls = Counted::new();
    let steps = |output: Output| -> Option<i64> {
        if output.status.code() == Some(77) {
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        Some(text.lines().next().unwrap().parse().unwrap())
    };
    let bare = Command::new(&calls.program).arg("steps").output().unwrap();
    let Some(bare) = steps(bare) else {
        common::say("SKIPPED: steps of a count: this computer lets nobody trace programs");
        return;
    };
    let file = calls.built.dir.join("area");
    let under = |counts: &str| steps(calls.run_in(&file, counts, &["steps"])).unwrap() - bare;
    assert_eq!((under("sched_yield"), under("semop")), (8, 3));
}

#[test]
fn a_program_that_cannot_be_counted_does_not_run() {
    let calls = Counted::new();
    let file = calls.built.dir.join("area");
    let bad = |name: &str, contents: &[u8]| {
        let path = calls.built.dir.join(name);
        fs::write(&path, contents).unwrap();
        path
    };
    let (short, empty) = (bad("short", &[0; 100]), bad("empty", &vec![0; area::BYTES]));
    let missing = calls.built.dir.join("missing");
    for (area, counts, words) in [
        (&short, "read", "it must be 65536 bytes long"),
        (&empty, "read", "its runner has not come up"),
        (&missing, "read", "No such file"),
        (&file, "", "names no function"),
        (&file, "read,lseek,nonsense", "names nonsense"),
        (&file, "read,", "UNSPIN_COUNT names "),
    ] {
        let out = calls.run_in(area, counts, &["pass"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{said}");
        assert!(said.starts_with("unspin: ") && said.contains(words), "{said}");
    }
    calls.area.guest.version.store(area::VERSION + 1, Ordering::Relaxed);
    let out = calls.run_in(&file, "read", &["pass"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
}

/// The runner as a child of this test: it serves the area in a file.
struct Runner {
    /// Before the programs' names, whose directories in /tmp are this computer's.
    prefix: String,
    built: Built,
    library: PathBuf,
    area: Mapped,
    child: Child,
    serial: u32,
}

/// Long enough that only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(300);

impl Runner {
    fn new(test: &str) -> Runner {
        Runner::with(test, &[])
    }

    fn with(test: &str, flags: &[&str]) -> Runner {
        let built = Built::new();
        let (library, area) = (built.library(), built.area());
        built.compile("runner", "lab/guest/linux/runner.c", &[&["-static"], flags].concat());
        let flags = ["-pthread", "-Wl,-z,now"];
        built.compile("calls", "lab/computers/tests/counting.c", &flags);
        let child = Runner::start(&built, &library);
        let prefix = format!("unspin-{}-{test}-", std::process::id());
        let runner = Runner { prefix, built, library, area, child, serial: 0 };
        runner.wait("ready", |area| area.guest.magic.load(Ordering::Acquire) == area::MAGIC);
        runner
    }

    fn start(built: &Built, library: &Path) -> Child {
        let mut runner = Command::new(built.dir.join("runner"));
        runner.env("UNSPIN_AREA", built.dir.join("area")).env("UNSPIN_PRELOAD", library);
        runner.env("UNSPIN_PROGRAMS", built.dir.join("programs")).env("dir", &built.dir);
        ends_with_this_thread(&mut runner, libc::SIGTERM);
        runner.stderr(Stdio::null()).process_group(0).spawn().unwrap()
    }

    fn program(&self, name: &str, counts: &str, prepare: &str, command: &str) {
        let dir = self.built.dir.join("programs").join(format!("{}{name}", self.prefix));
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in [("counts", counts), ("prepare", prepare), ("command", command)] {
            fs::write(dir.join(file), text).unwrap();
        }
    }

    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&Area) -> bool) {
        let start = Instant::now();
        while !is_so(&self.area) {
            let guest = &self.area.guest;
            assert!(
                start.elapsed() < PATIENCE,
                "no {what}: state {}, answered {}, {}",
                guest.state.load(Ordering::Relaxed),
                guest.answered.load(Ordering::Relaxed),
                self.error()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// No program, one of this test's, or a path.
    fn send(&mut self, name: &str, seed: u64) {
        let is_own = !name.is_empty() && !name.contains('/');
        let name = if is_own { format!("{}{name}", self.prefix) } else { name.to_string() };
        self.serial += 1;
        self.area.host.seed.store(seed, Ordering::Relaxed);
        assert!(area::set_text(&self.area.host.program, &name));
        self.area.host.serial.store(self.serial, Ordering::Release);
    }

    /// The state after a command was carried out.
    #[track_caller]
    fn run(&mut self, name: &str, seed: u64) -> u32 {
        self.send(name, seed);
        let serial = self.serial;
        self.wait("answer", |area| area.guest.answered.load(Ordering::Acquire) == serial);
        self.area.guest.state.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn wait_state(&self, state: u32) {
        self.wait(&format!("state {state}"), |area| {
            area.guest.state.load(Ordering::Acquire) == state
        });
    }

    fn error(&self) -> String {
        area::text(&self.area.error)
    }

    fn said(&self, file: &str) -> String {
        fs::read_to_string(self.built.dir.join(file)).unwrap_or_default()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // SAFETY: a signal to a child that is not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
        for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.prefix) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).join("stat").exists()
}

#[test]
fn a_program_runs_until_another_is_asked_for() {
    let mut runner = Runner::new("runs");
    let endless = "sched_yield";
    // Two processes, one of which will not be asked.
    let stubborn = "trap \"\" TERM; echo $$ > $dir/stubborn; while :; do sleep 100; done";
    let command = format!(
        "echo $seed $vcpus > $dir/seen; sh -c '{stubborn}' & exec $dir/calls threads 2 100000000000"
    );
    runner.program("endless", endless, "", &command);
    // Longer than the runner takes for soon.
    runner.program("once", endless, "", "$dir/calls threads 3 1000; exec sleep 0.1");
    assert_eq!(runner.area.guest.state.load(Ordering::Relaxed), area::STATE_READY);
    assert_eq!(runner.run("endless", 42), area::STATE_RUNS);
    let before = runner.area.units();
    runner.wait("units", |area| area.units() > before + 1000);
    let cpus = runner.area.guest.online.load(Ordering::Relaxed);
    assert_eq!(runner.said("seen"), format!("42 {cpus}\n"));
    runner.wait("stubborn process", |_| runner.said("stubborn").ends_with('\n'));
    let stubborn = runner.said("stubborn");
    assert!(is_alive(&stubborn));
    // The other ends by itself and is started again and again.
    assert_eq!(runner.run("once", 1), area::STATE_RUNS);
    assert!(!is_alive(&stubborn), "process {stubborn}");
    let before = runner.area.units();
    runner.wait("starts", |area| area.guest.starts.load(Ordering::Relaxed) > 3);
    assert_eq!(runner.run("", 0), area::STATE_READY);
    assert_eq!(runner.area.guest.pids.load(Ordering::Relaxed), 0);
    let counted = runner.area.units() - before;
    assert!(counted >= 6000, "{counted} units in two runs at least");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(runner.area.units() - before, counted);
    assert_eq!(runner.area.guest.starts.load(Ordering::Relaxed), 0);
}

#[test]
fn what_goes_wrong_with_a_program_is_said() {
    let clock = source_tree().join("lab/computers/tests/slow_clock.c");
    let mut runner = Runner::with("wrong", &["-Wl,--wrap=clock_gettime", clock.to_str().unwrap()]);
    runner.program("fails", "read", "", "echo all is lost; exit 3");
    runner.program("dies", "read", "", "kill -SEGV $$");
    runner.program("refused", "nonsense", "", "exec $dir/calls threads 1 1");
    runner.program("idle", "semop", "", "exec $dir/calls threads 1 1");
    runner.program("short", "sched_yield", "", "exec $dir/calls threads 1 1");
    runner.program("unprepared", "sched_yield", "echo no bread; false", "exit 0");
    let mut fails = |name: &str, state: u32, status: u32, words: &[&str]| {
        runner.run(name, 0);
        runner.wait_state(state);
        let found = runner.area.guest.exit_status.load(Ordering::Relaxed);
        let error = runner.error();
        assert_eq!(found, status, "{name}: {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{name}: {error}");
        assert_eq!(runner.area.guest.pids.load(Ordering::Relaxed), 0, "{name}");
    };
    fails("fails", area::STATE_FAILED, 3, &["ended with status 3", "all is lost"]);
    fails("dies", area::STATE_FAILED, 128 + 11, &["ended with status 139"]);
    fails("refused", area::STATE_FAILED, 1, &["UNSPIN_COUNT names nonsense"]);
    fails("idle", area::STATE_ENDED, 0, &["without having counted a unit", "done"]);
    fails("short", area::STATE_ENDED, 0, &["times in a row within"]);
    fails("unprepared", area::STATE_FAILED, 1, &["its preparation ended", "no bread"]);
    fails("unknown", area::STATE_FAILED, 0, &["no program of this name"]);
    fails("../programs/fails", area::STATE_FAILED, 0, &["no program of this name"]);
    // The next one finds nothing of that.
    assert_eq!(runner.run("", 0), area::STATE_READY);
    assert_eq!(runner.error(), "");
}

#[test]
fn a_program_is_prepared_once_and_another_need_not_wait_for_it() {
    let mut runner = Runner::new("prepared");
    let prepare = "sleep 0.2; echo made >> $dir/made; echo bread > $data/bread";
    let command = "cp $data/bread $dir/found; exec $dir/calls threads 1 100000000000";
    runner.program("made", "sched_yield", prepare, command);
    runner.program("slow", "sched_yield", "sleep 1000", "exit 0");
    for _ in 0..2 {
        let before = runner.area.units();
        assert_eq!(runner.run("made", 0), area::STATE_RUNS);
        runner.wait("units", |area| area.units() > before);
        assert_eq!(
            (runner.said("found"), runner.said("made")),
            ("bread\n".into(), "made\n".into())
        );
        // It sleeps when the next command comes.
        runner.send("slow", 0);
        std::thread::sleep(Duration::from_millis(200));
        assert_ne!(runner.area.guest.answered.load(Ordering::Relaxed), runner.serial);
    }
    assert_eq!(runner.run("", 0), area::STATE_READY);
}

#[test]
fn a_runner_that_comes_up_again_and_one_without_an_area_are_told() {
    let mut runner = Runner::new("again");
    let boots = || runner.area.guest.boots.load(Ordering::Relaxed);
    assert_eq!(boots(), 1);
    // SAFETY: a signal to a child that is not waited for yet.
    unsafe { libc::kill(runner.child.id() as i32, libc::SIGTERM) };
    assert!(runner.child.wait().unwrap().success());
    runner.child = Runner::start(&runner.built, &runner.library);
    runner.wait("boot", |area| area.guest.boots.load(Ordering::Relaxed) == 2);
    let mut lost = Command::new(runner.built.dir.join("runner"));
    let out = lost.env("UNSPIN_AREA", runner.built.dir.join("none")).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("memmap=64K$0x800000") && said.contains("No such file"), "{said}");
}

#[test]
fn answers_and_their_times_are_counted() {
    let calls = Counted::new();
    let program = calls.built.compile("answers", "lab/guest/linux/answers.c", &["-pthread"]);
    let area = calls.built.dir.join("area");
    let mut answers =
        Command::new(&program).env("UNSPIN_AREA", area).args(["2", "7"]).spawn().unwrap();
    let of = &calls.area.responses;
    let deadline = Instant::now() + Duration::from_secs(60);
    while of.count.load(Ordering::Relaxed) < 20 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    answers.kill().unwrap();
    answers.wait().unwrap();
    let count = of.count.load(Ordering::Relaxed);
    let in_buckets: u64 = of.hist.iter().map(|n| n.load(Ordering::Relaxed)).sum();
    assert!(count >= 20, "{count} answers in a minute");
    // Each of two threads may have been ended between two counts.
    assert!((count..=count + 2).contains(&in_buckets), "{in_buckets} of {count}");
    assert!(calls.area.units().abs_diff(count) <= 2, "{} of {count}", calls.area.units());
    // 40,000 steps of one multiplication each.
    assert!(of.cycles.load(Ordering::Relaxed) / count > 40_000);
}
