// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks' headers as they are under the checker of `core/verify/`: it searches all runs of 2 to 4
//! threads, in any order of their steps and with any order of writes that C11 allows. Each acquire and
//! release of a header is weakened singly, and each broken lock of a list is checked: all must be rejected.
//! Litmus tests ask what the checker's memory allows.
//! A short form runs as a test. `UNSPIN_VERIFY_FULL=1` searches more, for about nine minutes at most, and leaves
//! `out/check-locks/summary.json`.
//!
//! Beside them a model under SPIN: how the module keeps a vCPU from running.

mod common;

use common::{check, in_parallel, locks_dir, locks_with, scratch};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use unspin_threads::locks::{by_name, Lock, LOCKS};

/// Which threads may get the lock before others; the numbers are those of the checker's option `order`.
#[derive(Clone, Copy)]
enum Order {
    /// Any.
    Any,
    /// None of those in line before an earlier one of them.
    Line,
    /// None before an earlier one.
    Strict,
    /// None before an earlier one, but in its turn, after its time, or when it was overtaken itself.
    InTime,
}

/// What is said of a lock's order: its name, the member whose first update gives a thread its place in the
/// line, and who may overtake.
const ORDERS: &[(&str, Option<&str>, Order)] = &[
    ("tas", None, Order::Any),
    ("tas_nap", None, Order::Any),
    ("ticket", Some("both"), Order::Strict),
    ("mcs", Some("tail"), Order::Strict),
    ("preemptable", Some("both"), Order::InTime),
    ("pv_preemptable", Some("both"), Order::InTime),
    ("pv_ticket", Some("both"), Order::Strict),
    ("oticket", Some("ticket.both"), Order::Strict),
    ("oticket_spin", Some("ticket.both"), Order::Strict),
    ("oticket_wake", Some("ticket.both"), Order::Strict),
    ("iticket", Some("ticket.both"), Order::Strict),
    ("long_ticket", Some("ticket.both"), Order::Strict),
    ("pv_queued", Some("tail"), Order::Line),
    ("lease", Some("line"), Order::Line),
];

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
/// Locks with `lock_for()`, and what is searched for them, too. Bits of `timed` are those of `tries`: the
/// threads that give up in time, beside those that wait in line.
const TIMED: &[&str] = &["lease", "tas_nap"];
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
/// And for `lease`, as [`SHORT_WISH`].
const WRONG_WISH: &str = "threads=2 rounds=3 writes=1 clock=spent";

/// A wrong lock: lock, text of its header, what stands there instead, the check that must find it.
type Broken = (&'static str, &'static str, &'static str, &'static str);

