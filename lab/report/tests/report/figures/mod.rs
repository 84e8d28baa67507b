// SPDX-License-Identifier: MIT OR Apache-2.0
//! From records to figures.

mod counts;
mod performance;
mod reading;

use crate::common::{documents_of, lines, plan};
use unspin_report::{Document, Row};
use unspin_scenario::plan::Run;
use unspin_scenario::result::VmResult;

const SCENARIO: &str = r#"
title = "t"
repeats = 3
epoch_ple_exits = 50
[host]
pcpus = 4
[[vm]]
vcpus = 4
pin = "one-per-pcpu"
[sweep]
profiles = ["ebizzy", "dbench", "compute"]
vms = [2, 3]
[trace]
epochs = true
[[arm]]
name = "ple-off"
window = "off"
[[arm]]
name = "stock"
baseline = true
[[arm]]
name = "aple"
window = "aple"
[[arm]]
name = "hvs"
yield_to = "hvs"
[[arm]]
name = "apples"
window = "aple"
yield_to = "hvs"
"#;

fn as_is(_: &Run, _: &mut VmResult) {}

fn one(tune: impl Fn(&Run, &mut VmResult)) -> Document {
    let mut docs = documents_of(&lines("6.12.57+deb13-amd64", &plan(SCENARIO), tune));
    assert_eq!(docs.len(), 1);
    docs.remove(0)
}

fn row<'a>(d: &'a Document, profile: &str, vms: u32, arm: &str) -> &'a Row {
    d.summary
        .arms
        .iter()
        .find(|r| {
            let k = &r.key;
            (k.profile.as_str(), k.vms, k.arm.as_str()) == (profile, vms, arm) && k.is_whole()
        })
        .unwrap_or_else(|| panic!("no row {profile} {vms} {arm}"))
}

fn near(x: Option<f64>, wanted: f64) {
    let x = x.expect("a value");
    assert!((x - wanted).abs() < 0.005, "{x} is not about {wanted}");
}
