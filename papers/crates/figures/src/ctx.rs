// SPDX-License-Identifier: MIT OR Apache-2.0
//! The basis of experiments: scenarios and profiles of the project, simulated on all cores. Each
//! run is simulated once, for any number of figures.

use crate::error::Error;
use crate::paper::KEYS;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{RunResult, VmResult};
use unspin_scenario::{expand, parse_profile, parse_scenario, Profile, Ranges, Selection};
use unspin_sim::{simulate_setup, Host, Kernel, Setup, Simulated};

/// The last step, for a progress bar.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A run was simulated.
    Run,
    /// An entry is complete.
    Entry(&'a str),
}

type Made = Arc<OnceLock<Result<Arc<Simulated>, String>>>;

/// The project's files, and the simulations so far.
pub struct Ctx {
    root: PathBuf,
    repeats: Option<u32>,
    made: Mutex<HashMap<String, Made>>,
    watch: Box<dyn Fn(Step) + Sync + Send>,
}

impl Ctx {
    /// First seed of every experiment.
    pub const SEED: u64 = 1;

    /// `root` holds `papers/`, `models/`, `scenarios/` and `profiles/`. `repeats`: overrides the
    /// scenarios'. `watch` receives the progress.
    pub fn new(
        root: &Path,
        repeats: Option<u32>,
        watch: impl Fn(Step) + Sync + Send + 'static,
    ) -> Ctx {
        let made = Mutex::new(HashMap::new());
        Ctx { root: root.to_path_buf(), repeats, made, watch: Box::new(watch) }
    }

    /// Directory of the project's files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Number of repeats of a point with further seeds; `usual` unless another number was
    /// requested.
    pub fn repeats(&self, usual: u32) -> u32 {
        self.repeats.unwrap_or(usual)
    }

    /// Reports that an entry is complete.
    pub fn entry_made(&self, id: &str) {
        (self.watch)(Step::Entry(id));
    }

    /// A file of the project, with the usual value of each range.
    ///
    /// # Errors
    /// No such file, or a range in it that is wrong.
    pub fn read(&self, file: &Path) -> Result<String, Error> {
        let path = self.root.join(file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::Read { path: path.clone(), error })?;
        let ranges = Ranges::read(&file.display().to_string(), &text)
            .map_err(|e| Error::Wrong { path, text: e.to_string() })?;
        Ok(ranges.usual())
    }

    /// `papers/KEY/profiles/NAME.toml`, or else `profiles/NAME.toml`.
    ///
    /// # Errors
    ///
    /// No such file, or not a profile.
    pub fn profile(&self, name: &str) -> Result<Profile, Error> {
        Ok(self.profile_text(name)?.0)
    }

    fn profile_text(&self, name: &str) -> Result<(Profile, String), Error> {
        let file = format!("profiles/{name}.toml");
        let of = |key: &&str| Path::new("papers").join(key).join(&file);
        let found = KEYS.iter().map(of).find(|file| self.root.join(file).is_file());
        let found = found.unwrap_or_else(|| PathBuf::from(&file));
        let (path, text) = (self.root.join(&found), self.read(&found)?);
        let profile = parse_profile(&path.display().to_string(), name, &text)
            .map_err(|e| Error::Wrong { path: path.clone(), text: e.to_string() })?;
        Ok((profile, text))
    }

    /// The runs of a scenario, given by its path in the project.
    ///
    /// # Errors
    ///
    /// No such file, or errors in it.
    pub fn plan(&self, scenario: &str) -> Result<Plan, Error> {
        self.plan_of(scenario, &Selection::default())
    }

    fn plan_of(&self, scenario: &str, selection: &Selection) -> Result<Plan, Error> {
        let path = self.root.join(scenario);
        let text = self.read(Path::new(scenario))?;
        let wrong = |text: String| Error::Wrong { path: path.clone(), text };
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or("scenario");
        let mut scenario = parse_scenario(&path.display().to_string(), name, &text)
            .map_err(|e| wrong(e.to_string()))?;
        scenario.repeats = self.repeats(scenario.repeats);
        let mut profiles = BTreeMap::new();
        for name in &scenario.profile_names() {
            profiles.insert(name.clone(), self.profile_text(name)?);
        }
        expand(&scenario, &text, &profiles.into(), selection).map_err(|e| wrong(e.to_string()))
    }

    /// The first run of a scenario's arm, and the host that it needs.
    ///
    /// # Errors
    /// As [`Ctx::plan`], and no such arm.
    pub(crate) fn arm(&self, scenario: &str, name: &str) -> Result<(Host, Run), Error> {
        let plan = self.plan(scenario)?;
        let host = Host::of_plan(&plan, Kernel::V3_19);
        let run = plan.runs.into_iter().find(|r| r.arm.name == name);
        let text = format!("there is no arm {name}");
        Ok((host, run.ok_or(Error::Experiment { id: scenario.into(), text })?))
    }