const BROKEN: &[Broken] = &[
    ("tas", "memory_order_acquire) == 0", "memory_order_acquire) <= 1", "mutual_exclusion"),
    ("tas", "held, 0, memory", "held, 1, memory", "progress"),
    ("tas", "memory_order_relaxed) != 0", "memory_order_relaxed) == 0", "free_at_the_end"),
    ("tas_nap", "is_locked(lock) && unspin_tas_nap_trylock(lock))", "is_locked(lock))", "visible"),
    ("ticket", "(serving + 1)", "(serving + 2)", "progress"),
    ("ticket", "if ((both >> 16) != (both & 0xffff))", "if (0)", "mutual_exclusion"),
    (
        "ticket",
        "memory_order_acquire) != mine)",
        "memory_order_acquire) == mine)",
        "mutual_exclusion",
    ),
    (
        "mcs",
        "while (atomic_load_explicit(&node->waiting",
        "if (atomic_load_explicit(&node->waiting",
        "mutual_exclusion",
    ),
    ("mcs", "&node->waiting, 1,", "&node->waiting, 0,", "mutual_exclusion"),
    (
        "mcs",
        "/* A waiter has exchanged the tail and is about to link itself. */",
        "return;",
        "progress",
    ),
    ("preemptable", "if (ahead)", "if (0)", "order"),
    ("preemptable", "if (!now_ahead ||", "if (now_ahead < 2 ||", "order"),
    ("preemptable", "(low + 1)", "(low + 2)", "progress"),
    ("preemptable", "if (!unspin_preemptable_is_idle(both))", "if (0)", "order"),
    // The release updates the whole word, and the count of grants carries into that of requests.
    (
        "preemptable",
        "unsigned short low = atomic_load_explicit(&lock->low, memory_order_relaxed);\n\n\
         \t/* Release pairs with the acquires above. */\n\
         \tatomic_store_explicit(&lock->low, (unsigned short)(low + 1), memory_order_release);",
        "atomic_fetch_add_explicit(&lock->both, 1, memory_order_release);",
        "free_at_the_end",
    ),
    ("pv_preemptable", "unspin_lock_wake_all(&lock->both)", "(void)0", "progress"),
    ("pv_preemptable", "if (both & UNSPIN_PV_PREEMPTABLE_HELD)", "if (both)", "progress"),
    ("pv_preemptable", "if (ahead)", "if (0)", "order"),
    // Looks only while there is time.
    (
        "pv_preemptable",
        "while (atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HELD",
        "while (unspin_lock_budget_spent(&budget) || \
         atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HELD",
        "progress",
    ),
    ("pv_ticket", "if (unspin_pv_ticket_ahead(both, mine))\n", "if (both)\n", "progress"),
    // Gives up before it looks: goes round for ever if its budget is always over.
    (
        "pv_ticket",
        "unspin_lock_budget(spin_ns, 1);\n",
        "unspin_lock_budget(spin_ns, 1);\n if (unspin_lock_budget_spent(&budget)) return false;\n",
        "progress",
    ),
    ("pv_ticket", "next <= kicks", "next < kicks", "progress"),
    ("pv_ticket", "!(low & UNSPIN_PV_TICKET_HALTED)", "low & UNSPIN_PV_TICKET_HALTED", "progress"),
    ("pv_ticket", "unspin_lock_wake(&lock->both,", "unspin_lock_wake(&lock->both, 1 +", "progress"),
    ("pv_ticket", "if (unspin_pv_ticket_ahead(both, both >> 16))", "if (0)", "mutual_exclusion"),
    ("pv_queued", "unspin_lock_wake(&lock->word, 0)", "(void)0", "progress"),
    ("pv_queued", "unspin_lock_wake(&first->state, 0)", "(void)first", "progress"),
    ("pv_queued", "atomic_store_explicit(&lock->first, after,", "(void)(0 +", "undefined"),
    (
        "pv_queued",
        "if (!word && unspin_pv_queued_take(lock, 0))",
        "if (!(word & UNSPIN_PV_QUEUED_HELD) && unspin_pv_queued_take(lock, word))",
        "order",
    ),
    ("lease", "return !(uses & 1) &&", "return", "mutual_exclusion"),
    ("lease", "unspin_lock_wake(&lock->line, heir)", "(void)0", "progress"),
    ("lease", "heir ? 1 : 1 - 0x10000u", "1", "progress"),
    (
        "lease",
        "while (!(got = unspin_lease_take(",
        "while (unspin_lock_budget_spent(&awake) || !(got = unspin_lease_take(",
        "progress",
    ),
    // Threads that give up: their wish stays; they go on as if they had the lock.
    (
        "lease",
        "unspin_lock_budget_spent(limit))\n\t\t\tbreak;",
        "unspin_lock_budget_spent(limit))\n\t\t\treturn false;",
        "free_at_the_end",
    ),
    ("lease", "\treturn got;", "\treturn true;", "mutual_exclusion"),
    (
        "tas_nap",
        "return false;\n\t\tunspin_lock_wait_for",
        "return true;\n\t\tunspin_lock_wait_for",
        "mutual_exclusion",
    ),
    (
        "lease",
        "(wish == UNSPIN_LEASE_WANTED_ASLEEP, 0)",
        "(unspin_lease_wish(lock) == UNSPIN_LEASE_WANTED_ASLEEP && wish, 0)",
        "touched_when_done",
    ),
    (
        "lease",
        "unspin_lease_nap(&lock->both, both, 0, nap_ns)",
        "unspin_lock_wait(&lock->both, both, 0)",
        "progress",
    ),
    // Threads outside the line do not look whether the heir wants the lock.
    (
        "lease",
        "unspin_lease_wish(lock) != UNSPIN_LEASE_NO_WISH ||\n\t\t\t     !(uses &",
        "!(uses &",
        "overtaking",
    ),
    (
        "lease",
        "atomic_store_explicit(&lock->wish, UNSPIN_LEASE_NO_WISH,",
        "(void)(0 +",
        "free_at_the_end",
    ),
];

/// What stands in `preemptable.h` instead, so that the release updates the whole word: the checker then needs no rule
/// for halves. A count that wraps around must not carry into the high half.
const WHOLE_WORD: &[(&str, &str)] = &[
    (
        "unsigned short low = atomic_load_explicit(&lock->low,",
        "unsigned int both = atomic_load_explicit(&lock->both,",
    ),
    (
        "atomic_store_explicit(&lock->low, (unsigned short)(low + 1),",
        "atomic_fetch_add_explicit(&lock->both, (both & 0xffff) == 0xffff ? 1 - 0x10000u : 1,",
    ),
];

fn verify_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/verify")
}

fn is_full() -> bool {
    std::env::var_os("UNSPIN_VERIFY_FULL").is_some()
}

/// Runs a compiler.
fn compile(command: &mut Command) {
    check(command).unwrap_or_else(|said| panic!("{command:?}: {said}"));
}

/// What is built here; removed at the end.
fn work() -> PathBuf {
    scratch().join(format!("checker.{}", std::process::id()))
}

/// The compiler of what is checked.
fn cc() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-stack-protector", "-I"])
        .arg(verify_dir().join("shim"));
    cc
}

fn link(object: &Path, program: &Path) {
    compile(Command::new("c++").arg(object).args(checker()).arg("-o").arg(program));
}

