// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page about arms: out/agreement.md.

use super::bands::{judged, Judged};
use super::count::{percent, Agreement};
use super::row::{Key, Kind, Pair, Row, AGREES};
use super::scores::{mean, of_kind, points, scores, Scores};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use unspin_scenario::plan::{CgroupLayout, Run, Vm};
use unspin_scenario::Named;
use unspin_worlds::no_change_score;

/// The kinds in the order of the page, with their names on it.
const KINDS: [(Kind, &str); 3] =
    [(Kind::HeldOut, "held out"), (Kind::Given, "measured"), (Kind::Known, "known")];

pub(super) fn page(pairs: &BTreeMap<Key, Pair>, worlds: Option<u32>, how: &str) -> String {
    let judged = if worlds.is_some() { judged(pairs) } else { Vec::new() };
    let rows = points(pairs, &judged);
    let mut text = format!(
        "# The simulator against measured runs\n\nThis page shows how closely machine `sim` \
         predicts measured runs. `unspin-lab agree` generates it: every measured arm is simulated \
         {how}, and medians are compared. Performance is throughput against the baseline of the \
         same machine; inefficiency is the share of CPU time that is wasted. The two machines \
         agree if they differ by at most {:.0} points.\n\n",
        100.0 * AGREES
    );
    text += &lead(pairs, worlds);
    for (kind, name) in KINDS {
        let of: Vec<&Row> = rows.iter().filter(|r| r.key.kind == kind).collect();
        if !of.is_empty() {
            text += &section(kind, name, &of, &judged);
        }
    }
    text
}

/// The scores of each kind, side by side.
fn lead(pairs: &BTreeMap<Key, Pair>, worlds: Option<u32>) -> String {
    let there: Vec<(&str, Scores)> = KINDS
        .iter()
        .filter_map(|(kind, name)| Some((*name, of_kind(pairs, *kind, worlds)?)))
        .collect();
    let mut columns = there;
    if columns.len() > 1 {
        columns.push(("together", scores(pairs, worlds)));
    }
    let line = |what: &str, cell: &dyn Fn(&Scores) -> String| {
        let cells: Vec<String> = columns.iter().map(|(_, s)| cell(s)).collect();
        format!("| {what} | {} |\n", cells.join(" | "))
    };
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut text = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    text += &line("arms except baselines", &|s| s.arms.to_string());
    text += &line("performance within 10 points", &|s| counted(s.within_10, s.arms));
    text += &line("the same of \"no change\"", &|s| counted(s.within_10_no_change, s.arms));
    let told = "order of 2 arms that differ by 5 points on both machines";
    text += &line(told, &|s| counted(s.order.right, s.order.of));
    text += &line("size of the error, as a factor", &|s| factor(s.log_error));
    text += &line("the same of \"no change\"", &|s| factor(s.log_error_no_change));
    if worlds.is_some() {
        text += &line("90 % bands that cover the measured value", &coverage);
        text += &line("interval score of the bands", &|s| score(s.interval_score));
        text += &line("the same of \"no change\"", &|s| score(s.interval_score_no_change));
        text +=
            "\nThe interval score is in logarithms of ratios: a band's width, and 20 times its \
                 miss; lower is better. \"No change\" predicts 1, without a width. The interval of \
                 a coverage assumes that arms are independent.\n";
    }
    text
}

fn coverage(s: &Scores) -> String {
    let share = s.coverage_90.map_or("-".to_string(), |c| format!("{:.0} %", 100.0 * c));
    let interval = s.coverage_90_interval;
    let interval = interval.map(|[a, b]| format!(" [{:.0}, {:.0}]", 100.0 * a, 100.0 * b));
    share + &interval.unwrap_or_default()
}

fn score(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |x| format!("{x:.3}"))
}

/// A factor from its logarithm.
fn factor(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |x| format!("{:.3}", x.exp()))
}

fn counted(n: usize, of: usize) -> String {
    if of == 0 {
        return "-".to_string();
    }
    format!("{n} of {of} ({:.0} %)", percent(n, of))
}

/// The description of a kind, the scores of its scenarios, and its rows.
fn section(kind: Kind, name: &str, rows: &[&Row], judged: &[Judged]) -> String {
    let about = match kind {
        Kind::HeldOut => {
            "Scenarios that were drawn by a seed (`unspin-lab generate spaces/held-out.toml`) and measured \
             before they were simulated. Nothing in the simulator was chosen by them."
        }
        Kind::Given => "The source of these is unknown.",
        Kind::Known => {
            "In-sample: the simulator was developed with these, and its own error was fitted to \
             them. Only their ratios are kept, not their records."
        }
    };
    let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
    let mut text = format!("\n## {title}\n\n{about}\n\n");
    let mut scenarios: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        scenarios.entry((&row.key.scenario, &row.key.kernel)).or_default().push(row);
    }
    text += "| scenario | kernel | performance agrees | inefficiency agrees | bands cover | interval score | no change |\n\
             |---|---|---|---|---|---|---|\n";
    for ((scenario, kernel), rows) in &scenarios {
        let a = Agreement::of(rows);
        let of = |j: &&Judged| {
            (j.key.kind, &*j.key.scenario, &*j.key.kernel) == (kind, *scenario, *kernel)
        };
        let bands: Vec<&Judged> = judged.iter().filter(of).collect();
        let covered = bands.iter().filter(|j| j.covers()).count();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| [{scenario}](#{scenario}) | {kernel} | {} | {} | {} | {} | {} |",
            counted(a.performance, a.arms),
            counted(a.inefficiency, a.of_inefficiency),
            counted(covered, bands.len()),
            score(mean(bands.iter().map(|j| j.score()))),
            score(mean(bands.iter().map(|j| no_change_score(j.measured)))),
        );
    }
    let names: BTreeSet<&str> = scenarios.keys().map(|(name, _)| *name).collect();
    for scenario in names {
        let _ = write!(
            text,
            "\n### {scenario}\n\n\
             | kernel | profile | VMs | cgroups | arm | performance measured | simulated | 90 % band | inefficiency measured | simulated | |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for row in rows.iter().filter(|r| r.key.scenario == scenario) {
            line(&mut text, row, judged.iter().find(|j| j.key == row.key));
        }
    }
    text
}

