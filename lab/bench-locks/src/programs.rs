// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole programs with glibc's locks, under `unspin run` and under `unspin run --mutex`.

use crate::median::median;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Speed over that with glibc's locks: over 1 is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Under `unspin run`.
    pub run: f64,
    /// Under `unspin run --mutex`.
    pub mutex: f64,
    /// Runs of each of the three, interleaved.
    pub runs: u32,
}

/// What a program's speed is.
#[derive(Clone, Copy)]
enum Speed {
    /// One over the time from its start to its end.
    Time,
    /// The number after this text in its output.
    Output(&'static str),
    /// One over that number.
    Each(&'static str),
}

struct Program {
    name: &'static str,
    /// The command. Its first word is looked for in PATH, `SELF` is this program, `DATA` a file of 7 MB
    /// and `--db=MEMORY` names a directory in memory, which is removed afterwards.
    command: &'static str,
    speed: Speed,
}

// sysbench's own times leave out the start of the program, and the runs last about 1 s and more, so that the
// start of `unspin run` does not count.
const PROGRAMS: [Program; 6] = [
    Program {
        name: "sysbench mutex, 1 mutex",
        command: "sysbench mutex --threads=8 --mutex-num=1 --mutex-locks=4000000 --mutex-loops=1 run",
        speed: Speed::Each("total time:"),
    },
    Program {
        name: "sysbench mutex, 4096 mutexes",
        command: "sysbench mutex --threads=8 --mutex-num=4096 --mutex-locks=4000000 --mutex-loops=1 run",
        speed: Speed::Each("total time:"),
    },
    Program {
        name: "sysbench threads, 4 mutexes",
        command: "sysbench threads --threads=8 --thread-locks=4 --thread-yields=100 --time=3 --events=0 run",
        speed: Speed::Output("total number of events:"),
    },
    Program {
        name: "pbzip2",
        command: "pbzip2 -k -f -p8 -b1 -c DATA",
        speed: Speed::Time,
    },
    // One thread fills it, because how fast several do depends most on what else runs. Then all blocks fit into the
    // cache, whose one shard has one mutex; readers of several shards meet less often.
    Program {
        name: "RocksDB's db_bench, readers of a cache of one shard",
        command: "db_bench --benchmarks=filluniquerandom,compact,readrandom --threads=8 --num=20000 --reads=50000 \
                  --cache_numshardbits=0 --disable_wal --seed=1 --progress_reports=false --db=MEMORY",
        speed: Speed::Each("readrandom   :"),
    },
    Program {
        name: "pthread_spin, the clock read between",
        command: "SELF --as-program",
        speed: Speed::Output("rounds:"),
    },
];

/// The number of bytes that pbzip2 compresses.
const DATA_BYTES: usize = 7_000_000;

/// `unspin` beside this program, if it has been built.
pub fn unspin() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("unspin");
    beside.is_file().then_some(beside)
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Text that compresses like text: words drawn by a fixed sequence.
fn data() -> Vec<u8> {
    let words: [&[u8]; 8] =
        [b"lock ", b"the ", b"waiter ", b"holder ", b"asks ", b"lease ", b"turn\n", b"of "];
    let mut state = 2_463_534_242u32;
    let mut text = Vec::with_capacity(DATA_BYTES + 8);
    while text.len() < DATA_BYTES {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        text.extend_from_slice(words[state as usize % 8]);
        text.push(b'a' + (state >> 8) as u8 % 26);
    }
    text
}

/// A directory in memory for one run: the program makes it. Removed at the end.
struct Memory(PathBuf);

impl Memory {
    fn new() -> Memory {
        Memory(PathBuf::from(format!("/dev/shm/unspin-bench-locks.{}", std::process::id())))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Most programs make none.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Program {
    /// Runs it behind the words `before`; its speed.
    fn run(&self, before: &[&Path], dir: &Path) -> io::Result<f64> {
        let own = std::env::current_exe()?;
        let file = dir.join("data");
        let memory = Memory::new();
        let db = format!("--db={}", memory.0.display());
        let mut words: Vec<PathBuf> = before.iter().map(|word| word.to_path_buf()).collect();
        words.extend(self.command.split(' ').map(|word| match word {
            "SELF" => own.clone(),
            "DATA" => file.clone(),
            "--db=MEMORY" => PathBuf::from(&db),
            word => PathBuf::from(word),
        }));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
        let start = Instant::now();
        let out = command.output()?;
        let took_s = start.elapsed().as_secs_f64();
        if !out.status.success() {
            return Err(io::Error::other(format!("{}: {}", self.name, out.status)));
        }
        let said = String::from_utf8_lossy(&out.stdout);
        let number = |after| {
            number_after(&said, after)
                .ok_or_else(|| io::Error::other(format!("{}: no {after:?} printed", self.name)))
        };
        match self.speed {
            Speed::Time => Ok(1.0 / took_s),
            Speed::Output(after) => number(after),
            Speed::Each(after) => Ok(1.0 / number(after)?),
        }
    }

    fn compare(&self, unspin: &Path, runs: u32, dir: &Path) -> io::Result<Ratio> {
        let [run, mutex, end] = ["run", "--mutex", "--"].map(Path::new);
        let ways: [&[&Path]; 3] = [&[], &[unspin, run, end], &[unspin, run, mutex, end]];
        let mut speeds: [Vec<f64>; 3] = Default::default();
        for _ in 0..runs {
            for (way, speeds) in ways.iter().zip(&mut speeds) {
                speeds.push(self.run(way, dir)?);
            }
        }
        let [glibc, run, mutex] = speeds.map(|all| median(&all));
        Ok(Ratio { run: run / glibc, mutex: mutex / glibc, runs })
    }
}

/// The number that follows `after`; it may have the unit `s`.
fn number_after(text: &str, after: &str) -> Option<f64> {
    let (_, rest) = text.split_once(after)?;
    rest.split_whitespace().next()?.trim_end_matches('s').parse().ok()
}

/// Compares every program that is installed. Files go to `dir`. Calls `tell` with the name of each before,
/// and with those that are missing. Errors if a program cannot be started or fails.
pub fn compare(
    unspin: &Path,
    runs: u32,
    dir: &Path,
    mut tell: impl FnMut(&str, bool),
) -> io::Result<BTreeMap<&'static str, Ratio>> {
    std::fs::write(dir.join("data"), data())?;
    let mut ratios = BTreeMap::new();
    for program in &PROGRAMS {
        let first = program.command.split(' ').next().unwrap_or_default();
        let installed = first == "SELF" || in_path(first);
        tell(program.name, installed);
        if installed {
            ratios.insert(program.name, program.compare(unspin, runs, dir)?);
        }
    }
    std::fs::remove_file(dir.join("data"))?;
    Ok(ratios)
}

extern "C" {
    /// Six threads under one spin lock of pthread for that time; the rounds of all.
    fn unspin_bench_spin_program(ms: u32) -> u64;
}

/// The program that `--as-program` runs.
pub fn spin() {
    // SAFETY: it has no preconditions.
    println!("rounds: {}", unsafe { unspin_bench_spin_program(1000) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_after_its_name() {
        assert_eq!(number_after("a: 1\nrounds:   12.5 x\n", "rounds:"), Some(12.5));
        assert_eq!(number_after("rounds: many", "rounds:"), None);
        assert_eq!(number_after("", "rounds:"), None);
        assert_eq!(number_after("    total time:      1.2034s\n", "total time:"), Some(1.2034));
        let line =
            "readrandom   :      12.656 micros/op 587746 ops/sec 0.681 seconds 400000 operations;";
        assert_eq!(number_after(line, "readrandom   :"), Some(12.656));
    }

    #[test]
    fn data_has_its_size() {
        assert!((DATA_BYTES..DATA_BYTES + 10).contains(&data().len()));
    }

    #[test]
    fn the_spin_program_makes_rounds() {
        // SAFETY: it has no preconditions.
        assert!(unsafe { unspin_bench_spin_program(20) } > 0);
    }
}
