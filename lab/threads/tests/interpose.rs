// SPDX-License-Identifier: MIT OR Apache-2.0
//! `core/locks/interpose` under programs that ask what POSIX promises. Each runs over the C library alone
//! first: what it does is the reference. Then come wrong versions of the library, each of which a named
//! test must reject.

mod common;

use common::{
    check, has, in_parallel, library, locks_dir, once, programs_dir, scratch, SOURCES, VERSIONS,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use unspin_threads::locks::by_name;

/// Exports the programs' functions, of which one replaces the C library's.
const FLAGS: [&str; 7] =
    ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic"];
const MUTEX: (&str, &str) = ("UNSPIN_MUTEX", "1");

fn cc(source: &Path, out: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(out);
    let mut cc = Command::new("cc");
    cc.args(FLAGS).args(flags).arg("-I").arg(locks_dir()).arg(source).arg("-o").arg(&out);
    check(&mut cc).unwrap_or_else(|said| panic!("{}: {said}", source.display()));
    out
}

/// A program of `programs`.
fn program(name: &str) -> PathBuf {
    let source = programs_dir().join(name).with_extension("c");
    once(name, || cc(&source, &format!("{name}-all"), &[]))
}

fn real_library() -> PathBuf {
    once("library", || library(&locks_dir().join("interpose"), "libunspin-locks"))
}

fn over(library: &Path, program: &Path, lock: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library).env("UNSPIN_LOCK", lock).envs(settings.iter().copied());
    command
}

fn said(output: &Output) -> String {
    [output.stdout.as_slice(), &output.stderr].concat().iter().map(|b| *b as char).collect()
}

/// Runs it and gives the counts it ends with: spin locks taken, mutexes taken, mutexes left alone.
fn counts(command: &mut Command) -> [u64; 3] {
    let output = command.env("UNSPIN_VERBOSE", "1").output().expect("it starts");
    let said = said(&output);
    assert!(output.status.success(), "{command:?}: {said}");
    let last = said.lines().last().unwrap_or_default();
    let mut settings = command.get_envs();
    let lock =
        settings.find(|(name, _)| *name == "UNSPIN_LOCK").and_then(|(_, lock)| lock?.to_str());
    if let Some(lock) = lock.filter(|lock| !lock.is_empty()) {
        let named = [format!("]: {lock} spin locks"), format!("; {lock} mutexes")];
        assert!(named.iter().any(|n| last.contains(n)), "{lock} was asked for: {said}");
    }
    let number = |before: &str, after: &str| -> u64 {
        let text = last.split(before).nth(1).and_then(|t| t.split(after).next());
        text.and_then(|t| t.trim().parse().ok()).unwrap_or_else(|| panic!("no counts: {said}"))
    };
    let left = last.rsplit("waited for,").next().and_then(|t| t.split("left").next());
    [
        number("spin locks", "taken"),
        number("mutexes", "taken"),
        left.and_then(|t| t.trim().parse().ok()).unwrap_or_else(|| panic!("no counts: {said}")),
    ]
}

/// The locks that the library knows, as it says itself.
fn names(library: &Path) -> Vec<String> {
    let output = over(library, &program("posix_spin"), "nosuch", &[]).output().unwrap();
    let said = said(&output);
    let names = said.split("is not one of").nth(1).and_then(|t| t.split(';').next());
    let names = names.unwrap_or_else(|| panic!("no names: {said}")).split_whitespace();
    names.map(str::to_string).collect()
}

/// Locks of more than 4 bytes are for mutexes; spin locks are the C library's then.
fn fits_spin(lock: &str) -> bool {
    lock != "lease"
}

#[test]
fn spin_locks_keep_their_promises_over_every_lock() {
    let (program, library) = (program("posix_spin"), real_library());
    check(&mut Command::new(&program)).expect("the C library's own");
    let names = names(&library);
    assert!(names.len() >= 5, "{names:?}");
    in_parallel(&names, |lock| {
        assert!(by_name(lock).is_some_and(|l| !l.node), "{lock} is a lock of core/locks/");
        let [spins, mutexes, left] = counts(&mut over(&library, &program, lock, &[MUTEX]));
        assert!((spins > 10) == fits_spin(lock), "{lock}: {spins}");
        assert_eq!(mutexes + left, 0, "{lock}");
    });
    for tau in ["", "0", "not a number", "100000000000"] {
        let mut command = over(&library, &program, "preemptable", &[("UNSPIN_TAU_NS", tau)]);
        check(command.arg("-a_killed_waiter_blocks_nobody"))
            .unwrap_or_else(|e| panic!("{tau}: {e}"));
    }
}

