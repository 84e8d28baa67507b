// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every scenario of the repository stands for the plan it stood for: a change of how files are read
//! or expanded changes none. `UNSPIN_BLESS=1 cargo test -p unspin-scenario --test plans` renews the
//! list where a scenario or a profile was meant to change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use unspin_scenario::plan::{GuestProgram, Plan};
use unspin_scenario::{
    expand, parse_guest_program, parse_profile, parse_scenario, split, Profile, Ranges, Selection,
    Workloads,
};

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

/// The profiles scenarios name.
fn profiles(root: &Path) -> BTreeMap<String, (Profile, String)> {
    let read = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(&path).unwrap();
        let profile = parse_profile(&path.display().to_string(), &name, &text);
        (name, (profile.unwrap_or_else(|e| panic!("{e}")), text))
    };
    of_all(root, "profiles").into_iter().map(read).collect()
}

/// The programs of Linux guests.
fn programs(root: &Path) -> BTreeMap<String, (GuestProgram, String)> {
    let mut found = BTreeMap::new();
    files(&root.join("programs"), &mut found);
    let read = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(&path).unwrap();
        let program = parse_guest_program(&path.display().to_string(), &name, &text);
        (name, (program.unwrap_or_else(|e| panic!("{e}")), text))
    };
    found.into_iter().map(read).collect()
}

/// What a plan asks for, whatever comments the files have.
fn fingerprint(plan: Plan) -> String {
    Plan { scenario_hash: String::new(), ..plan }.fingerprint()[..16].to_string()
}

#[test]
fn scenarios_stand_for_the_plans_they_stood_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workloads = Workloads { profiles: profiles(&root), programs: programs(&root) };
    let scenarios = of_all(&root, "scenarios");
    assert!(scenarios.len() >= 30, "{}", scenarios.len());
    let mut found = String::new();
    for (name, path) in scenarios {
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = parse_scenario(&path.display().to_string(), &name, &text);
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let plan = expand(&scenario, &text, &workloads, &Selection::default()).unwrap();
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
    let mut profiles = BTreeMap::new();
    for (name, path) in of("emulated/profiles") {
        let text = std::fs::read_to_string(&path).unwrap();
        let paper = std::fs::read_to_string(&papers[&name]).unwrap();
        let paper = Ranges::read(&name, &paper).unwrap().usual();
        assert_eq!(steps_divided_by(&text, 1.0), steps_divided_by(&paper, 12.0), "{name}");
        let profile = parse_profile(&path.display().to_string(), &name, &text);
        profiles.insert(name, (profile.unwrap_or_else(|e| panic!("{e}")), text));
    }
    let workloads = profiles.into();
    for (name, path) in of("emulated/scenarios") {
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = parse_scenario(&path.display().to_string(), &name, &text);
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let plan = expand(&scenario, &text, &workloads, &Selection::default()).unwrap();
        assert!(!plan.runs.is_empty(), "{name}");
    }
}
