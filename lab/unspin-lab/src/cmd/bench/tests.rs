// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that only reports the requests it gets.

use super::*;
use crate::machine::{Refusal, Sink};
use clap::Parser;
use signal_hook::consts::SIGHUP;
use unspin_agent::is_ignored;
use unspin_scenario::plan::Run;
use unspin_scenario::result::{Begin, RunResult, VmResult};
use unspin_scratch::Scratch;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn args(more: &[&str]) -> Args {
    let all = ["bench", "smoke", "--quiet", "--repeats", "2"].iter().chain(more);
    Cli::try_parse_from(all).unwrap().args
}

/// A machine of formulas that may stop after some runs.
struct Fake {
    name: &'static str,
    boots: bool,
    stops_after: usize,
    image: &'static str,
    made: Mutex<Vec<u32>>,
}

impl Fake {
    fn new(boots: bool, stops_after: usize) -> Fake {
        Fake { name: "fake", boots, stops_after, image: "01234567", made: Mutex::new(Vec::new()) }
    }

    fn made(&self) -> Vec<u32> {
        lock(&self.made).clone()
    }
}

fn result(run: &Run) -> Record {
    let (units, cpu_ns) = (vec![100; 4], vec![1000; 4]);
    let vm = VmResult { acquisitions: units.clone(), units, cpu_ns, ..VmResult::default() };
    Record::Run(Box::new(RunResult::new(run.clone(), 1000, vec![vm; run.vms.len()])))
}

impl Machine for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn default_kernel(&self) -> &str {
        "6.12"
    }

    fn boots(&self) -> bool {
        self.boots
    }

    fn check_kernel(&self, _: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn image(&self, _: &AtomicBool) -> anyhow::Result<String> {
        Ok(self.image.to_string())
    }

    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()> {
        sink(Record::Begin(Begin {
            kernel: "6.12.1".to_string(),
            pcpus: 4,
            ..Begin::of(job.plan)
        }))?;
        for r in job.plan.runs.iter().take(self.stops_after) {
            sink(result(r))?;
            lock(&self.made).push(r.id);
        }
        if self.stops_after >= job.plan.runs.len() {
            sink(Record::End { runs: job.plan.runs.len() as u32, failed: 0 })?;
        }
        Ok(())
    }
}

struct Case {
    dir: Scratch,
    plan: Plan,
    loaded: Loaded,
}

impl Case {
    fn new() -> Case {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let loaded = load::scenario(&root.join("scenarios/smoke.toml"), None).unwrap();
        let plan = loaded.plan(&args(&[]).select).unwrap();
        Case { dir: Scratch::new(), plan, loaded }
    }

    fn go(&self, args: &Args, machine: &Fake) -> (anyhow::Result<()>, Vec<Document>) {
        let Case { dir, plan, loaded } = self;
        let (out, stop) = (dir.to_path_buf(), &AtomicBool::new(false));
        let bench = Bench { args, loaded, plan, machine, out, stop };
        let boots = bench.boots(machine.image).unwrap();
        fs::create_dir_all(bench.boots_dir()).unwrap();
        let made = bench.make(&boots);
        (made, gather(&boots, &self.dir).unwrap().0)
    }
}

/// The answer of a machine with a kernel of its own to the smoke scenario with `changes`.
fn said(changes: &[(&str, &str)]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = fs::read_to_string(root.join("scenarios/smoke.toml")).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let dir = Scratch::new();
    let file = dir.write("said.toml", text);
    let loaded = load::scenario(&file, Some(&root.join("profiles"))).unwrap();
    let args = args(&[]);
    let plan = loaded.plan(&args.select).unwrap();
    let (args, machine) = (&args, &Fake { name: "kvm", ..Fake::new(true, 0) });
    let (loaded, plan, stop) = (&loaded, &plan, &AtomicBool::new(false));
    let bench = Bench { args, loaded, plan, machine, out: PathBuf::new(), stop };
    bench.check().err().map(|e| e.to_string())
}