#[test]
fn mutexes_return_what_the_c_library_returns() {
    let (program, library) = (program("posix_mutex"), real_library());
    check(&mut Command::new(&program)).expect("the C library's own");
    let [spins, mutexes, left] = counts(&mut over(&library, &program, "", &[MUTEX]));
    assert!(spins == 0 && mutexes > 10 && left > 10, "{spins} {mutexes} {left}");
    let [spins, mutexes, left] = counts(&mut over(&library, &program, "", &[]));
    assert_eq!((spins, mutexes, left), (0, 0, 0), "nobody asked for mutexes");
}

#[test]
fn contended_mutexes_and_conditions_work_over_every_lock() {
    let library = real_library();
    for name in ["posix_contend", "posix_cond"] {
        let program = program(name);
        check(&mut Command::new(&program)).expect("the C library's own");
        check(&mut over(&library, &program, "", &[])).expect("only spin locks are taken over");
        in_parallel(&names(&library), |lock| {
            let [_, mutexes, left] = counts(&mut over(&library, &program, lock, &[MUTEX]));
            assert!(mutexes > 10 && left > 10, "{name} {lock}: {mutexes} {left}");
        });
    }
}

/// As under an `unspin run` inside another one, or of another version: the first copy leaves mutexes to
/// the second.
#[test]
fn two_copies_of_the_library_do_not_mix() {
    let first = real_library();
    let second = library(&locks_dir().join("interpose"), "libunspin-locks-second");
    let both = PathBuf::from(format!("{}:{}", first.display(), second.display()));
    for name in ["posix_contend", "posix_cond"] {
        let program = program(name);
        for mutex in ["0", "1"] {
            check(&mut over(&both, &program, "", &[("UNSPIN_MUTEX", mutex)]))
                .unwrap_or_else(|said| panic!("{name}, UNSPIN_MUTEX={mutex}: {said}"));
        }
    }
}

#[test]
fn the_library_exports_only_what_it_replaces() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(real_library()).output();
    let names = String::from_utf8(output.unwrap().stdout).unwrap();
    let names = names.lines().filter_map(|line| line.split(' ').next_back());
    // The versions are listed, too.
    let names: Vec<_> = names.filter(|name| !name.starts_with("GLIBC_")).collect();
    assert!(names.len() > 5 && names.iter().all(|name| name.starts_with("pthread_")), "{names:?}");
}

#[test]
fn the_dynamic_linker_serves_a_program_as_before() {
    let (program, library) = (program("posix_linked"), real_library());
    check(&mut Command::new(&program)).expect("the C library's own");
    for mutex in ["0", "1"] {
        check(&mut over(&library, &program, "", &[("UNSPIN_MUTEX", mutex)]))
            .unwrap_or_else(|said| panic!("UNSPIN_MUTEX={mutex}: {said}"));
    }
}

/// A limit that docs/run.md tells: the waiter that is stopped is the one that asks for the mutex.
#[test]
fn a_stopped_waiter_delays_others_with_mutexes_only() {
    let (program, library) = (program("posix_stopped"), real_library());
    check(&mut Command::new(&program)).expect("the C library's own");
    check(&mut over(&library, &program, "", &[])).expect("only spin locks are taken over");
    let said = check(&mut over(&library, &program, "", &[MUTEX, ("HANGS_AFTER_S", "2")]))
        .expect_err("docs/run.md says that it hangs");
    assert!(said.contains("a_stopped_waiter_delays_nobody: hangs"), "{said}");
}

