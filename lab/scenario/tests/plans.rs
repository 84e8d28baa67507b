// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every scenario of the repository stands for the plan it stood for: a change of how files are read
//! or expanded changes none. `UNSPIN_BLESS=1 cargo test -p unspin-scenario --test plans` renews the
//! list where a scenario or a profile was meant to change. What holds for any plan holds for these.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use unspin_scenario::plan::Plan;
use unspin_scenario::{
    expand, parse_guest_program, parse_profile, parse_scenario, split, Problems, Profile, Ranges,
    Scenario, Selection, Workloads,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every TOML file below `dir`, by its name.
fn files(dir: &Path, all: &mut BTreeMap<String, PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.map(|e| e.unwrap().path()) {
        if path.is_dir() {
            files(&path, all);
        } else if path.extension().is_some_and(|x| x == "toml") {
            all.insert(path.file_stem().unwrap().to_str().unwrap().to_string(), path);
        }
    }
}

/// The files of that kind: the lab's own, and the papers'. No two have one name.
fn of_all(root: &Path, kind: &str) -> BTreeMap<String, PathBuf> {
    let papers = std::fs::read_dir(root.join("papers")).unwrap();
    let papers = papers.map(|paper| paper.unwrap().path());
    let papers = papers.map(|paper| paper.join(kind)).filter(|dir| dir.is_dir());
    let mut found = BTreeMap::new();
    for dir in std::iter::once(root.join(kind)).chain(papers) {
        let mut more = BTreeMap::new();
        files(&dir, &mut more);
        assert!(!more.is_empty(), "{} has none", dir.display());
        for (name, path) in more {
            let other = found.insert(name, path.clone());
            assert!(other.is_none(), "{} and {}", path.display(), other.unwrap().display());
        }
    }
    found
}

/// The contents of these files, by their names, with their texts.
fn contents<T>(
    files: BTreeMap<String, PathBuf>,
    parse: fn(&str, &str, &str) -> Result<T, Problems>,
) -> BTreeMap<String, (T, String)> {
    let read = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(&path).unwrap();
        let read = parse(&path.display().to_string(), &name, &text);
        (name, (read.unwrap_or_else(|e| panic!("{e}")), text))
    };
    files.into_iter().map(read).collect()
}

/// The profiles scenarios name.
fn profiles() -> BTreeMap<String, (Profile, String)> {
    contents(of_all(&root(), "profiles"), parse_profile)
}

/// What a plan asks for, whatever comments the files have.
fn fingerprint(plan: Plan) -> String {
    Plan { scenario_hash: String::new(), ..plan }.fingerprint()[..16].to_string()
}

/// A scenario of the repository, its file, and its plan.
struct Shipped {
    name: String,
    path: PathBuf,
    text: String,
    scenario: Scenario,
    plan: Plan,
}

fn workloads() -> Workloads {
    let mut programs = BTreeMap::new();
    files(&root().join("programs"), &mut programs);
    Workloads { profiles: profiles(), programs: contents(programs, parse_guest_program) }
}

fn shipped(workloads: &Workloads) -> Vec<Shipped> {
    let paths = of_all(&root(), "scenarios");
    assert!(paths.len() >= 30, "{}", paths.len());
    let expanded = |(name, (scenario, text)): (String, (Scenario, String))| {
        let plan = expand(&scenario, &text, workloads, &Selection::default()).unwrap();
        Shipped { path: paths[&name].clone(), name, text, scenario, plan }
    };
    contents(paths.clone(), parse_scenario).into_iter().map(expanded).collect()
}

