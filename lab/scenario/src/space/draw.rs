// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws, and the scenario that is written from them.

use super::read::{arm_name, Known, Space, SpaceError};
use serde::Serialize;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

/// Limit of scenarios per seed.
pub const COUNT_MAX: u32 = 1000;

/// Limit of draws for one scenario.
const TRIES: u32 = 1000;

/// The drawn values of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    pub kernel: String,
    pub profile: String,
    pub pin: String,
    pub cgroups: String,
    pub vms: Vec<DrawnVm>,
    /// Names of the arms, the baseline first.
    pub arms: Vec<String>,
    /// The text of the scenario's file.
    pub text: String,
}

/// One VM of a scenario that is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrawnVm {
    pub vcpus: u32,
    /// cpu.weight.
    pub weight: u32,
    /// In the notation of scenarios.
    pub lock: Value,
}

/// A number for a text: the first bytes of its SHA-256, of a size that TOML and JSON keep.
fn number(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    let bytes: [u8; 8] = std::array::from_fn(|i| hash[i]);
    u64::from_be_bytes(bytes) >> 12
}

/// The source of a draw.
struct Dice {
    seed: u64,
    index: u32,
    attempt: u32,
}

impl Dice {
    /// Draws one of them. The result depends only on the dice and `what`.
    fn one<'a, T>(&self, what: &str, of: &'a [T]) -> &'a T {
        let Dice { seed, index, attempt } = self;
        let number = number(&format!("{seed} {index} {attempt} {what}"));
        &of[(number % of.len() as u64) as usize]
    }
}

/// Scenario number `index`, from 0, for this seed.
///
/// # Errors
///
/// No draw gives a scenario.
pub fn draw(space: &Space, seed: u64, index: u32) -> Result<Drawn, SpaceError> {
    let tries = (0..TRIES).map(|attempt| Dice { seed, index, attempt });
    tries.filter_map(|dice| drawn(space, &dice)).next().ok_or(SpaceError::Nothing)
}

/// `None` if the drawn values give no useful scenario.
fn drawn(space: &Space, dice: &Dice) -> Option<Drawn> {
    let d = &space.draw;
    let vms = vms(space, dice);
    let busy: u32 = vms.iter().map(|vm| vm.vcpus).sum();
    let unequal = vms.iter().any(|vm| vm.weight != vms[0].weight);
    let layouts: Vec<&String> =
        d.cgroups.iter().filter(|c| !unequal || c.as_str() != "flat").collect();
    let mut drawn = Drawn {
        kernel: dice.one("kernel", &d.kernels).clone(),
        profile: dice.one("profile", &d.profiles).clone(),
        pin: dice.one("pin", &d.pin).clone(),
        cgroups: dice.one("cgroups", &layouts).to_string(),
        vms,
        arms: Vec::new(),
        text: String::new(),
    };
    if busy <= space.pcpus()? || space.known.has(&drawn) {
        return None;
    }
    let arms = arms(space, dice, &drawn)?;
    drawn.arms = arms.iter().filter_map(|a| arm_name(a)).map(str::to_string).collect();
    drawn.text = text(space, dice, &drawn, arms);
    Some(drawn)
}

fn vms(space: &Space, dice: &Dice) -> Vec<DrawnVm> {
    let d = &space.draw;
    let alike = *dice.one("alike", &d.alike);
    let weights = dice.one("weights", &d.weights);
    let vm = |i: u32| {
        let of = if alike { 0 } else { i };
        DrawnVm {
            vcpus: *dice.one(&format!("vcpus {of}"), &d.vcpus),
            weight: weights[i as usize % weights.len()],
            lock: dice.one(&format!("lock {of}"), &d.locks).clone(),
        }
    };
    (0..*dice.one("vms", &d.vms)).map(vm).collect()
}

/// The baseline and the drawn number of other arms, none of which is the baseline under another
/// name.
fn arms(space: &Space, dice: &Dice, drawn: &Drawn) -> Option<Vec<Table>> {
    let locks_alone = |arm: &Table| arm.keys().all(|key| key == "name" || key == "lock");
    let is_baseline = |arm: &Table| {
        let lock = arm.get("lock");
        locks_alone(arm) && drawn.vms.iter().all(|vm| Some(&vm.lock) == lock)
    };
    let mut left: Vec<&Table> = space.arm.iter().filter(|arm| !is_baseline(arm)).collect();
    let mut all = vec![space.baseline.clone()];
    for i in 0..space.draw.arms {
        let places: Vec<usize> = (0..left.len()).collect();
        if places.is_empty() {
            return None;
        }
        all.push(left.remove(*dice.one(&format!("arm {i}"), &places)).clone());
    }
    Some(all)
}

impl Known {
    /// Whether such VMs were measured before.
    fn has(&self, drawn: &Drawn) -> bool {
        let first = &drawn.vms[0];
        drawn.vms.iter().all(|vm| vm == first)
            && self.vcpus.contains(&first.vcpus)
            && self.pin.contains(&drawn.pin)
            && self.cgroups.contains(&drawn.cgroups)
            && self.profiles.contains(&drawn.profile)
            && self.locks.contains(&first.lock)
    }
}

/// The scenario's file.
fn text(space: &Space, dice: &Dice, drawn: &Drawn, arms: Vec<Table>) -> String {
    let Dice { seed, index, .. } = dice;
    let mut top = space.scenario.clone();
    let mut set = |key: &str, value: Value| top.insert(key.to_string(), value);
    set("title", format!("{} {}: {}", space.title, index + 1, drawn.profile).into());
    set("seed", Value::Integer((number(&format!("{seed} {index} runs")) >> 20) as i64));
    set("kernel", drawn.kernel.clone().into());
    set(
        "vm",
        Value::Array(drawn.vms.iter().enumerate().map(|(i, vm)| table(drawn, i, vm)).collect()),
    );
    let sweep = [("profiles", &drawn.profile), ("cgroups", &drawn.cgroups)];
    let sweep = sweep.map(|(key, one)| (key.to_string(), Value::from(vec![one.clone()])));
    set("sweep", Value::Table(sweep.into_iter().collect()));
    set("arm", Value::Array(arms.into_iter().map(Value::Table).collect()));
    format!(
        "# SPDX-License-Identifier: MIT OR Apache-2.0\n\
         # Written by `unspin-lab generate` with --seed {seed}; number {}.\n\n{top}",
        index + 1
    )
}

fn table(drawn: &Drawn, i: usize, vm: &DrawnVm) -> Value {
    let keys = [
        ("name", format!("vm-{}", i + 1).into()),
        ("vcpus", i64::from(vm.vcpus).into()),
        ("weight", i64::from(vm.weight).into()),
        ("pin", drawn.pin.clone().into()),
        ("lock", vm.lock.clone()),
    ];
    Value::Table(keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

/// The seed of a release: different for each release, equal for all users of one.
pub fn seed_of_release(version: &str) -> u64 {
    number(&format!("release {version}"))
}