fn line(text: &mut String, r: &Row, judged: Option<&Judged>) {
    let k = r.key;
    let layouts = CgroupLayout::choices();
    let cgroup = layouts.iter().find(|(_, c)| *c as u8 == k.cgroup).map_or("", |(name, _)| name);
    let (a, b) = match r.inefficiency {
        Some((a, b)) => (format!("{:.1} %", 100.0 * a), format!("{:.1} %", 100.0 * b)),
        None => ("-".to_string(), "-".to_string()),
    };
    let band =
        judged.map_or("-".to_string(), |j| format!("{:.2} to {:.2}", j.band.p05, j.band.p95));
    let marks = [
        (!r.performance_agrees(), "performance differs"),
        (!r.inefficiency_agrees(), "inefficiency differs"),
        (judged.is_some_and(|j| !j.covers()), "not in the band"),
    ];
    let marks: Vec<&str> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
    let vms = r.run.map_or(k.vms.to_string(), vms);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {} | `{}` | {vms} | {cgroup} | {} | {:.2} | {:.2} | {band} | {a} | {b} | {} |",
        k.kernel,
        k.profile,
        k.arm,
        r.performance.0,
        r.performance.1,
        marks.join(", ")
    );
}

/// The number of VMs, and how they differ from equal, pinned VMs with ticket locks.
fn vms(run: &Run) -> String {
    let pinned = if run.is_pinned() { "" } else { ", not pinned" };
    if run.is_of_alike() {
        let lock = match run.first().lock_choice().label() {
            name if name == "ticket" => String::new(),
            name => format!(" {name}"),
        };
        return format!("{} × {}{lock}{pinned}", run.vms.len(), run.first().vcpus);
    }
    let one = |vm: &Vm| {
        let weight = vm.weight.map_or(String::new(), |w| format!(" of weight {w}"));
        format!("{} {}{weight}", vm.vcpus, vm.lock_choice().label())
    };
    run.vms.iter().map(one).collect::<Vec<_>>().join(" + ") + pinned
}

#[cfg(test)]
mod tests {
    use super::super::bands::tests::with_worlds;
    use super::super::count::order;
    use super::super::row::rows;
    use super::super::row::tests::{key, pair};
    use super::*;

    #[test]
    fn arms_are_compared_to_their_own_machines_baseline() {
        let pairs = BTreeMap::from([
            (key("stock"), pair(100.0, 50.0, true)),
            (key("hvs"), pair(120.0, 62.0, false)),
            (key("off"), pair(10.0, 40.0, false)),
        ]);
        let rows = rows(&pairs);
        let of = |arm: &str| rows.iter().find(|r| r.key.arm == arm).unwrap();
        assert_eq!(of("hvs").performance, (1.2, 1.24));
        assert!(of("hvs").performance_agrees() && !of("off").performance_agrees());
        assert_eq!(order(&rows), (3, 3));
        let text = page(&pairs, None, "with 1 seeds");
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}:\n{text}"));
        let whole = at("| performance within 10 points | 1 of 2 (50 %) |");
        let part = at("| [s-1](#s-1) | 6.12 | 1 of 2 (50 %) | 3 of 3 (100 %) | - | - | - |");
        let row = at("| 6.12 | `ebizzy` | 2 × 4, not pinned | flat | hvs | 1.20 | 1.24 | - | 10.0 % | 10.0 % |  |");
        assert!(whole < part && part < at("\n### s-1\n") && at("\n### s-1\n") < row, "{text}");
        at("| off | 0.10 | 0.80 | - | 10.0 % | 10.0 % | performance differs |");
    }

    #[test]
    fn what_was_held_out_leads() {
        let worlds = [100.0; 100];
        let of = |kind, arm: &str| Key { kind, ..key(arm) };
        let pairs = BTreeMap::from([
            (of(Kind::Known, "stock"), with_worlds(100.0, &worlds, true)),
            (of(Kind::Known, "hvs"), with_worlds(100.0, &worlds, false)),
            (of(Kind::HeldOut, "stock"), with_worlds(100.0, &worlds, true)),
            (of(Kind::HeldOut, "hvs"), with_worlds(150.0, &worlds, false)),
        ]);
        let text = page(&pairs, Some(100), "in 100 worlds");
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}:\n{text}"));
        let lead = at("| | held out | known | together |");
        let covered = at(
            "| 90 % bands that cover the measured value | 0 % [0, 73] | 100 % [27, 100] | 50 % [",
        );
        assert!(lead < covered && covered < at("\n## Held out\n"), "{text}");
        assert!(at("\n## Held out\n") < at("\n## Known\n"), "{text}");
        at("performance differs, not in the band |");
    }
}
