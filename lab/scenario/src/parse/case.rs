// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[case]]`: VMs that lose time to known causes.

use crate::parse::keys::{read_all, OfKeys};
use crate::schema::arm::Arm;
use crate::schema::keys::scenario as keys;
use crate::schema::scenario::{Case, VmGroup};
use unspin_diagnosis::Cause;
use unspin_text::{no_doubles, Table, Value};

/// A case as written: VMs and arms by name.
pub(crate) struct Written {
    name: String,
    inject: Vec<Cause>,
    vms: Vec<String>,
    arm: Option<String>,
}

/// The cases of a scenario. If there are cases, only these run, so no other key may select runs.
pub(crate) fn read_cases(top: &Table) -> Option<Vec<Written>> {
    let Some(v) = top.at(&keys::CASE) else { return Some(Vec::new()) };
    let all = v.array("[[case]] tables")?;
    if all.is_empty() {
        v.problem("no cases", "at least one [[case]], or omit this key");
    }
    if let Some(sweep) = top.at(&keys::SWEEP_TABLE) {
        sweep.problem("cases replace the points of a sweep", "no [sweep] with [[case]]");
    }
    let alone = top.at(&keys::MEASURE_TABLE).and_then(|v| v.table("")?.at(&keys::ALONE));
    if let Some(alone) = alone.filter(|v| v.bool() == Some(true)) {
        alone.problem("with cases no VM runs alone", "alone = false, or omit this key");
    }
    let read: Vec<_> = all.iter().map(read_case).collect();
    let read = read.into_iter().collect::<Option<Vec<_>>>()?;
    let names: Vec<&String> = read.iter().map(|case| &case.name).collect();
    no_doubles(&v, &names);
    Some(read)
}

fn read_case(v: &Value) -> Option<Written> {
    let t = v.table("a [[case]] table")?;
    t.only_of(&keys::CASE_TABLE);
    read_all!(Written {
        name: t.read(&keys::CASE_NAME),
        inject: t.read(&keys::INJECT).map(Option::unwrap_or_default),
        vms: t.read(&keys::CASE_VMS),
        arm: t.read(&keys::CASE_ARM),
    })
}

/// The cases with their VMs and arms; `baseline` is the default arm.
pub(crate) fn cases(
    top: &Table,
    written: Vec<Written>,
    groups: &[VmGroup],
    arms: &[Arm],
    baseline: usize,
) -> Option<Vec<Case>> {
    let places = top.at(&keys::CASE).and_then(|v| v.array("")).unwrap_or_default();
    let mut cases = Vec::new();
    for (case, v) in written.into_iter().zip(&places) {
        let t = v.table("")?;
        let vms: Option<Vec<usize>> = case.vms.iter().map(|name| vm(&t, name, groups)).collect();
        let arm = match &case.arm {
            Some(name) => arm(&t, name, arms),
            None => Some(baseline),
        };
        cases.push(Case { name: case.name, inject: case.inject, vms: vms?, arm: arm? });
    }
    for (at, case) in cases.iter().enumerate() {
        let is_linux = |vm: &&usize| groups[**vm].linux.is_some();
        let linux = case.vms.iter().filter(is_linux).count();
        if linux != 0 && linux != case.vms.len() {
            let message = "it mixes Linux guests and bench guests, which no machine supports";
            places[at].problem(message, "one kind of guest in a case");
        }
    }
    let used = |number: &usize| cases.iter().any(|case| case.vms.contains(number));
    let unused = (0..groups.len()).find(|number| !cases.is_empty() && !used(number));
    if let (Some(number), Some(v)) = (unused, top.get("vm").and_then(|v| v.array(""))) {
        v[number].problem("no [[case]] has these VMs", "their name in vms of a [[case]]");
    }
    Some(cases)
}

fn vm(t: &Table, name: &str, groups: &[VmGroup]) -> Option<usize> {
    let at = groups.iter().position(|group| group.name.as_deref() == Some(name));
    if let (None, Some(v)) = (at, t.at(&keys::CASE_VMS)) {
        v.problem(format!("no [[vm]] has the name {name:?}"), "names of [[vm]] tables");
    }
    at
}

fn arm(t: &Table, name: &str, arms: &[Arm]) -> Option<usize> {
    let at = arms.iter().position(|arm| arm.name == name);
    if let (None, Some(v)) = (at, t.at(&keys::CASE_ARM)) {
        v.problem(format!("no [[arm]] has the name {name:?}"), "the name of an [[arm]]");
    }
    at
}
