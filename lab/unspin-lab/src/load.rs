// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and reads scenarios, and the profiles and programs that they name.

use crate::exit::{said, unread, Usage};
use crate::machine::Refusal;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::collections::btree_map::{BTreeMap, Entry};
use std::path::{Component, Path, PathBuf};
use unspin_scenario::plan::{CgroupLayout, GuestLock, Plan};
use unspin_scenario::{
    expand, parse_guest_program, parse_profile, parse_scenario, problem_at, Named, Problems,
    Profile, Ranges, Scenario, Selection, Unknown, Workloads,
};
use unspin_text::{read_text, shown};

/// What of a scenario to run.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Select {
    /// Only these arms and the baseline; separate names by commas, or repeat the option.
    #[arg(long = "arm", value_name = "NAME", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Only these profiles, or programs of Linux guests.
    #[arg(long = "profile", value_name = "NAME", value_delimiter = ',')]
    pub profiles: Vec<String>,
    /// Only these numbers of VMs.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub vms: Vec<u32>,
    /// Only these cgroup layouts.
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',', value_parser = named::<CgroupLayout>())]
    pub cgroup: Vec<CgroupLayout>,
    /// Only these locks of the scenario's sweep; `unspin-lab plan --list` prints the names.
    #[arg(long = "lock", value_name = "LOCK", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Only these locks of Linux guests of the scenario's sweep.
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = named::<GuestLock>())]
    pub guest_lock: Vec<GuestLock>,
    /// Number of repeats, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Directory with the profiles [default: ../profiles next to the scenario, profiles/ and
    /// papers/*/profiles].
    #[arg(long, value_name = "DIR")]
    pub profile_dir: Option<PathBuf>,
}

/// The names of `T` as the values of an option.
fn named<T: Named + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let names: Vec<&str> = T::choices().into_iter().map(|(name, _)| name).collect();
    PossibleValuesParser::new(names).try_map(|given| {
        let one = T::choices().into_iter().find(|(name, _)| *name == given);
        one.map(|(_, one)| one).ok_or("no such name")
    })
}

/// A scenario and everything it needs.
pub struct Loaded {
    pub scenario: Scenario,
    /// The file's name in errors.
    file: String,
    text: String,
    workloads: Workloads,
    /// Directories in which its profiles are searched.
    profile_dirs: Vec<PathBuf>,
    /// Ranges of unknown values of the scenario and its profiles.
    ranges: Ranges,
    profile_ranges: BTreeMap<String, Ranges>,
}

impl Loaded {
    /// The error for a key of the scenario that the machine refuses.
    pub fn refused(&self, key: &str, why: &Refusal) -> Usage {
        Usage(problem_at(&self.file, &self.text, key, &why.message, &why.allowed).to_string())
    }

    pub fn plan(&self, select: &Select) -> anyhow::Result<Plan> {
        let selection = Selection {
            arms: select.arms.clone(),
            profiles: select.profiles.clone(),
            vms: select.vms.clone(),
            cgroups: select.cgroup.clone(),
            guest_locks: select.guest_lock.clone(),
            locks: select.locks.clone(),
        };
        let mut scenario = self.scenario.clone();
        scenario.repeats = select.repeats.unwrap_or(scenario.repeats);
        expand(&scenario, &self.text, &self.workloads, &selection)
            .map_err(|e| Usage(format!("{}: {e}", self.scenario.name)).into())
    }
}

impl Loaded {
    /// The unknown values of the scenario and its profiles, with unique names.
    pub fn unknown(&self) -> Vec<(String, &Unknown)> {
        let own = self.ranges.unknown.iter().map(|u| (u.path.clone(), u));
        let of_profile = |(name, ranges)| {
            let Ranges { unknown, .. }: &Ranges = ranges;
            let name: &String = name;
            unknown.iter().map(move |u| (format!("{name}/{}", u.path), u))
        };
        own.chain(self.profile_ranges.iter().flat_map(of_profile)).collect()
    }