/// `unspin run -- sh -c ./program-of-musl`: the child loads the library, and keeps musl's locks.
#[test]
fn processes_of_another_c_library_start() {
    let library = real_library();
    let output = Command::new("readelf").args(["-d", "-W"]).arg(&library).output().unwrap();
    let said = said(&output);
    let needed: Vec<_> = said.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.len() == 1 && needed[0].contains("[libc.so.6]"), "{needed:?}");
    if !has("musl-gcc") {
        return;
    }
    let program = scratch().join("posix_spin-musl");
    let mut compile = Command::new("musl-gcc");
    compile.args(["-std=gnu11", "-O2", "-pthread"]).arg(programs_dir().join("posix_spin.c"));
    check(compile.arg("-o").arg(&program)).expect("it compiles");
    let mut shell = over(&library, Path::new("/bin/sh"), "tas", &[MUTEX]);
    shell.args(["-c", "\"$0\" codes"]).arg(&program);
    check(&mut shell).expect("it starts");
}

#[test]
fn realtime_threads_end_over_every_lock() {
    let (program, library) = (program("posix_realtime"), real_library());
    let alone = bounded(&mut Command::new(&program));
    if alone.contains("SKIPPED: ") {
        println!("{alone}");
        return;
    }
    for lock in names(&library) {
        bounded(&mut over(&library, &program, &lock, &[MUTEX]));
    }
}