/// The checker without a lock, compiled once.
fn checker() -> &'static [PathBuf] {
    static CHECKER: OnceLock<Vec<PathBuf>> = OnceLock::new();
    CHECKER.get_or_init(|| {
        let dir = work();
        std::fs::create_dir_all(&dir).unwrap();
        let names = ["memory", "threads", "machine", "search"];
        let objects: Vec<_> = names.iter().map(|name| dir.join(name).with_extension("o")).collect();
        in_parallel(&objects, |object| {
            let source = verify_dir().join(object.file_stem().unwrap()).with_extension("cc");
            compile(
                Command::new("c++")
                    .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-c", "-o"])
                    .args([object.as_path(), &source]),
            );
        });
        objects
    })
}

/// A lock's code with the checker. `headers` has the lock's header and those that it includes.
fn build(lock: &Lock, headers: &Path, name: &str, flag: Option<&str>) -> PathBuf {
    let (_, doorway, _) = ORDERS.iter().find(|(l, ..)| *l == lock.name).expect("in ORDERS");
    let dir = work();
    let (program, object) = (dir.join(name), dir.join(name).with_extension("o"));
    let verify = verify_dir();
    checker();
    let mut cc = cc();
    cc.arg(format!("-DUNSPIN_LOCK_ENV_HEADER=\"{}\"", verify.join("env.h").display()))
        .arg(format!("-DLOCK_HEADER=\"{}\"", headers.join(lock.header).display()))
        .arg(format!("-DLOCK(op)=unspin_{}_##op", lock.name))
        .args(lock.node.then_some("-DWITH_NODE"))
        .args(TIMED.contains(&lock.name).then_some("-DTIMED"))
        .args(doorway.map(|member| format!("-DDOORWAY={member}")))
        .args((lock.name == "pv_queued").then_some("-DCLOSED=UNSPIN_PV_QUEUED_PENDING"))
        // The wish is the high half of the first word.
        .args((lock.name == "lease").then_some("-DCLAIM=0xffff0000u"))
        .args(lock.start.map(|start| format!("-DSTART(v)={start}")))
        .args(flag)
        .arg("-c")
        .arg(verify.join("client.c"))
        .arg("-o")
        .arg(&object);
    compile(&mut cc);
    link(&object, &program);
    program
}

/// What a search says.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    /// No run breaks a check.
    Holds(String),
    /// It was given up.
    Incomplete(String),
    /// A check and how it was found.
    Rejected(String, String),
}

fn search(lock: &Lock, program: &Path, options: &str) -> Verdict {
    let (.., order) = ORDERS.iter().find(|(l, ..)| *l == lock.name).expect("in ORDERS");
    let order = format!("order={}", *order as u8);
    let mut command = Command::new(program);
    let output = command.args(options.split(' ')).arg(order).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    match said.split_once(": ") {
        Some(("ok", how)) => Verdict::Holds(how.into()),
        Some(("incomplete", how)) => Verdict::Incomplete(how.into()),
        Some(("rejected", how)) => {
            let (check, how) = how.split_once(", ").unwrap();
            Verdict::Rejected(check.into(), how.into())
        }
        _ => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
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
    let wish = (lock.name == "lease").then_some(WRONG_WISH);
    WRONG.iter().copied().chain(wish).find_map(|options| match search(lock, &program, options) {
        Verdict::Rejected(check, _) => Some((options, check)),
        Verdict::Holds(_) | Verdict::Incomplete(_) => None,
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

/// A wrong model of the module: its fault, the check that must find it. Each leaves out a barrier or a step.
const PARK_MUTANTS: &[(&str, &str)] = &[
    ("CLEARS_WITHOUT_BARRIER", "request_not_lost"),
    ("DOES_NOT_ASK", "request_not_lost"),
    ("LOOKS_BEFORE_IT_SLEEPS", "wake_up_not_lost"),
    ("GIVES_WITHOUT_BARRIER", "wake_up_not_lost"),
];

/// `Ok`: every check of `park.pml` holds; otherwise the output of `run.sh`.
fn verify_park(define: &str) -> Result<(), String> {
    let dir = scratch().join(format!("pan-park{define}"));
    let mut command = Command::new(verify_dir().join("run.sh"));
    let output = command.args(["park", define]).env("VERIFY_DIR", &dir).output().expect("run.sh");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(said.trim().to_string()),
        _ => panic!("park {define}: {said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn no_vcpu_overstays_its_turn_or_sleeps_through_it() {
    if Command::new("spin").arg("-V").output().is_err() {
        println!("SKIPPED: the model of parked vCPUs: no spin on this computer");
        return;
    }
    assert_eq!(verify_park("-DTURNS=6"), Ok(()));
    let text = std::fs::read_to_string(verify_dir().join("park.pml")).unwrap();
    in_parallel(PARK_MUTANTS, |(mutant, check)| {
        assert!(text.contains(&format!("M_{mutant}\n")), "park.pml does not read {mutant}");
        assert_eq!(verify_park(&format!("-DM_{mutant}")), Err(format!("park: {check}")));
    });
}