#[test]
fn a_kernels_scheduler_caps_cgroups_and_is_not_credit() {
    let capped = ("[host]\n", "[host]\nscheduler = \"fair-capped\"\n");
    let vms = ("[sweep]\n", "[sweep]\ncgroups = [\"vm\"]\n");
    let credit = said(&[("[host]\n", "[host]\nscheduler = \"credit\"\n")]).unwrap();
    assert!(credit.contains("host.scheduler") && credit.contains("sched-ext"), "{credit}");
    let flat = said(&[capped]).unwrap();
    assert!(flat.contains("host.scheduler") && flat.contains("caps need cgroups"), "{flat}");
    assert_eq!(said(&[capped, vms]), None);
}

#[test]
fn a_bench_leaves_results_summary_and_page() {
    let case = Case::new();
    let (made, docs) = case.go(&args(&[]), &Fake::new(true, usize::MAX));
    made.unwrap();
    let s = &docs[0].summary;
    assert_eq!((s.machine.as_str(), s.title.as_str()), ("fake", "Smoke test"));
    assert!(s.provenance.complete && s.provenance.version.is_some());
    assert_eq!(s.provenance.tsc_khz, None, "what the machine does not know is not 0");
    assert_eq!(s.provenance.runs, 6, "alone, stock and apples, twice");
    for file in FILES {
        assert!(case.dir.join(file).is_file(), "{file}");
    }
}

#[test]
fn a_boot_cut_off_counts_and_is_replayed_whole() {
    let case = Case::new();
    let (made, docs) = case.go(&args(&[]), &Fake::new(true, 4));
    assert!(made.unwrap_err().to_string().contains("before the end of its plan"));
    assert!(!docs[0].summary.provenance.complete);
    assert_eq!(docs[0].summary.provenance.runs, 4);
    let again = Fake::new(true, usize::MAX);
    let (made, docs) = case.go(&args(&["--resume"]), &again);
    made.unwrap();
    assert_eq!(again.made().len(), 6);
    assert!(docs[0].summary.provenance.complete);
    let idle = Fake::new(true, usize::MAX);
    case.go(&args(&["--resume"]), &idle).0.unwrap();
    assert!(idle.made().is_empty(), "nothing is left to make");
    let fresh = Fake::new(true, usize::MAX);
    case.go(&args(&[]), &fresh).0.unwrap();
    assert_eq!(fresh.made().len(), 6, "without --resume all is made again");
}

#[test]
fn resuming_makes_again_what_other_code_made() {
    let case = Case::new();
    case.go(&args(&[]), &Fake::new(true, usize::MAX)).0.unwrap();
    let changed = |stops_after| Fake { image: "89abcdef", ..Fake::new(true, stops_after) };
    let cut = changed(2);
    assert!(case.go(&args(&["--resume"]), &cut).0.is_err());
    let records = || fs::read_dir(case.dir.join("boots")).unwrap().flatten().map(|e| e.path());
    assert!(records().any(|p| p.to_string_lossy().ends_with("01234567.jsonl")), "too early");
    let again = changed(usize::MAX);
    let (made, docs) = case.go(&args(&["--resume"]), &again);
    made.unwrap();
    assert_eq!(again.made().len(), 6);
    assert_eq!(docs[0].summary.provenance.image.as_deref(), Some("89abcdef"));
    assert_eq!(records().filter(|p| p.is_file()).count(), 1, "the old records are gone");
}

#[test]
fn results_stay_until_new_ones_are_complete() {
    for boots in [true, false] {
        let case = Case::new();
        case.go(&args(&[]), &Fake::new(boots, usize::MAX)).0.unwrap();
        let (made, docs) = case.go(&args(&[]), &Fake::new(boots, 2));
        assert!(made.is_err());
        assert_eq!(docs[0].summary.provenance.runs, 6, "the old results");
        let rest = Fake::new(boots, usize::MAX);
        case.go(&args(&["--resume"]), &rest).0.unwrap();
        assert_eq!(rest.made().len(), if boots { 6 } else { 4 }, "the new bench goes on");
    }
}