#[test]
fn scenarios_stand_for_the_plans_they_stood_for() {
    let mut found = String::new();
    for Shipped { name, scenario, plan, .. } in shipped(&workloads()) {
        write!(found, "{name} {} runs", plan.runs.len()).unwrap();
        write!(found, ", attributed {}", fingerprint(plan.attributed())).unwrap();
        for part in split(&plan, scenario.boots) {
            write!(found, ", {}", fingerprint(part)).unwrap();
        }
        found.push('\n');
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans.txt");
    if std::env::var_os("UNSPIN_BLESS").is_some() {
        std::fs::write(&list, &found).unwrap();
    }
    let known = std::fs::read_to_string(&list).unwrap();
    let changed = found.lines().filter(|line| !known.lines().any(|k| k == *line));
    let changed: Vec<&str> = changed.filter_map(|line| line.split(' ').next()).collect();
    assert!(found == known, "other plans than before, or others in the list: {changed:?}");
}

/// What the arms of the lab's own scenarios are compared with.
#[test]
fn baselines_are_what_they_should_be() {
    for Shipped { name, path, plan, .. } in shipped(&workloads()) {
        if !path.starts_with(root().join("scenarios")) {
            continue;
        }
        // What the exit path costs is compared at one window, locks with the one that suffers, stalls
        // with nothing, cases with themselves, sizes with a window that nothing exits of; all else with KVM as it is.
        let baseline = match name.as_str() {
            "exit-path" => "kvm",
            "diagnosis" | "diagnosis-hogs" | "diagnosis-quota" => "watched",
            "diagnosis-ab" => "wide",
            "asymmetric" | "asymmetric-unpinned" | "asymmetric-linux" | "asymmetric-parts" => {
                "symmetric"
            }
            "idle-poll" => "halt",
            "table1" => "ple-off",
            "gangs-victim" | "gangs-linux-victim" => "off",
            "one-vm-locks" => "ticket",
            _ if path.starts_with(root().join("scenarios/threads")) => "ticket",
            _ => "stock",
        };
        assert_eq!(plan.runs[0].baseline, baseline, "{name}");
    }
}

#[test]
fn profiles_that_do_not_spin_say_so() {
    let mut own = BTreeMap::new();
    files(&root().join("profiles"), &mut own);
    let all = profiles();
    let calm: Vec<&str> =
        own.keys().filter(|name| !all[*name].0.spin_intensive).map(String::as_str).collect();
    let expected = [
        "balanced",
        "compute",
        "fork-and-join",
        "heavy-stage",
        "interactive",
        "phases",
        "shares-300-lines",
        "shares-3000-lines",
        "sleeps",
        "wandering",
    ];
    assert_eq!(calm, expected);
}

#[test]
fn plans_hold_every_run_once() {
    for Shipped { name, scenario, plan, .. } in shipped(&workloads()) {
        for (i, r) in plan.runs.iter().enumerate() {
            assert_eq!((r.id as usize, r.seed), (i, scenario.seed + u64::from(r.repeat)), "{name}");
            assert!(
                r.vms.iter().flat_map(|vm| &vm.pin).all(|p| *p < scenario.host.pcpus),
                "{name}"
            );
        }
        // Each repeat begins every point with another arm, where no arm has guests of its own.
        let mut first: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for r in plan.runs.iter().filter(|r| !r.alone && r.inject.is_none()) {
            let lock = format!("{}{:?}", r.lock_group, r.first().linux);
            let point = (r.profile.clone(), r.vms.len(), r.cgroup as u8, lock);
            if seen.insert((point.clone(), r.repeat)) {
                first.entry(point).or_default().insert(&r.arm.name);
            }
        }
        let own_guests = scenario.arms.iter().any(|arm| arm.idle.is_some());
        for names in first.values().filter(|_| !own_guests) {
            assert_eq!(names.len(), scenario.arms.len().min(scenario.repeats as usize), "{name}");
        }
        let json = plan.to_json();
        assert_eq!(Plan::from_json(json.as_bytes()).unwrap(), plan, "{name}");
    }
}

#[test]
fn shares_are_the_whole() {
    for Shipped { name, plan, .. } in shipped(&workloads()) {
        for parts in [1, 2, 5] {
            let shares = split(&plan, parts);
            assert!(shares.iter().all(|p| !p.runs.is_empty()), "{name}");
            let mut runs: Vec<_> = shares.iter().flat_map(|p| p.runs.clone()).collect();
            runs.sort_by_key(|r| r.id);
            assert_eq!(runs, plan.runs, "{name}");
        }
    }
}

#[test]
fn a_selection_keeps_ids_baseline_and_hash() {
    let workloads = workloads();
    for Shipped { name, text, scenario, plan, .. } in shipped(&workloads) {
        for arm in &scenario.arms {
            let one = Selection { arms: vec![arm.name.clone()], ..Selection::default() };
            let Ok(some) = expand(&scenario, &text, &workloads, &one) else {
                panic!("{name}, {}", arm.name)
            };
            assert_eq!(some.scenario_hash, plan.scenario_hash, "{name}");
            for r in &some.runs {
                assert_eq!(*r, plan.runs[r.id as usize], "{name}");
                assert!(r.alone || r.arm.name == arm.name || r.arm.name == r.baseline, "{name}");
            }
        }
    }
}

/// A file that is cut off, with anything behind, may be refused and ends no program.
#[test]
fn rubbish_never_panics() {
    let whole: Vec<String> = shipped(&workloads()).into_iter().map(|s| s.text).collect();
    let input = (0..whole.len(), any::<prop::sample::Index>(), "\\PC{0,200}");
    proptest!(|((file, cut, text) in input)| {
        let mut at = cut.index(whole[file].len());
        while !whole[file].is_char_boundary(at) {
            at -= 1;
        }
        let part = &whole[file][..at];
        for text in [&text, part, &(part.to_string() + &text)] {
            let _ = parse_scenario("x.toml", "x", text);
            let _ = parse_profile("p.toml", "p", text);
        }
    });
}

/// What of a profile runs, with every number of computing divided so.
fn steps_divided_by(text: &str, divisor: f64) -> String {
    let steps =
        text[text.find("step = [").unwrap()..].split("[calibration]").next().unwrap().trim_end();
    let number = |digits: &str| match digits.parse::<f64>() {
        Ok(iterations) if digits.len() > 3 => (iterations / divisor).round().to_string(),
        _ => digits.to_string(),
    };
    let mut divided = String::new();
    for part in steps.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        divided += &number(digits);
        divided += &part[digits.len()..];
    }
    divided
}

/// A paper's experiments on the emulated computer: its scenarios are plans, and its profiles are the
/// paper's for a clock of 200 MHz instead of 2.4 GHz.
#[test]
fn papers_on_the_emulated_computer_are_the_papers() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/asman");
    let of = |kind: &str| {
        let mut found = BTreeMap::new();
        files(&dir.join(kind), &mut found);
        assert!(!found.is_empty(), "{kind}");
        found
    };
    let papers = of("profiles");
    let profiles = contents(of("emulated/profiles"), parse_profile);
    for (name, (_, text)) in &profiles {
        let paper = std::fs::read_to_string(&papers[name]).unwrap();
        let paper = Ranges::read(name, &paper).unwrap().usual();
        assert_eq!(steps_divided_by(text, 1.0), steps_divided_by(&paper, 12.0), "{name}");
    }
    let workloads = profiles.into();
    for (name, (scenario, text)) in contents(of("emulated/scenarios"), parse_scenario) {
        let plan = expand(&scenario, &text, &workloads, &Selection::default()).unwrap();
        assert!(!plan.runs.is_empty(), "{name}");
    }
}
