// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bars: performance, inefficiency and yields, arm by arm.

use crate::show::place::{arm_order, profile_order};
use crate::show::svg::{paint, Axis, Chart, Kind, Svg, LEFT, MEDIUM, NARROW, RIGHT};
use crate::summary::Row;
use unspin_scenario::IDEAL_ARM;

pub(crate) struct Bar {
    pub value: f64,
    /// The ends of its whisker.
    pub ends: Option<(f64, f64)>,
    pub tip: String,
}

/// Draws bars, each with the numbers of its group and of its name, above the groups' names.
pub(crate) fn draw(
    svg: &mut Svg,
    axis: &Axis,
    groups: &[&str],
    names: &[&str],
    bars: &[(usize, usize, Bar)],
) {
    let bottom = axis.y(0.0);
    let group = (svg.width - LEFT - RIGHT) / groups.len().max(1) as f64;
    let width = (group * 0.84 / names.len().max(1) as f64).min(44.0);
    for (i, name) in groups.iter().enumerate() {
        svg.text(LEFT + group * (i as f64 + 0.5), bottom + 18.0, "middle", name);
    }
    for (g, n, b) in bars {
        let middle = LEFT + group * (*g as f64 + 0.5);
        let x = middle + (*n as f64 - names.len() as f64 / 2.0) * width;
        let y = axis.y(b.value);
        svg.rect(x + 1.0, y, width - 2.0, (bottom - y).max(0.5), &paint(names, *n), &b.tip);
        if let Some((low, high)) = b.ends.filter(|(l, h)| h > l) {
            let mid = x + width / 2.0;
            svg.line(mid, axis.y(low), mid, axis.y(high), "whisker");
        }
    }
}

/// Bars of the arms, grouped by profile.
fn grouped(
    rows: &[&Row],
    title: &str,
    one: bool,
    label: impl Fn(f64) -> String,
    bar: impl Fn(&Row) -> Option<Bar>,
) -> String {
    let (arms, profiles) = (arm_order(rows), profile_order(rows));
    let mut svg = Svg::of_width(width(&arms, &profiles), 0.0);
    let top = svg.legend(&arms);
    let bottom = top + 250.0;
    svg.height = bottom + 30.0;
    let bars: Vec<(usize, usize, Bar)> = rows
        .iter()
        .filter_map(|r| {
            let p = profiles.iter().position(|p| *p == r.key.profile)?;
            let a = arms.iter().position(|a| *a == r.key.arm)?;
            Some((p, a, bar(r)?))
        })
        .collect();
    let most = bars
        .iter()
        .map(|(_, _, b)| b.ends.map_or(b.value, |e| e.1.max(b.value)))
        .fold(if one { 1.0 } else { 0.0 }, f64::max);
    let axis = Axis::new(most, bottom, top + 6.0);
    axis.draw(&mut svg, label);
    draw(&mut svg, &axis, &profiles, &arms, &bars);
    if one {
        svg.line(LEFT, axis.y(1.0), svg.width - RIGHT, axis.y(1.0), "one");
    }
    svg.finish(title)
}

/// Wide enough for the names of the profiles, and for distinguishable bars.
fn width(arms: &[&str], profiles: &[&str]) -> f64 {
    let longest = profiles.iter().map(|p| p.chars().count()).max().unwrap_or(0);
    let group = f64::max(7.0 * longest as f64 + 8.0, 12.0 * arms.len() as f64);
    (LEFT + RIGHT + group * profiles.len() as f64).max(NARROW).round()
}

pub(crate) fn performance(rows: &[&Row], at: &str, place: &str) -> Chart {
    let title = format!("Normalised performance, {place}");
    let svg = grouped(
        rows,
        &title,
        true,
        |v| format!("{v:.2}"),
        |r| {
            let value = r.perf.performance?;
            let ends = r.perf.performance_min.zip(r.perf.performance_max);
            let told = r.perf.verdict.map(|v| format!(", {v}")).unwrap_or_default();
            let range = ends.map(|(l, h)| format!(" ({l:.3} to {h:.3})")).unwrap_or_default();
            Some(Bar {
                value,
                ends,
                tip: format!("{} {}: {value:.3}{range}{told}", r.key.profile, r.key.arm),
            })
        },
    );
    Chart { name: format!("performance-{at}"), kind: Kind::Performance, title, svg }
}

pub(crate) fn inefficiency(rows: &[&Row], at: &str, place: &str) -> Option<Chart> {
    if rows.iter().all(|r| r.inefficiency.is_none()) {
        return None;
    }
    let title = format!("Inefficiency (wasted ÷ CPU cycles), {place}");
    let with: Vec<&Row> = rows.iter().copied().filter(|r| r.key.arm != IDEAL_ARM).collect();
    let svg = grouped(
        &with,
        &title,
        false,
        |v| format!("{:.1} %", v * 100.0),
        |r| {
            let value = r.inefficiency?;
            let ends = r.inefficiency_min.zip(r.inefficiency_max);
            let tip = format!("{} {}: {:.2} %", r.key.profile, r.key.arm, value * 100.0);
            Some(Bar { value, ends, tip })
        },
    );
    Some(Chart { name: format!("inefficiency-{at}"), kind: Kind::Inefficiency, title, svg })
}

const OUTCOMES: [&str; 7] =
    ["resource waiter", "lock waiter", "yielded", "gave way", "none", "failed", "woken"];

pub(crate) fn yields(rows: &[&Row], at: &str, place: &str) -> Option<Chart> {
    let with: Vec<(&Row, [u64; OUTCOMES.len()])> = rows
        .iter()
        .filter_map(|r| {
            let y = r.yields.as_ref()?;
            let n = [
                y.resource_waiter,
                y.lock_waiter,
                y.yielded,
                y.gave_way,
                y.none,
                y.failed,
                y.woken,
            ];
            (n.iter().sum::<u64>() > 0).then_some((*r, n))
        })
        .collect();
    if with.is_empty() {
        return None;
    }
    let title = format!("Yields by outcome, {place}");
    let mut svg = Svg::of_width(MEDIUM, 0.0);
    let top = svg.legend(&OUTCOMES);
    svg.height = top + 20.0 * with.len() as f64 + 10.0;
    let (x0, x1) = (190.0, svg.width - 80.0);
    for (i, (r, n)) in with.iter().enumerate() {
        let y = top + 20.0 * i as f64 + 4.0;
        let total: u64 = n.iter().sum();
        svg.text(x0 - 8.0, y + 12.0, "end", &format!("{} · {}", r.key.profile, r.key.arm));
        svg.text(x1 + 8.0, y + 12.0, "start", &total.to_string());
        let mut x = x0;
        for (k, part) in n.iter().enumerate().filter(|(_, p)| **p > 0) {
            let share = *part as f64 / total as f64;
            let width = share * (x1 - x0);
            svg.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"15\" {}><title>{}: {part} ({:.1} %)</title></rect>",
                paint(&OUTCOMES, k),
                OUTCOMES[k],
                share * 100.0
            ));
            x += width;
        }
    }
    Some(Chart { name: format!("yields-{at}"), kind: Kind::Yields, svg: svg.finish(&title), title })
}