    /// Checks that the scenario is valid with each value of its choices and each end of its ranges.
    /// Otherwise some world would fail after others were simulated.
    fn check_values(&self) -> anyhow::Result<()> {
        let mut before = 0;
        for ranges in std::iter::once(&self.ranges).chain(self.profile_ranges.values()) {
            for (i, unknown) in ranges.unknown.iter().enumerate() {
                for at in unknown.extremes() {
                    let mut world = vec![None; before + i + 1];
                    world[before + i] = Some(at);
                    self.in_world(&world).map_err(|e| {
                        let (path, value) = (&unknown.path, unknown.value(at));
                        Usage(format!(
                            "{}\n    with `{path}` = {value}, one of its possible values",
                            said(&e)
                        ))
                    })?;
                }
            }
            before += ranges.unknown.len();
        }
        Ok(())
    }

    /// The same scenario in one world. `at` has a place for each of `unknown()`; `None` means the
    /// usual value.
    pub fn in_world(&self, at: &[Option<f64>]) -> anyhow::Result<Loaded> {
        let (own, mut rest) = at.split_at(self.ranges.unknown.len().min(at.len()));
        let text = self.ranges.at(own);
        let scenario = parse_scenario(&self.file, &self.scenario.name, &text)
            .map_err(|e| Usage(e.to_string()))?;
        let mut workloads = self.workloads.clone();
        for (name, ranges) in &self.profile_ranges {
            let (own, others) = rest.split_at(ranges.unknown.len().min(rest.len()));
            rest = others;
            let text = ranges.at(own);
            workloads.profiles.insert(name.clone(), (parse_profile(name, name, &text)?, text));
        }
        for name in scenario.profile_names() {
            if let Entry::Vacant(missing) = workloads.profiles.entry(name) {
                let read = profiles(&self.profile_dirs).read(missing.key())?;
                missing.insert(read);
            }
        }
        Ok(Loaded {
            scenario,
            file: self.file.clone(),
            text,
            workloads,
            profile_dirs: self.profile_dirs.clone(),
            ranges: self.ranges.clone(),
            profile_ranges: self.profile_ranges.clone(),
        })
    }
}

/// Reads a scenario, given by its file or, without an extension, by its name in `scenarios/` or in
/// `papers/KEY/scenarios/`.
pub fn scenario(given: &Path, profile_dir: Option<&Path>) -> anyhow::Result<Loaded> {
    let path = find_scenario(given)?;
    let shown = shown(&path);
    let text = read_text(&path).map_err(unread)?;
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or("scenario").to_string();
    let ranges = Ranges::read(&shown, &text).map_err(|e| Usage(e.to_string()))?;
    let text = ranges.usual();
    let scenario = parse_scenario(&shown, &name, &text).map_err(|e| Usage(e.to_string()))?;
    let mut wrong = Vec::new();
    let profile_dirs = dirs_of("profiles", &path, profile_dir);
    let programs = Kept {
        what: "program",
        dirs: &dirs_of("programs", &path, None),
        parse: parse_guest_program,
    };
    let mut workloads = Workloads {
        profiles: profiles(&profile_dirs).read_all(&scenario.profile_names(), &mut wrong),
        programs: programs.read_all(&scenario.guest_program_names(), &mut wrong),
    };
    if !wrong.is_empty() {
        return Err(Usage(format!("{shown}: {}", wrong.join("\n"))).into());
    }
    let mut profile_ranges = BTreeMap::new();
    for (name, (_, text)) in &mut workloads.profiles {
        let ranges = Ranges::read(name, text).map_err(|e| Usage(e.to_string()))?;
        *text = ranges.usual();
        profile_ranges.insert(name.clone(), ranges);
    }
    profile_ranges.retain(|_, ranges| !ranges.unknown.is_empty());
    let loaded =
        Loaded { scenario, file: shown, text, workloads, profile_dirs, ranges, profile_ranges };
    loaded.check_values()?;
    Ok(loaded)
}

fn profiles(dirs: &[PathBuf]) -> Kept<'_, Profile> {
    Kept { what: "profile", dirs, parse: parse_profile }
}

