// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bands from records of worlds, also of records that fit together badly.

use crate::common::{self, begin, documents_of, plan, result, written};
use proptest::prelude::*;
use unspin_report::{html, text, Document};
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{Begin, VmResult, World, WorldDesign, WorldInput};

const KERNEL: &str = "6.12";
const SCENARIO: &str = r#"
title = "Worlds"
repeats = 2
vm = [{ vcpus = 4 }]
arm = [
    { name = "stock" },
    { name = "hvs", yield_to = "hvs" },
]
[host]
pcpus = 4
[sweep]
profiles = ["ebizzy"]
vms = [2]
[measure]
alone = true
"#;

/// Records of a plan in a world whose arms but the baseline do so many times the work.
fn world(plan: &Plan, design: WorldDesign, index: u32, of: u32, at: &[f64], times: f64) -> String {
    let input = |(i, at): (usize, &f64)| WorldInput {
        name: format!("input-{i}"),
        at: *at,
        value: at.to_string(),
        source: "s".into(),
    };
    let world = World {
        design,
        index,
        of,
        usual_hash: begin(KERNEL).scenario_hash,
        inputs: at.iter().enumerate().map(input).collect(),
        error: None,
    };
    let hash = format!("world {index}");
    let begin = Begin { scenario_hash: hash, world: Some(world), ..begin(KERNEL) };
    let tune = |run: &Run, v: &mut VmResult| {
        if run.arm.name != run.baseline {
            v.units.iter_mut().for_each(|u| *u = (*u as f64 * times) as u64);
        }
    };
    let runs = plan.runs.iter().filter(|r| !r.alone && r.repeat == 0);
    written(begin, runs.map(|run| result(run, tune)).collect())
}

fn document(worlds: &str, plan: &Plan) -> Document {
    let usual = common::lines(KERNEL, plan, |_, _| ());
    let mut docs = documents_of(&(usual + worlds));
    assert_eq!(docs.len(), 1, "worlds are of the document of their plan");
    docs.remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The band is of what the worlds did against the baseline of the same world, in any order.
    #[test]
    fn bands_are_of_the_worlds(mut times in prop::collection::vec(0.5..3.0f64, 2..12), turned: bool) {
        let plan = plan(SCENARIO);
        let of = times.len() as u32;
        let mut all: Vec<String> = (0..of)
            .map(|i| world(&plan, WorldDesign::Sample, i, of, &[0.5, f64::from(i) / f64::from(of)], times[i as usize]))
            .collect();
        if turned {
            all.reverse();
        }
        let doc = document(&all.concat(), &plan);
        times.sort_by(f64::total_cmp);
        for r in doc.summary.arms.iter().filter(|r| r.key.is_whole() && r.key.arm == "hvs") {
            let band = r.bands.as_ref().unwrap().band;
            let usual = r.perf.performance.unwrap();
            prop_assert_eq!(band.worlds, times.len());
            let (least, most) = (usual * times[0], usual * times[times.len() - 1]);
            prop_assert!(least * 0.98 <= band.p05 && band.p95 <= most * 1.02, "{:?} {} {}", band, least, most);
        }
        prop_assert!(text(std::slice::from_ref(&doc), usize::MAX).contains("performance over worlds"));
        prop_assert!(html(&[doc]).contains("Over worlds"));
    }

    /// Worlds that are there twice, too many, or have other inputs end no program.
    #[test]
    fn worlds_that_fit_badly_are_no_end(
        worlds in prop::collection::vec((0u32..2, 0u32..6, 0u32..4, prop::collection::vec(-1.0..2.0f64, 0..4), 0.0..3.0f64), 0..14),
    ) {
        let plan = plan(SCENARIO);
        let designs = [WorldDesign::Sample, WorldDesign::Given];
        let all = worlds.iter().map(|(d, index, of, at, times)| {
            world(&plan, designs[*d as usize], *index, *of, at, *times)
        });
        let doc = document(&all.collect::<String>(), &plan);
        prop_assert!(serde_json::to_string(&doc.summary).is_ok());
        prop_assert!(!html(&[doc]).is_empty());
    }
}