    /// The selected runs of a scenario on `kernel`. `[host] model` selects the costs.
    ///
    /// # Errors
    /// As [`Ctx::plan`].
    pub fn setups(
        &self,
        scenario: &str,
        kernel: Kernel,
        selection: &Selection,
    ) -> Result<Vec<Setup>, Error> {
        let plan = self.plan_of(scenario, selection)?;
        let host = Host::of_plan(&plan, kernel);
        Ok(plan.runs.iter().map(|run| Setup::new(&host, run)).collect())
    }

    /// Simulates a run with `usual` seeds, unless another number was requested. `each` changes the
    /// run of each seed.
    ///
    /// # Errors
    /// Runs that cannot be simulated.
    pub(crate) fn point(
        &self,
        host: &Host,
        run: &Run,
        usual: u32,
        each: impl Fn(&mut Run),
    ) -> Result<Point, Error> {
        let setups = (0..u64::from(self.repeats(usual))).map(|repeat| {
            let mut run = Run { seed: Ctx::SEED + repeat, repeat: 0, ..run.clone() };
            each(&mut run);
            Setup::new(host, &run)
        });
        Ok(Point(self.simulate(&setups.collect::<Vec<_>>())?))
    }

    /// Simulates setups on all cores, each only once.
    ///
    /// # Errors
    ///
    /// Runs that cannot be simulated.
    pub fn simulate(&self, setups: &[Setup]) -> Result<Vec<Arc<Simulated>>, Error> {
        setups.par_iter().map(|setup| self.one(setup)).collect()
    }

    fn one(&self, setup: &Setup) -> Result<Arc<Simulated>, Error> {
        // A run's number in its plan does not affect its result.
        let mut setup = setup.clone();
        setup.run.id = 0;
        let key = format!("{setup:?}");
        let slot = Arc::clone(
            self.made.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default(),
        );
        let made = slot.get_or_init(|| {
            let made = simulate_setup(&setup).map(Arc::new).map_err(|e| e.to_string());
            (self.watch)(Step::Run);
            made
        });
        made.clone().map_err(|text| Error::Experiment { id: setup.run.profile.clone(), text })
    }
}

/// Runs of one point, all seeds.
pub(crate) struct Point(pub Vec<Arc<Simulated>>);

impl Point {
    /// Units of work per second of VM number `vm`, mean over the seeds.
    pub fn units_per_s(&self, vm: usize) -> f64 {
        mean(self.0.iter().map(|s| units_per_s(&s.result, [&s.result.vm[vm]])))
    }
}

/// Runs of one scenario.
#[derive(Debug, Clone)]
pub struct Runs {
    pub all: Vec<Arc<Simulated>>,
}

impl Runs {
    /// The runs of one profile, number of VMs and arm, all repeats. Runs of one VM alone are left
    /// out.
    pub fn of<'a>(
        &'a self,
        profile: &'a str,
        vms: u32,
        arm: &'a str,
    ) -> impl Iterator<Item = &'a RunResult> + 'a {
        self.all.iter().map(|s| &s.result).filter(move |r| {
            let run = &r.run;
            !run.alone && run.profile == profile && run.vm_count() == vms && run.arm.name == arm
        })
    }

    /// Units of work per second, of all VMs together, mean of the repeats; `NaN` without a run.
    pub fn units_per_s(&self, profile: &str, vms: u32, arm: &str) -> f64 {
        mean(self.of(profile, vms, arm).map(|r| units_per_s(r, &r.vm)))
    }

    /// Units of work per second of the first VM, mean of the repeats; `NaN` without a run.
    pub fn units_per_s_of_first(&self, profile: &str, vms: u32, arm: &str) -> f64 {
        mean(self.of(profile, vms, arm).map(|r| units_per_s(r, r.vm.first())))
    }

    /// [`Runs::units_per_s`] of one arm over that of another.
    pub fn performance(&self, profile: &str, vms: u32, arm: &str, baseline: &str) -> f64 {
        self.units_per_s(profile, vms, arm) / self.units_per_s(profile, vms, baseline)
    }

    /// Wasted cycles (spinning until an exit, and its handling) relative to CPU cycles, mean of the
    /// repeats; `NaN` if the module did not count.
    pub fn inefficiency(&self, profile: &str, vms: u32, arm: &str) -> f64 {
        mean(self.of(profile, vms, arm).map(|r| {
            let modules = || r.vm.iter().filter_map(|v| v.module.as_ref());
            let wasted: u64 =
                modules().map(|m| m.wasteful_spin_cycles + m.wasteful_switch_cycles).sum();
            wasted as f64 / modules().map(|m| m.cpu_cycles).sum::<u64>() as f64
        }))
    }
}

/// Units of work per second that these VMs of a run did together.
pub(crate) fn units_per_s<'a>(r: &RunResult, vms: impl IntoIterator<Item = &'a VmResult>) -> f64 {
    let units: u64 = vms.into_iter().flat_map(|vm| &vm.units).sum();
    units as f64 * 1e9 / r.window_ns as f64
}

/// A change of a set-up, to test how results depend on it.
pub(crate) type Change = fn(&mut Setup);

/// The arithmetic mean; `NaN` without values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0u32), |(sum, n), x| (sum + x, n + 1));
    sum / f64::from(n)
}