fn find_scenario(given: &Path) -> anyhow::Result<PathBuf> {
    if given.is_file() {
        return Ok(given.to_path_buf());
    }
    // A name such as `demo` or `threads/vms`.
    let is_name = given.extension().is_none()
        && given.components().all(|part| matches!(part, Component::Normal(_)));
    let mut known = Vec::new();
    if is_name {
        for dir in roots().flat_map(|r| of_all(&r, "scenarios")) {
            let path = dir.join(given).with_extension("toml");
            if path.is_file() {
                return Ok(path);
            }
            known.extend(names_in(&dir));
            for folder in folders_in(&dir) {
                let of = |name| format!("{folder}/{name}");
                known.extend(names_in(&dir.join(&folder)).into_iter().map(of));
            }
        }
    }
    known.sort();
    known.dedup();
    let hint = if given.exists() {
        ": it is not a regular file".to_string()
    } else if !known.is_empty() {
        format!("; known: {}", known.join(", "))
    } else if is_name {
        let dirs: Vec<String> = roots().map(|r| shown(&r.join("scenarios"))).collect();
        format!("; no scenarios in {}: name a file", dirs.join(", "))
    } else {
        String::new()
    };
    Err(Usage(format!("no scenario {}{hint}", shown(given))).into())
}

/// Directories in which scenarios/, profiles/ and papers/ are searched: the present one, those above the
/// program, and the checkout from which it was built.
fn roots() -> impl Iterator<Item = PathBuf> {
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok().and_then(|p| p.canonicalize().ok());
    let above = program.as_deref().and_then(|p| p.ancestors().nth(3)).map(Path::to_path_buf);
    let built_from = Some(unspin_computers::source_tree()).filter(|root| root.is_dir());
    let shared = Some(PathBuf::from("/usr/share/unspin"));
    [here, above, built_from, shared].into_iter().flatten()
}

/// The first root that has `file`.
pub fn root(file: &str) -> anyhow::Result<PathBuf> {
    roots().find(|r| r.join(file).is_file()).ok_or_else(|| {
        let dirs: Vec<String> = roots().map(|r| shown(&r)).collect();
        Usage(format!(
            "no {file} in {}: run the command in a checkout of the project",
            dirs.join(", ")
        ))
        .into()
    })
}

fn dirs_of(kind: &str, scenario: &Path, given: Option<&Path>) -> Vec<PathBuf> {
    if let Some(d) = given {
        return vec![d.to_path_buf()];
    }
    let beside = scenario.parent().map(|p| p.join("..").join(kind));
    let known = roots().flat_map(|r| of_all(&r, kind));
    beside.into_iter().chain(known).collect()
}

/// Directories of a kind of files: the lab's own, and each paper's.
fn of_all(root: &Path, kind: &str) -> Vec<PathBuf> {
    let papers = root.join("papers");
    let of = |paper: &String| papers.join(paper).join(kind);
    let mut folders = folders_in(&papers);
    folders.sort();
    std::iter::once(root.join(kind)).chain(folders.iter().map(of)).collect()
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "toml"))
        .filter_map(|p| Some(p.file_stem()?.to_str()?.to_string()))
        .collect();
    names.sort();
    names
}

fn folders_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = entries.filter(|e| e.path().is_dir());
    folders.filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// Files of a kind, by name.
struct Kept<'a, T> {
    what: &'static str,
    dirs: &'a [PathBuf],
    parse: fn(&str, &str, &str) -> Result<T, Problems>,
}

impl<T> Kept<'_, T> {
    /// Reads the files with these names; adds errors to `wrong`.
    fn read_all(&self, names: &[String], wrong: &mut Vec<String>) -> BTreeMap<String, (T, String)> {
        let mut all = BTreeMap::new();
        for name in names {
            match self.read(name) {
                Ok(read) => {
                    all.insert(name.clone(), read);
                }
                Err(e) => wrong.push(said(&e)),
            }
        }
        all
    }

    fn read(&self, name: &str) -> anyhow::Result<(T, String)> {
        for dir in self.dirs {
            let path = dir.join(name).with_extension("toml");
            if path.is_file() {
                let text = read_text(&path).map_err(unread)?;
                let parsed = (self.parse)(&shown(&path), name, &text)?;
                return Ok((parsed, text));
            }
        }
        let mut known: Vec<String> = self.dirs.iter().flat_map(|d| names_in(d)).collect();
        known.sort();
        known.dedup();
        anyhow::bail!("unknown {} {name:?}; known: {}", self.what, known.join(", "))
    }
}
