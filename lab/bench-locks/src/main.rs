// SPDX-License-Identifier: MIT OR Apache-2.0
//! `make bench-locks`: measures every lock of core/locks/ and the peers, interleaved, at 1, 2, 4
//! and 8 threads per CPU and in other workloads. Prints medians, spread and ratios, and writes them to
//! summary.json.

use clap::Parser;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unspin_bench_locks::bench::{Config, Subject, SUBJECTS};
use unspin_bench_locks::campaign::{complete, measure, CODE};
use unspin_bench_locks::counts;
use unspin_bench_locks::figures::{load, summarise};
use unspin_bench_locks::machine::load_average;
use unspin_bench_locks::programs;
use unspin_bench_locks::table::table;
use unspin_bench_locks::workload::{Part, Setup};

#[derive(Parser)]
#[command(about = "Measures the locks of unspin and the locks programs use today")]
struct Args {
    /// Where samples.jsonl and summary.json go.
    #[arg(long, default_value = "out/bench-locks")]
    out: PathBuf,
    /// Runs of each lock at each level, interleaved.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Runs of each lock in each other workload, and of each program.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    workload_runs: u32,
    /// Length of a measurement, ms.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    window_ms: u32,
    /// Length of a measurement of fairness, ms.
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..))]
    fair_window_ms: u32,
    /// Loop iterations inside the lock. Few keep the lock itself the bottleneck.
    #[arg(long, default_value_t = 100)]
    critical_iterations: u32,
    /// Loop iterations between a release and the next lock.
    #[arg(long, default_value_t = 100)]
    outside_iterations: u32,
    /// Both, in the workload of long sections.
    #[arg(long, default_value_t = 2000)]
    long_iterations: u32,
    /// Short measurements and few runs: less than 2 minutes, and wide intervals.
    #[arg(long, conflicts_with_all = ["runs", "workload_runs", "window_ms", "fair_window_ms"])]
    quick: bool,
    /// Run all threads as SCHED_RR, so that no other program runs during a measurement: for computers with
    /// other load. Set kernel.sched_rr_timeslice_ms to the 3 or 4 ms of the fair scheduler's slices. Needs root.
    #[arg(long)]
    realtime: bool,
    /// Stop after this many seconds; with --resume the next run continues.
    #[arg(long)]
    seconds: Option<u64>,
    /// Continue with the existing samples of the same code and arguments.
    #[arg(long)]
    resume: bool,
    /// Instead: count stalls and overtakes (core/locks/stats.h), once per lock and level. Counting changes
    /// the rates, so they are not those of the locks.
    #[arg(long)]
    counts: bool,
    /// Only these locks and peers.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Be the program with a spin lock that is compared under `unspin run`.
    #[arg(long, hide = true)]
    as_program: bool,
}

fn wanted(only: &[String]) -> Result<Vec<&'static Subject>, String> {
    if let Some(unknown) = only.iter().find(|o| SUBJECTS.iter().all(|s| s.name != o.as_str())) {
        let names: Vec<&str> = SUBJECTS.iter().map(|s| s.name).collect();
        return Err(format!("no lock {unknown:?}; there are {}", names.join(", ")));
    }
    Ok(SUBJECTS.iter().filter(|s| only.is_empty() || only.iter().any(|o| o == s.name)).collect())
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

fn count(args: &Args, subjects: &[&'static Subject]) -> std::io::Result<()> {
    let config = Config {
        warmup_ms: 0,
        window_ms: args.window_ms,
        waits: 0,
        realtime: 0,
        ..setup(args).config(Part::Level(1))
    };
    print!("{}", counts::table(cpus(), &config, |name| subjects.iter().any(|s| s.name == name))?);
    println!(
        "N_h, N_w: stalls over 1 us with the lock held, free (VEE'13, Table 1); running, off, back: \
         overtakes in 1000 acquisitions of waiters that ran all the time, without a CPU, rescheduled; \
         R/2 %: of the rescheduled, those that had the lock after at most R/2 overtakes (4.3: 50)"
    );
    Ok(())
}

fn setup(args: &Args) -> Setup {
    let all = Setup {
        cpus: cpus(),
        runs: args.runs,
        workload_runs: args.workload_runs,
        window_ms: args.window_ms,
        fair_window_ms: args.fair_window_ms,
        critical_iterations: args.critical_iterations,
        outside_iterations: args.outside_iterations,
        long_iterations: args.long_iterations,
        realtime: args.realtime,
        code: CODE.to_string(),
    };
    match args.quick {
        true => Setup { runs: 3, workload_runs: 2, window_ms: 60, fair_window_ms: 500, ..all },
        false => all,
    }
}

/// Programs under `unspin run`, if it has been built and all locks are wanted.
fn programs_of(
    args: &Args,
    setup: &Setup,
) -> std::io::Result<Option<BTreeMap<&'static str, programs::Ratio>>> {
    let Some(unspin) = programs::unspin().filter(|_| args.only.is_empty()) else {
        println!("programs under `unspin run`: not measured (needs all locks, and `unspin` beside this program)");
        return Ok(None);
    };
    let ratios = programs::compare(&unspin, setup.workload_runs, &args.out, |name, installed| {
        if !installed {
            println!("{name}: not installed");
        }
    })?;
    for (name, ratio) in &ratios {
        println!(
            "{name}: unspin run {:.2}, --mutex {:.2} of the speed with glibc",
            ratio.run, ratio.mutex
        );
    }
    Ok(Some(ratios))
}

fn bench(args: &Args, subjects: &[&'static Subject]) -> std::io::Result<()> {
    let setup = setup(args);
    let before = load_average();
    std::fs::create_dir_all(&args.out)?;
    let stop_at = args.seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let bar = indicatif::ProgressBar::new(0);
    bar.set_style(
        indicatif::ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg} {eta}")
            .expect("a template that indicatif knows"),
    );
    let file = args.out.join("samples.jsonl");
    if !args.resume && file.exists() {
        std::fs::remove_file(&file)?;
    }
    let samples = measure(&setup, subjects, &file, stop_at, |done, all, lock| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(lock.to_string());
    })?;
    bar.finish_and_clear();
    let complete = complete(&setup, subjects, &samples);
    let programs = if complete { programs_of(args, &setup)? } else { None };
    let load = load(&samples, before);
    let summary = summarise(&setup, complete, load, programs, (subjects, &samples));
    print!("{}", table(&summary.rows));
    if !complete {
        println!("not complete: --resume goes on");
    }
    if summary.load.beside_load {
        println!(
            "beside load: other programs used {:.2} CPUs (load average before: {}, nice {})",
            summary.load.others_cpus, summary.load.load_average, summary.load.nice
        );
    }
    let file = args.out.join("summary.json");
    std::fs::write(&file, serde_json::to_vec_pretty(&summary)?)?;
    println!("{}", file.display());
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.as_program {
        programs::spin();
        return ExitCode::SUCCESS;
    }
    let subjects = match wanted(&args.only) {
        Ok(subjects) => subjects,
        Err(error) => {
            eprintln!("unspin-bench-locks: {error}");
            return ExitCode::from(2);
        }
    };
    let made = if args.counts { count(&args, &subjects) } else { bench(&args, &subjects) };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unspin-bench-locks: {error}");
            ExitCode::FAILURE
        }
    }
}
