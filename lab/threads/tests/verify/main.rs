// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks' headers as they are under the checker of `core/verify/`: it searches all runs of 2 to 4
//! threads, in any order of their steps and with any order of writes that C11 allows. Each acquire and
//! release of a header is weakened singly, and each broken lock of a list is checked: all must be rejected.
//! Litmus tests ask what the checker's memory allows.
//! A short form runs as a test. `UNSPIN_VERIFY_FULL=1` searches more, for about nine minutes at most, and leaves
//! `out/check-locks/summary.json`.

mod broken;
mod checker;
#[path = "../common/mod.rs"]
mod common;
mod park;

use broken::{BROKEN, WHOLE_WORD};
use checker::{build, cc, checker, compile, link, search, verify_dir, work, Verdict, TIMED};
use common::{in_parallel, locks_dir, locks_with};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use unspin_threads::locks::{by_name, Lock, LOCKS};

/// Options of the checker (`core/verify/search.cc`). In the short form these are searched.
const SHORT: &[&str] = &[
    "threads=2 rounds=2 tries=6 looks=1 states=60000",
    "threads=2 rounds=2 spurious=1 start=65535 states=60000",
    "threads=3 clock=never states=60000",
    "threads=3 clock=spent states=60000",
];
const FULL: &[&str] = &[
    "threads=2 rounds=2 tries=6 looks=1",
    "threads=2 rounds=2 spurious=1 start=65535",
    "threads=2 rounds=3 clock=spent",
    "threads=3 tries=4 spurious=1",
    "threads=3",
    "threads=3 rounds=2 clock=never",
    "threads=3 clock=spent spurious=1",
    "threads=4 clock=never",
    "threads=4 clock=spent",
    // Reads see the last write: all runs of `lease`, too.
    "threads=2 rounds=2 writes=1",
    "threads=3 writes=1",
];
/// With a clock that stands still, a lease never ends. Four acquisitions can make a thread wait for one.
const NO_LEASE_ENDS: &[&str] = &["threads=3 rounds=2 clock=never", "threads=4 clock=never"];
/// What is searched for [`TIMED`] locks, too. Bits of `timed` are those of `tries`: the threads that give up in
/// time, beside those that wait in line.
const SHORT_TIMED: &[&str] =
    &["threads=2 timed=2", "threads=2 timed=3", "threads=3 timed=4 clock=never states=60000"];
const FULL_TIMED: &[&str] = &[
    "threads=2 timed=2",
    "threads=2 timed=3",
    "threads=2 rounds=2 timed=6",
    "threads=3 timed=4 clock=never",
    "threads=3 timed=4 clock=spent",
    "threads=3 timed=4 spurious=1",
    "threads=3 timed=4 writes=1",
    "threads=3 timed=6 writes=1",
];
/// What is searched for `lease`, too: whether a thread outside the line gets the lock twice while the wish of the heir
/// stands.
const SHORT_WISH: &[&str] = &["threads=2 rounds=3 writes=1 clock=spent states=60000"];
const FULL_WISH: &[&str] =
    &["threads=2 rounds=3 writes=1", "threads=3 rounds=2 writes=1 clock=spent"];
/// A search of the full form that has not ended by then, or in its share of the time that is left (`Limits`), is
/// given up, and the summary says so.
const STATES_MAX: u32 = 2_000_000;
/// The searches of the full form end by then. `make check-locks` waits a minute longer.
const FULL_ENDS: Duration = Duration::from_secs(540);
/// For locks that should be wrong, from those that end soon.
const WRONG: &[&str] = &[
    "threads=2",
    "threads=2 tries=2 looks=1",
    "threads=2 clock=spent",
    "threads=2 timed=2",
    "threads=2 rounds=2 start=65535",
    "threads=2 rounds=2 tries=6",
    "threads=3 clock=never",
    "threads=3 states=300000",
    "threads=3 tries=4 states=300000",
];
/// And for `lease`: with threads that give up beside an heir, and as [`SHORT_WISH`], which takes longest.
const WRONG_LEASE: &[&str] = &[
    "threads=2 rounds=2 timed=6 states=400000",
    "threads=2 rounds=3 timed=4 writes=1 clock=spent states=400000",
    "threads=2 rounds=3 writes=1 clock=spent",
];