#[test]
fn a_host_goes_on_after_the_runs_it_made() {
    let case = Case::new();
    assert!(case.go(&args(&[]), &Fake::new(false, 4)).0.is_err());
    // The last record was being written when the light went out.
    let part = fs::read_dir(case.dir.join("boots")).unwrap().flatten().map(|e| e.path());
    let part = part.into_iter().find(|p| p.extension().is_some_and(|x| x == "part")).unwrap();
    let text = fs::read(&part).unwrap();
    fs::write(&part, &text[..text.len() - 20]).unwrap();
    let rest = Fake::new(false, usize::MAX);
    let (made, docs) = case.go(&args(&["--resume"]), &rest);
    made.unwrap();
    let missing: Vec<u32> = case.plan.runs[3..].iter().map(|r| r.id).collect();
    assert_eq!(rest.made(), missing);
    assert_eq!(docs[0].summary.provenance.runs, 6);
}

/// A file that was cut or changed after its boot ended.
#[test]
fn records_that_are_lost_are_made_again() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    /// The line of a number is another text.
    fn line(text: Vec<u8>, number: usize, other: &str) -> Vec<u8> {
        let text = String::from_utf8(text).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines[number] = other;
        (lines.join("\n") + "\n").into_bytes()
    }
    let ways: [(&str, Damage); 10] = [
        ("broken-begin", |text| line(text, 0, "{\"record\":\"begin\",")),
        ("broken-run", |text| line(text, 3, "{\"record\":\"run\",\"run\":{\"id\":")),
        ("no-run", |text| line(text, 3, "")),
        ("joined", |text| {
            let end = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(2).unwrap().0;
            [&text[..end], &text[end + 1..]].concat()
        }),
        ("empty", |_| Vec::new()),
        ("begin-cut", |text| text[..100].to_vec()),
        ("half", |text| text[..text.len() / 2].to_vec()),
        ("no-end", |text| text[..text.len() - 10].to_vec()),
        ("rubbish", |text| vec![0xa5; text.len()]),
        ("other-schema", |text| {
            let text = String::from_utf8(text).unwrap();
            text.replacen("\"schema\":1", "\"schema\":2", 1).into_bytes()
        }),
    ];
    for (name, damage) in ways {
        for boots in [true, false] {
            let case = Case::new();
            case.go(&args(&[]), &Fake::new(boots, usize::MAX)).0.unwrap();
            let files = fs::read_dir(case.dir.join("boots")).unwrap().flatten().map(|e| e.path());
            let file = files.into_iter().find(|p| p.extension().is_some_and(|x| x == "jsonl"));
            let file = file.unwrap();
            fs::write(&file, damage(fs::read(&file).unwrap())).unwrap();
            let again = Fake::new(boots, usize::MAX);
            let (made, docs) = case.go(&args(&["--resume"]), &again);
            made.unwrap();
            // A host has all runs without the End.
            assert!(!again.made().is_empty() || name == "no-end" && !boots, "{name}");
            assert_eq!(docs[0].summary.provenance.runs, 6, "{name}");
            assert!(docs[0].summary.provenance.complete, "{name}");
            let twice = docs[0].summary.notices.iter().any(|note| note.contains("twice"));
            assert!(!twice, "{name}: {:?}", docs[0].summary.notices);
            let idle = Fake::new(boots, usize::MAX);
            case.go(&args(&["--resume"]), &idle).0.unwrap();
            assert!(idle.made().is_empty(), "{name}: nothing is left to make");
        }
    }
}

/// Twice: the terminal says it, and the shell.
#[test]
fn a_lost_terminal_ends_a_bench_in_order() {
    let (stop, ignored) = (signals::stop_or_lost_terminal().unwrap(), is_ignored(SIGHUP));
    for _ in 0..2 {
        // SAFETY: only sends this process a signal that it takes.
        assert_eq!(unsafe { libc::raise(SIGHUP) }, 0);
        assert_eq!(stop.load(Ordering::Relaxed), !ignored);
    }
}
