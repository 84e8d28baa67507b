// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often policy/userspin is right: samples real programs of this computer that spin and that
//! compute, and prints the tables of docs/userspin.md.
//!
//! ```text
//! cargo run --release -p unspin-policy --example userspin -- [SECONDS_PER_PROGRAM]
//! ```

mod code;
mod trace;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trace::{Seen, Threads, CODE_BYTES};
use unspin_policy::userspin::{has_pause, Kind, Params, State, Verdict};

/// Where a program's spin loop is: a sample there spins.
#[derive(Clone, Copy)]
enum Spins {
    Nowhere,
    /// Wherever it is in user space.
    Everywhere,
    /// In a file whose name has this in it.
    In(&'static str),
    /// In a thread of this name.
    Thread(&'static str),
}

struct Program {
    name: &'static str,
    command: &'static [&'static str],
    spins: Spins,
}

const fn waits(name: &'static str, command: &'static [&'static str], spins: Spins) -> Program {
    Program { name, command, spins }
}

const fn computes(name: &'static str, command: &'static [&'static str]) -> Program {
    Program { name, command, spins: Spins::Nowhere }
}

const COUNT_IN_PYTHON: &str = "x = 0\nwhile True: x += 1";
const SUM_IN_PYTHON: &str = "while True: sum(range(10**9))";
const SORT_IN_JAVASCRIPT: &str = "for (;;) Float64Array.from({length: 1e5}, Math.random).sort()";
const COUNT_IN_JAVASCRIPT: &str = "let x = 0; for (;;) x = (x * 5 + 1) | 0";

/// `PROGRAMS`, `DATA` and `JAVA` are replaced.
const PROGRAMS: &[Program] = &[
    waits("`while (!flag)`", &["PROGRAMS", "flag"], Spins::Everywhere),
    waits("the same with PAUSE", &["PROGRAMS", "flag-pause"], Spins::Everywhere),
    waits("pthread_spin_lock", &["PROGRAMS", "spin-lock"], Spins::In("libc.so")),
    waits("OpenMP, one thread works, 80 ms", &["PROGRAMS", "omp-long"], Spins::In("libgomp")),
    waits("OpenMP, unequal, 0.3 ms", &["PROGRAMS", "omp-short"], Spins::In("libgomp")),
    waits("OpenMP, equal, 80 ms", &["PROGRAMS", "omp-equal"], Spins::In("libgomp")),
    waits("OpenMP, matrix product", &["PROGRAMS", "omp-matrix"], Spins::In("libgomp")),
    waits(
        "Java, onSpinWait",
        &["java", "-cp", "JAVA", "Programs", "wait"],
        Spins::Thread("waiter"),
    ),
    computes("matrix product", &["PROGRAMS", "matrix"]),
    computes("matrix product, by rows", &["PROGRAMS", "matrix-by-rows"]),
    computes("sum of 64 MiB", &["PROGRAMS", "sum"]),
    computes("memset of 64 MiB", &["PROGRAMS", "memset-64m"]),
    computes("memset of 4 KiB", &["PROGRAMS", "memset-4k"]),
    computes("random numbers", &["PROGRAMS", "generator"]),
    computes("one counter", &["PROGRAMS", "count"]),
    computes("pointer chase", &["PROGRAMS", "chase"]),
    computes("n bodies", &["PROGRAMS", "bodies"]),
    computes("Mandelbrot", &["PROGRAMS", "mandelbrot"]),
    computes("clock_gettime", &["PROGRAMS", "clock"]),
    computes("vector registers only", &["PROGRAMS", "vector-only"]),
    computes("gzip", &["gzip", "-c", "DATA"]),
    computes("bzip2", &["bzip2", "-c", "DATA"]),
    computes("xz", &["xz", "-T1", "-c", "DATA"]),
    computes("zstd -19", &["zstd", "-19", "-c", "DATA"]),
    computes(
        "sha256sum",
        &["sha256sum", "DATA", "DATA", "DATA", "DATA", "DATA", "DATA", "DATA", "DATA", "DATA"],
    ),
    computes("openssl md5", &["openssl", "speed", "-seconds", "60", "md5"]),
    computes("openssl rsa", &["openssl", "speed", "-seconds", "60", "rsa2048"]),
    computes("openssl aes", &["openssl", "speed", "-seconds", "60", "-evp", "aes-128-gcm"]),
    computes("sort", &["sort", "--parallel=2", "DATA"]),
    computes("wc", &["wc", "DATA", "DATA", "DATA", "DATA"]),
    computes("sysbench cpu", &["sysbench", "cpu", "--time=60", "run"]),
    computes("perl, count", &["perl", "-e", "$x++ while 1"]),
    computes("python, count", &["/usr/bin/python3", "-c", COUNT_IN_PYTHON]),
    computes("python, sum", &["/usr/bin/python3", "-c", SUM_IN_PYTHON]),
    computes("Java, sort", &["java", "-cp", "JAVA", "Programs", "sort"]),
    computes("Java, random numbers", &["java", "-cp", "JAVA", "Programs", "random"]),
    computes("node, sort", &["node", "-e", SORT_IN_JAVASCRIPT]),
    computes("node, count", &["node", "-e", COUNT_IN_JAVASCRIPT]),
];

/// What a rule says of a window.
#[derive(Default, Clone, Copy)]
struct Said {
    /// Windows in which at least half of the samples spin, and those in which fewer do.
    spinning: u64,
    others: u64,
    /// Of these, where the samples are close together; with a PAUSE; with registers that stand still;
    /// with either of the two.
    found: [u64; RULES],
    alarms: [u64; RULES],
}

const RULES: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(4.0), |s| s.parse::<f64>())?;
    let dir = std::env::temp_dir().join(format!("unspin-userspin-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = survey(&dir, Duration::try_from_secs_f64(seconds)?);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn survey(dir: &Path, time: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let made = prepare(dir)?;
    let mut traces = Vec::new();
    for program in PROGRAMS {
        let word = |word: &&'static str| -> &OsStr {
            match *word {
                "PROGRAMS" => made.programs.as_os_str(),
                "DATA" => made.data.as_os_str(),
                "JAVA" => made.java.as_os_str(),
                word => word.as_ref(),
            }
        };
        let words: Vec<&OsStr> = program.command.iter().map(word).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "active");
        match trace::run(&mut command, time) {
            Ok(threads) => traces.push((program, threads)),
            Err(error) => eprintln!("{}: {error}", program.name),
        }
    }
    println!("| program | spinning windows | loop | PAUSE | still | PAUSE or still | other windows | loop | PAUSE | still | PAUSE or still |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (program, threads) in &traces {
        let said = judge(program, threads, &Params::default());
        println!("| {} | {} |", program.name, row(&said));
    }
    sweep(&traces);
    for dir in ["/usr/bin", "/usr/lib/x86_64-linux-gnu"] {
        let (windows, with) = code::windows(dir);
        println!("{dir}: {with} of {windows} windows of 96 bytes of code have a PAUSE");
    }
    Ok(())
}

/// Files that programs are, or work on.
struct Made {
    programs: PathBuf,
    data: PathBuf,
    java: PathBuf,
}

/// Compiles the programs and makes a file of text for the others to work on.
fn prepare(dir: &Path) -> Result<Made, Box<dyn std::error::Error>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/userspin");
    let (programs, data) = (dir.join("programs"), dir.join("data"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fopenmp", "-o"]).arg(&programs).arg(sources.join("programs.c"));
    if !gcc.status()?.success() {
        return Err("gcc does not compile programs.c".into());
    }
    // Without it java says that there is no such class, and its programs are left out.
    let mut javac = Command::new("javac");
    let _ = javac.arg("-d").arg(dir).arg(sources.join("Programs.java")).status();
    let mut file = std::io::BufWriter::new(std::fs::File::create(&data)?);
    let mut x = 1u64;
    for _ in 0..4_000_000 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        writeln!(file, "{:x} the quick brown fox {}", x >> 20, x >> 50)?;
    }
    file.flush()?;
    Ok(Made { programs, data, java: dir.to_path_buf() })
}

fn judge(program: &Program, threads: &Threads, params: &Params) -> Said {
    let mut said = Said::default();
    for samples in threads.values() {
        let mut state = State::new();
        for (i, seen) in samples.iter().enumerate() {
            state.add(&seen.sample);
            let Some(first) = (i + 1).checked_sub(params.samples as usize) else { continue };
            let window = &samples[first..=i];
            let verdict = state.judge(params);
            let pause = verdict.kind() != Kind::No && has_pause(&read(&verdict, window));
            let still = verdict.kind() == Kind::StillLoop;
            let rules = [verdict.kind() != Kind::No, pause, still, pause || still];
            let spinning = window.iter().filter(|seen| spins(program.spins, seen)).count();
            let counts = if 2 * spinning >= window.len() {
                said.spinning += 1;
                &mut said.found
            } else {
                said.others += 1;
                &mut said.alarms
            };
            for (count, rule) in counts.iter_mut().zip(rules) {
                *count += u64::from(rule);
            }
        }
    }
    said
}

fn spins(spins: Spins, seen: &Seen) -> bool {
    let there = match spins {
        Spins::Nowhere => false,
        Spins::Everywhere => true,
        Spins::In(file) => seen.file.contains(file),
        Spins::Thread(name) => seen.thread == name,
    };
    there && seen.sample.user != 0
}

/// The code the policy asks for, from what was read around the samples.
fn read(verdict: &Verdict, window: &[Seen]) -> Vec<u8> {
    let Some((from, bytes)) = verdict.code() else { return Vec::new() };
    let byte = |address: u64| {
        let around = window.iter().find_map(|seen| {
            let at = address.checked_sub(seen.sample.address.saturating_sub(CODE_BYTES))?;
            seen.code.get(usize::try_from(at).ok()?)
        });
        around.copied().unwrap_or(0)
    };
    (from..from.saturating_add(bytes.into())).map(byte).collect()
}

fn percent(part: u64, of: u64) -> String {
    if of == 0 {
        return "–".to_string();
    }
    format!("{:.1} %", 100.0 * part as f64 / of as f64)
}

fn row(said: &Said) -> String {
    let found = said.found.map(|n| percent(n, said.spinning)).join(" | ");
    let alarms = said.alarms.map(|n| percent(n, said.others)).join(" | ");
    format!("{} | {found} | {} | {alarms}", said.spinning, said.others)
}

/// A table of parameters: per rule the windows it misses and its false alarms. All programs weigh the
/// same, however many windows they have.
fn sweep(traces: &[(&Program, Threads)]) {
    let rules = ["loop", "PAUSE", "still", "PAUSE or still"];
    let heads =
        ["missed", "alarms"].map(|kind| rules.map(|rule| format!("{kind}: {rule}")).join(" | "));
    println!("\n| samples | threshold | still | bytes | {} |", heads.join(" | "));
    println!("{}", "|---".repeat(4 + 2 * RULES) + "|");
    for (samples, threshold, still) in
        [(4, 2, 4), (8, 2, 7), (8, 4, 4), (8, 4, 7), (8, 4, 8), (8, 6, 7), (8, 8, 8), (16, 8, 14)]
    {
        for range_bytes in [16, 64, 256] {
            let params = Params { samples, threshold, still, range_bytes };
            let all: Vec<Said> = traces.iter().map(|(p, t)| judge(p, t, &params)).collect();
            let missed =
                (0..RULES).map(|r| mean(all.iter().map(|s| (s.spinning - s.found[r], s.spinning))));
            let alarms = (0..RULES).map(|r| mean(all.iter().map(|s| (s.alarms[r], s.others))));
            let columns: Vec<String> = missed.chain(alarms).collect();
            println!(
                "| {samples} | {threshold} | {still} | {range_bytes} | {} |",
                columns.join(" | ")
            );
        }
    }
}

fn mean(parts: impl Iterator<Item = (u64, u64)>) -> String {
    // A few windows are no rate.
    let rates: Vec<f64> =
        parts.filter(|&(_, of)| of >= 20).map(|(n, of)| n as f64 / of as f64).collect();
    format!("{:.1} %", 100.0 * rates.iter().sum::<f64>() / rates.len().max(1) as f64)
}