fn is_full() -> bool {
    std::env::var_os("UNSPIN_VERIFY_FULL").is_some()
}

/// A memory order of a header that can be weakened.
struct Site {
    lock: &'static Lock,
    /// Where it is in the header's text.
    at: usize,
    line: usize,
    order: &'static str,
    weakened: &'static str,
}

/// The text with its comments blanked.
fn without_comments(text: &str) -> String {
    let mut code = String::new();
    for (index, part) in text.split("/*").enumerate() {
        let (comment, rest) = if index == 0 {
            ("", part)
        } else {
            part.split_once("*/").expect("an end of a comment")
        };
        if index > 0 {
            code += "  ";
            code.extend(comment.chars().map(|c| if c == '\n' { c } else { ' ' }));
            code += "  ";
        }
        code += rest;
    }
    assert_eq!(code.len(), text.len(), "only ASCII in headers");
    code
}

/// The acquires and releases of a header. One that is both is weakened to each.
fn sites(lock: &'static Lock) -> Vec<Site> {
    const WEAKENED: &[(&str, &str)] = &[
        ("acquire", "relaxed"),
        ("release", "relaxed"),
        ("acq_rel", "acquire"),
        ("acq_rel", "release"),
    ];
    let text = std::fs::read_to_string(locks_dir().join(lock.header)).unwrap();
    let code = without_comments(&text);
    let mut sites = Vec::new();
    for (order, weakened) in WEAKENED {
        for (at, _) in code.match_indices(&format!("memory_order_{order}")) {
            let line = 1 + code[..at].matches('\n').count();
            sites.push(Site { lock, at, line, order, weakened });
        }
    }
    sites.sort_by_key(|site| site.at);
    sites
}

/// The first search that rejects a wrong lock, or none.
fn rejected(lock: &Lock, name: &str, text: &str) -> Option<(&'static str, String)> {
    let headers = locks_with(work().join(format!("{name}.d")), lock.header, text);
    let program = build(lock, &headers, name, None);
    let more = if lock.name == "lease" { WRONG_LEASE } else { &[] };
    WRONG.iter().copied().chain(more.iter().copied()).find_map(|options| {
        match search(lock, &program, options) {
            Verdict::Rejected(check, _) => Some((options, check)),
            Verdict::Holds(_) | Verdict::Incomplete(_) => None,
        }
    })
}

/// Shares the time of the full form among its searches.
struct Limits {
    began: Instant,
    /// Searches that have not begun.
    left: AtomicUsize,
}

impl Limits {
    /// The options that limit the next search. Most searches end soon, so each may take six times its share.
    fn next(&self) -> String {
        if !is_full() {
            return String::new();
        }
        let left = self.left.fetch_sub(1, Relaxed);
        let time_s = FULL_ENDS.saturating_sub(self.began.elapsed()).as_secs_f64();
        let at_once = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share_s = time_s * at_once as f64 / left as f64;
        let seconds = (6.0 * share_s).min(time_s).max(1.0);
        format!(" states={STATES_MAX} seconds={seconds:.0}")
    }
}

/// What was checked, and how it went.
#[derive(Default)]
struct Summary {
    passed: usize,
    failed: Vec<String>,
    searches: Vec<String>,
    sites: Vec<String>,
    broken: Vec<String>,
    memory: Vec<String>,
}

impl Summary {
    fn count(&mut self, passed: bool, what: String) {
        if passed {
            self.passed += 1;
        } else {
            println!("FAILED {what}");
            self.failed.push(what);
        }
    }

    fn json(&self, took: Duration) -> String {
        let mut text = String::from("{\n");
        for (name, rows) in [
            ("searches", &self.searches),
            ("sites", &self.sites),
            ("broken_locks", &self.broken),
            ("memory", &self.memory),
        ] {
            let mut rows = rows.clone();
            rows.sort();
            writeln!(text, "  \"{name}\": [\n    {}\n  ],", rows.join(",\n    ")).unwrap();
        }
        let (passed, failed, seconds) = (self.passed, self.failed.len(), took.as_secs());
        write!(
            text,
            "  \"passed\": {passed},\n  \"failed\": {failed},\n  \"seconds\": {seconds}\n}}\n"
        )
        .unwrap();
        text
    }
}

