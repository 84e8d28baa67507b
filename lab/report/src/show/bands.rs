// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bands over worlds, as text and as a picture.

use crate::show::place::{cgroups_and_lock, count, rows_at};
use crate::show::svg::{colour, Chart, Kind, Svg, LEFT, MEDIUM, RIGHT};
use crate::summary::{Place, Row, Summary};
use crate::worlds::{Bands, Decides, OrderRow, WorldsMade};
use unspin_scenario::result::WorldDesign;

/// Number of inputs in a sentence.
const NAMED: usize = 3;

/// The rows of a point that have bands, without the baseline.
fn banded<'a>(s: &'a Summary, place: &Place) -> Vec<(&'a Row, &'a Bands)> {
    let of = |r: &'a Row| Some((r, r.bands.as_ref()?));
    let rows = rows_at(s, place).into_iter().filter(|r| r.key.arm != r.key.baseline);
    rows.filter(|r| r.key.same_as.is_none()).filter_map(of).collect()
}

/// Cells of a table: profile, arm, median, 50 and 90 % of worlds, probability of a gain.
pub(crate) fn lines(s: &Summary, place: &Place) -> Vec<Vec<String>> {
    let line = |(r, b): (&Row, &Bands)| {
        let between = |a: f64, b: f64| format!("{a:.2} … {b:.2}");
        vec![
            r.key.profile.clone(),
            r.key.arm.clone(),
            format!("{:.2}", b.band.p50),
            between(b.band.p25, b.band.p75),
            between(b.band.p05, b.band.p95),
            format!("{:.2}", b.band.p_gain),
        ]
    };
    banded(s, place).into_iter().map(line).collect()
}

pub(crate) const HEAD: [&str; 6] =
    ["profile", "arm", "median", "50 % of worlds", "90 % of worlds", "P(gain)"];

/// Sentences about what decides the bands of a point, and about the order of the arms.
pub(crate) fn sentences(s: &Summary, place: &Place) -> Vec<String> {
    let of_row = |(r, b): (&Row, &Bands)| {
        let who = format!("{}, {}", r.key.profile, r.key.arm);
        format!("{who}: {}", decides(&b.decides))
    };
    let mut all: Vec<String> = banded(s, place).into_iter().map(of_row).collect();
    let here = |o: &&OrderRow| o.at.place == *place;
    all.extend(s.orders.iter().filter(here).map(|o| {
        let order = o.order.join(" > ");
        format!("{}: {order} in {:.0} % of worlds", o.at.profile, 100.0 * o.probability)
    }));
    all
}

/// `decides: a 46 %, b 27 %; measure first: a, the band would shrink to 1.02 … 1.20`.
fn decides(all: &[Decides]) -> String {
    let told: Vec<&Decides> = all.iter().filter(|d| d.share.is_told()).collect();
    if told.is_empty() {
        return "decides: nothing that so many worlds tell".to_string();
    }
    let named = |d: &&Decides| format!("{} {:.0} %", d.input, 100.0 * d.share.share);
    let named: Vec<String> = told.iter().take(NAMED).map(named).collect();
    let mut text = format!("decides: {}", named.join(", "));
    if let Some((d, [low, high])) = told.iter().find_map(|d| Some((d, d.band_if_known?))) {
        text +=
            &format!("; measure first: {}, the band would shrink to {low:.2} … {high:.2}", d.input);
    }
    text
}

/// The number of worlds, and of impossible ones.
pub(crate) fn made(s: &Summary) -> Vec<String> {
    s.worlds.iter().flat_map(made_of).collect()
}

fn made_of(w: &WorldsMade) -> Vec<String> {
    let design = match w.design {
        WorldDesign::Sample => "worlds",
        WorldDesign::Given => "worlds of the design given",
    };
    let inputs: Vec<&str> = w.inputs.iter().map(|i| i.name.as_str()).collect();
    let mut lines = vec![format!(
        "{} of {} {design}, {} impossible; inputs: {}",
        w.made,
        w.of,
        w.impossible,
        inputs.join(", ")
    )];
    lines.extend(w.reasons.iter().map(|r| format!("impossible in {}: {}", r.worlds, r.error)));
    lines
}

/// A line per arm: 90 % of worlds, half of them, and the median, with a mark at 1.
pub(crate) fn chart(s: &Summary, place: &Place, at: &str, name: &str) -> Option<Chart> {
    const LINE: f64 = 22.0;
    const NAMES: f64 = 150.0;
    let rows = banded(s, place);
    let ends = rows.iter().flat_map(|(_, b)| [b.band.p05, b.band.p95]).chain([1.0]);
    let (least, most) = ends.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
    if rows.is_empty() {
        return None;
    }
    let (low, high) = ((least * 0.98).ln(), (most * 1.02).ln());
    let from = LEFT + NAMES;
    let x = |ratio: f64| from + (ratio.ln() - low) / (high - low) * (MEDIUM - RIGHT - from);
    let height = 40.0 + LINE * rows.len() as f64;
    let mut svg = Svg::of_width(MEDIUM, height);
    svg.line(x(1.0), 12.0, x(1.0), height - 24.0, "one");
    let arms: Vec<&str> = rows.iter().map(|(r, _)| r.key.arm.as_str()).collect();
    for (i, (r, b)) in rows.iter().enumerate() {
        let (y, band) = (20.0 + LINE * i as f64, &b.band);
        let tip = format!(
            "{}, {}: {:.2} ({:.2} to {:.2}), P(gain) {:.2}",
            r.key.profile, r.key.arm, band.p50, band.p05, band.p95, band.p_gain
        );
        svg.text(from - 8.0, y + 4.0, "end", &format!("{}, {}", r.key.profile, r.key.arm));
        svg.line(x(band.p05), y, x(band.p95), y, "whisker");
        let fill = format!("fill=\"{}\"", colour(&arms, i));
        let width = (x(band.p75) - x(band.p25)).max(1.0);
        svg.rect(x(band.p25), y - 5.0, width, 10.0, &fill, &tip);
        svg.line(x(band.p50), y - 7.0, x(band.p50), y + 7.0, "axis");
    }
    for ratio in [least, 1.0, most] {
        svg.text(x(ratio), height - 8.0, "middle", &format!("{ratio:.2}"));
    }
    let title = format!("Performance over worlds, {name}");
    let svg = svg.finish(&title);
    Some(Chart { name: format!("bands-{at}"), kind: Kind::Bands, title, svg })
}

/// The name of a point on the page.
pub(crate) fn heading(place: &Place) -> String {
    format!("{}, cgroups {}", count(place.vms, "VM"), cgroups_and_lock(place))
}