/// Real-time threads that hang keep a CPU: a process group of their own, ended from outside.
fn bounded(command: &mut Command) -> String {
    let mut timeout = Command::new("timeout");
    timeout.args(["-k", "2", "120"]).arg(command.get_program());
    timeout.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = timeout.output().expect("timeout of coreutils");
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

#[test]
fn locks_work_before_constructors_and_in_what_is_loaded_late() {
    let (program, library) = (program("posix_early"), real_library());
    let source = programs_dir().join("posix_early.c");
    let object = cc(&source, "loaded-late.so", &["-DLOADED_LATE", "-shared", "-fPIC"]);
    check(Command::new(&program).arg(&object)).expect("the C library's own");
    for lock in names(&library) {
        let mut command = over(&library, &program, &lock, &[MUTEX]);
        let [spins, mutexes, _] = counts(command.arg(&object));
        // The object that is loaded with RTLD_DEEPBIND has the C library's for itself.
        assert_eq!((spins, mutexes), (if fits_spin(&lock) { 8 } else { 0 }, 11), "{lock}");
    }
}

#[test]
fn programs_in_other_languages_work_over_every_lock() {
    let library = real_library();
    let test = programs_dir();
    let cxx = scratch().join("posix_cxx");
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    check(compile.arg(test.join("posix_cxx.cc")).arg("-o").arg(&cxx)).expect("it compiles");
    let rust = scratch().join("posix_rust");
    let mut compile = Command::new("rustc");
    compile.args(["--edition", "2021", "-O"]).arg(test.join("posix_rust.rs"));
    check(compile.arg("-o").arg(&rust)).expect("it compiles");
    for (program, takes_spins) in [(cxx, false), (rust, true)] {
        check(&mut Command::new(&program)).expect("the C library's own");
        for lock in ["tas_nap", "preemptable", "pv_preemptable", "tas", "lease"] {
            let [spins, mutexes, _] = counts(&mut over(&library, &program, lock, &[MUTEX]));
            assert!(mutexes >= 30000, "{lock}: {mutexes}");
            assert_eq!(spins, if takes_spins && fits_spin(lock) { 30000 } else { 0 }, "{lock}");
        }
    }
}

#[test]
fn nothing_is_said_unless_asked() {
    let (program, library) = (program("posix_spin"), real_library());
    let quiet = |lock: &str, settings: &[(&str, &str)]| {
        let output = over(&library, &program, lock, settings).arg("codes").output().unwrap();
        assert!(output.status.success());
        said(&output)
    };
    assert_eq!(quiet("", &[]), "");
    assert_eq!(quiet("tas", &[MUTEX, ("UNSPIN_VERBOSE", "0")]), "");
    let unknown = quiet("tickets", &[MUTEX]);
    assert!(unknown.starts_with("unspin: UNSPIN_LOCK=tickets is not one of tas_nap "), "{unknown}");
    assert!(unknown.ends_with("the C library's own locks are used\n"), "{unknown}");
    assert_eq!(unknown.lines().count(), 1);
    for (name, value, words) in [
        ("UNSPIN_TAU_NS", "junk", "UNSPIN_TAU_NS=junk is not a number of nanoseconds"),
        ("UNSPIN_TAU_NS", "-1", "UNSPIN_TAU_NS=-1 is not a number"),
        ("UNSPIN_TAU_NS", "8000ns", "UNSPIN_TAU_NS=8000ns is not a number"),
        ("UNSPIN_TAU_NS", "99999999999999999999", "is not a number of nanoseconds"),
        ("UNSPIN_MUTEX", "yes", "UNSPIN_MUTEX=yes is not 0 or 1; it is ignored"),
        ("UNSPIN_VERBOSE", "2", "UNSPIN_VERBOSE=2 is not 0 or 1"),
    ] {
        let told = quiet("preemptable", &[(name, value)]);
        assert!(told.contains(words) && told.lines().count() == 1, "{name}={value}: {told}");
        assert_eq!(quiet("preemptable", &[(name, "")]), "", "{name} without a value");
    }
    let mut asked = over(&library, &program, "tas", &[]);
    assert_eq!(counts(asked.arg("codes"))[1..], [0, 0]);
}

/// A wrong version of the library and the test that rejects it.
struct Mutant {
    name: &'static str,
    /// File, text in it, and the replacement.
    change: (&'static str, &'static str, &'static str),
    lock: &'static str,
    program: &'static str,
    test: &'static str,
}

const fn mutant(
    name: &'static str,
    change: (&'static str, &'static str, &'static str),
    lock: &'static str,
    program: &'static str,
    test: &'static str,
) -> Mutant {
    Mutant { name, change, lock, program, test }
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "spin locks that are made are left as they are",
        ("spin.c", "*spin = 0;", "(void)spin;"),
        "tas",
        "posix_spin",
        "codes",
    ),
    mutant(
        "a failed trylock says another error",
        ("choice.c", "? 0 : EBUSY", "? 0 : EAGAIN"),
        "tas",
        "posix_spin",
        "codes",
    ),
    mutant(
        "wake-ups stay in the process",
        ("realtime.h", "#define UNSPIN_LOCK_LINUX_FUTEX 0", ""),
        "pv_preemptable",
        "posix_spin",
        "another_process_is_woken",
    ),
    mutant(
        "a wait for a condition keeps the place in front of the mutex",
        ("cond.c", "\tinterpose_mutex_leave_front(mutex);\n", ""),
        "tas",
        "posix_cond",
        "a_wait_after_a_wait_for_the_mutex",
    ),
    mutant(
        // With a pause that a preemption makes as well, only not each time. Only the thread that the
        // program starts pauses: the main thread frees the mutex in that time.
        "the mutex is given up before the place in front of it",
        (
            "mutex.c",
            "\tif (is_ours(mutex) && __builtin_expect(front_of(mutex)->held, 0))\n\t\tleave_front(front_of(mutex));\n\treturn with.unlock(mutex);",
            "\textern int gettid(void), getpid(void);\n\tint error = with.unlock(mutex);\n\n\tif (gettid() != getpid())\n\t\tnanosleep(&(struct timespec) { 0, 20000000 }, NULL);\n\tif (is_ours(mutex) && front_of(mutex)->held)\n\t\tleave_front(front_of(mutex));\n\treturn error;",
        ),
        "tas",
        "posix_contend",
        "memory_is_free_after_an_unlock",
    ),
    mutant(
        "children of a fork() wait for their parent's threads",
        ("choice.c", "\tatomic_fetch_add(&interpose_forks, 1);\n", ""),
        "tas",
        "posix_contend",
        "fork_with_waiters",
    ),
    mutant(
        "children of a fork() wait for whoever clears a mutex in their parent",
        ("mutex.c", "seen == (now | FRONT_CLEARING)", "seen & FRONT_CLEARING"),
        "tas",
        "posix_contend",
        "fork_while_another_clears",
    ),
    mutant(
        "every kind of mutex is taken for a plain one",
        ("mutex.c", "return kind == PTHREAD_MUTEX_TIMED_NP", "return true || kind"),
        "tas",
        "posix_mutex",
        "recursive_ones_count",
    ),
    mutant(
        "the place in front of a mutex is kept",
        ("mutex.c", "\t\twith.front->unlock(&front->word);\n\t}", "\t}"),
        "tas",
        "posix_contend",
        "is_free_when_all_waiters_are_gone",
    ),
    mutant(
        "it is given up twice",
        ("mutex.c", "\t\tfront->held = 0;\n\t\twith", "\t\twith"),
        "preemptable",
        "posix_contend",
        "is_free_when_all_waiters_are_gone",
    ),
    mutant(
        "no thread is taken for a real-time one",
        ("realtime.h", "sched_getscheduler(0)", "SCHED_OTHER"),
        "tas",
        "posix_realtime",
        "who_waits_leaves_the_cpu",
    ),
    mutant(
        "a real-time class that children do not get is none",
        ("realtime.h", " & ~SCHED_RESET_ON_FORK", ""),
        "tas",
        "posix_realtime",
        "who_waits_in_a_class_of_its_own_leaves_the_cpu",
    ),
    mutant(
        "a free mutex waits for the first waiter to wake up",
        (
            "mutex.c",
            "return with.trylock(mutex) ?",
            "return front_of(mutex)->word || with.trylock(mutex) ?",
        ),
        "tas",
        "posix_contend",
        "a_free_mutex_does_not_wait_for_a_sleeper",
    ),
    mutant(
        "handlers of fork() that run first take the child for its parent",
        ("choice.c", "if (madvise(page, bytes, MADV_WIPEONFORK))", "if (page)"),
        "tas",
        "posix_early",
        "fork_with_an_early_handler",
    ),
    mutant(
        "a class that comes while a thread waits is not seen",
        ("realtime.h", "|| !interpose_is_realtime())", "|| true)"),
        "tas",
        "posix_realtime",
        "a_class_may_come_while_one_waits",
    ),
    mutant(
        "a wait looks for the C library's function",
        ("cond.c", "\t\tif (fn)\n", "\t\tif (!fn)\n"),
        "tas",
        "posix_linked",
        "dlerror_stays_over_a_wait",
    ),
    #[cfg(target_arch = "x86_64")]
    mutant(
        "old conditions are taken for new ones",
        ("cond.c", "\"GLIBC_2.2.5\", NULL", "NULL, NULL"),
        "tas",
        "posix_linked",
        "conditions_may_be_old",
    ),
];

/// The library with a change, and the program that must see it.
fn make_mutant(number: usize, mutant: &Mutant) -> (PathBuf, PathBuf) {
    let dir = scratch().join(format!("interpose-mutant-{number}"));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, what, by) = mutant.change;
    for name in ["choice.h", "list.h", "realtime.h", VERSIONS].iter().chain(&SOURCES) {
        let mut text = std::fs::read_to_string(locks_dir().join("interpose").join(name)).unwrap();
        if *name == file {
            assert!(text.contains(what), "{}: no {what:?} in {file}", mutant.name);
            text = text.replace(what, by);
        }
        std::fs::write(dir.join(name), text).unwrap();
    }
    (library(&dir, &format!("libmutant-{number}")), program(mutant.program))
}

#[test]
fn wrong_libraries_are_rejected() {
    let right = real_library();
    std::thread::scope(|scope| {
        for (number, mutant) in MUTANTS.iter().enumerate() {
            let right = &right;
            scope.spawn(move || {
                let (wrong, program) = make_mutant(number, mutant);
                let run = |library, settings: &[_]| {
                    let mut command = over(library, &program, mutant.lock, settings);
                    command.arg(mutant.test).output().unwrap()
                };
                let output = run(right, &[MUTEX]);
                assert!(output.status.success(), "{}, as it is: {}", mutant.name, said(&output));
                // Some go wrong only where threads meet, which a loaded machine keeps them from.
                let tries = || run(&wrong, &[MUTEX, ("HANGS_AFTER_S", "3")]);
                let rejected = (0..10).map(|_| tries()).find(|output| !output.status.success());
                let output = rejected.unwrap_or_else(|| panic!("accepted: {}", mutant.name));
                let said = said(&output);
                assert!(said.contains(mutant.test), "{} by another test: {said}", mutant.name);
                println!("{}: {}", mutant.name, said.trim_end());
            });
        }
    });
}