/// What is searched for a lock.
fn searches(lock: &Lock) -> Vec<&'static str> {
    let (all, timed, wish) =
        if is_full() { (FULL, FULL_TIMED, FULL_WISH) } else { (SHORT, SHORT_TIMED, SHORT_WISH) };
    let timed = if TIMED.contains(&lock.name) { timed } else { &[] };
    let wish = if lock.name == "lease" { wish } else { &[] };
    let ends = |options: &&str| lock.name != "lease" || !NO_LEASE_ENDS.contains(options);
    all.iter().chain(timed).chain(wish).copied().filter(ends).collect()
}

/// A lock's header with all accesses to the whole word.
fn whole_word(lock: &Lock) -> PathBuf {
    let mut text = std::fs::read_to_string(locks_dir().join(lock.header)).unwrap();
    for (what, by) in WHOLE_WORD {
        assert_eq!(text.matches(what).count(), 1, "{}: {what}", lock.header);
        text = text.replace(what, by);
    }
    assert!(!text.contains("&lock->low"), "{}: another access to a half", lock.header);
    locks_with(work().join(format!("{}-whole-word.d", lock.name)), lock.header, &text)
}

/// Checks a lock's header.
fn check_lock(lock: &Lock, form: Form, limits: &Limits, summary: &Mutex<Summary>) {
    let (more, headers, flag) = match form {
        Form::AsIs => ("", locks_dir(), None),
        Form::WithoutNaps => (", no naps", locks_dir(), Some("-DMODEL_UNTIMED")),
        Form::WholeWord => (", whole word", whole_word(lock), None),
    };
    let name = format!("{}{more}", lock.name);
    let program = build(lock, &headers, &name, flag);
    for options in searches(lock) {
        let verdict = search(lock, &program, &format!("{options}{}", limits.next()));
        let (result, said) = match &verdict {
            Verdict::Holds(how) => ("holds", how),
            Verdict::Incomplete(how) => ("holds as far as searched", how),
            Verdict::Rejected(check, _) => (check.as_str(), check),
        };
        println!("{name} {options}: {result}, {said}");
        let row = format!(
            r#"{{"lock": "{name}", "search": "{options}", "verdict": "{result}", "found": "{said}"}}"#
        );
        let mut summary = summary.lock().unwrap();
        summary.searches.push(row);
        let holds = !matches!(verdict, Verdict::Rejected(..));
        summary.count(holds, format!("{name} {options}: {said}"));
    }
}

fn check_site(site: &Site, summary: &Mutex<Summary>) {
    let text = std::fs::read_to_string(locks_dir().join(site.lock.header)).unwrap();
    let Site { lock, at, line, order, weakened } = site;
    let old = format!("memory_order_{order}");
    let text = format!("{}memory_order_{weakened}{}", &text[..*at], &text[at + old.len()..]);
    let name = format!("{}-{at}-{weakened}", lock.name);
    let found = rejected(lock, &name, &text);
    let (verdict, by) = match &found {
        Some((options, check)) => (format!("rejected: {check}"), *options),
        None => ("not rejected".into(), "all"),
    };
    println!("{} line {line} {order} weakened to {weakened}: {verdict}", lock.header);
    let mut summary = summary.lock().unwrap();
    summary.sites.push(format!(
        r#"{{"lock": "{}", "header": "{}", "line": {line:3}, "order": "{order}", "weakened_to": "{weakened}", "verdict": "{verdict}", "search": "{by}"}}"#,
        lock.name, lock.header
    ));
    summary
        .count(found.is_some(), format!("{}:{line} {order} to {weakened}: {verdict}", lock.header));
}

fn check_broken(index: usize, summary: &Mutex<Summary>) {
    let (name, what, by, check) = BROKEN[index];
    let lock = by_name(name).expect("a lock");
    let text = std::fs::read_to_string(locks_dir().join(lock.header)).unwrap();
    assert!(text.contains(what), "{}: no {what}", lock.header);
    let found = rejected(lock, &format!("{name}-broken-{index}"), &text.replace(what, by));
    let verdict = found.map_or("holds".to_string(), |(_, check)| check);
    println!("{name} with {by:?} for {what:?}: {verdict}");
    let mut summary = summary.lock().unwrap();
    summary.broken.push(format!(
        r#"{{"lock": "{name}", "text": {what:?}, "instead": {by:?}, "verdict": "{verdict}"}}"#
    ));
    summary.count(verdict == check, format!("{name} with {by:?}: {verdict}, not {check}"));
}

/// Programs of `litmus.c`: what each is, its threads, and whether its outcome can be.
const LITMUS: &[(&str, u32, bool)] = &[
    ("message passing", 2, false),
    ("message passing without acquire", 2, true),
    ("message passing without release", 2, true),
    ("store buffering", 2, true),
    ("load buffering, which is left out", 2, false),
    ("two words written in opposite order", 2, true),
    ("two reads of a word", 2, false),
    ("two updates", 2, false),
    ("a release that an update passes on", 3, false),
    ("a release that a store ends", 3, true),
    ("two readers of independent writes", 4, true),
    ("half of a store to a word", 2, false),
    ("two halves written in order", 2, true),
    ("a released half, and an update of the word", 3, false),
    ("an own half seen early", 2, true),
    ("a half stored, and an update of the word", 2, false),
];

/// The checker's memory is as weak as C11 allows, and no weaker.
fn check_memory(summary: &Mutex<Summary>) {
    let dir = work();
    let (program, object) = (dir.join("litmus"), dir.join("litmus.o"));
    let source = verify_dir().join("litmus.c");
    compile(cc().arg("-c").args([&source, Path::new("-o"), &object]));
    link(&object, &program);
    for (number, (what, threads, reached)) in LITMUS.iter().enumerate() {
        let mut command = Command::new(&program);
        command.args([format!("threads={threads}"), format!("start={number}")]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let verdict = if *reached { "rejected: reached" } else { "ok: " };
        let mut summary = summary.lock().unwrap();
        summary.memory.push(format!(r#"{{"program": "{what}", "outcome_can_be": {reached}}}"#));
        summary.count(said.starts_with(verdict), format!("{what}: {said}"));
    }
}

/// How a lock's header is checked.
#[derive(Clone, Copy)]
enum Form {
    AsIs,
    /// In an environment whose halts have no time limit.
    WithoutNaps,
    /// With all accesses to the whole word (`WHOLE_WORD`).
    WholeWord,
}

/// One thing to check.
enum Job {
    Memory,
    Lock(&'static Lock, Form),
    Site(Site),
    Broken(usize),
}

/// All that is checked. The searches of locks come last, because they share the time that is left; of them first
/// those that take long.
fn jobs() -> Vec<Job> {
    let own = |lock: &&'static Lock| LOCKS.iter().find(|l| l.header == lock.header) == Some(*lock);
    let mut jobs = vec![Job::Memory];
    jobs.extend((0..BROKEN.len()).map(Job::Broken));
    jobs.extend(LOCKS.iter().filter(own).flat_map(sites).map(Job::Site));
    jobs.push(Job::Lock(by_name("lease").expect("a lock"), Form::WithoutNaps));
    jobs.push(Job::Lock(by_name("preemptable").expect("a lock"), Form::WholeWord));
    jobs.extend(LOCKS.iter().rev().map(|lock| Job::Lock(lock, Form::AsIs)));
    jobs
}

#[test]
fn locks_hold_and_wrong_ones_are_rejected() {
    let jobs = jobs();
    let of = |job: &Job| if let Job::Lock(lock, _) = job { searches(lock).len() } else { 0 };
    let limits = Limits { began: Instant::now(), left: jobs.iter().map(of).sum::<usize>().into() };
    let summary = Mutex::new(Summary::default());
    checker();
    in_parallel(&jobs, |job| match job {
        Job::Memory => check_memory(&summary),
        Job::Lock(lock, form) => check_lock(lock, *form, &limits, &summary),
        Job::Site(site) => check_site(site, &summary),
        Job::Broken(index) => check_broken(*index, &summary),
    });
    let summary = summary.into_inner().unwrap();
    std::fs::remove_dir_all(work()).unwrap();
    let verdict = format!("{} passed, {} failed", summary.passed, summary.failed.len());
    if is_full() {
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/check-locks");
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(out.join("summary.json"), summary.json(limits.began.elapsed())).unwrap();
        std::fs::write(out.join("verdict"), format!("{verdict}\n")).unwrap();
    }
    println!("{verdict}");
    assert!(summary.failed.is_empty(), "{}", summary.failed.join("\n"));
}
