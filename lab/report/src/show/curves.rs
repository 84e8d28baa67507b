// SPDX-License-Identifier: MIT OR Apache-2.0
//! Curves: lengths of lock waits, and windows over time.

use crate::show::place::{distinct, file_part};
use crate::show::svg::{colour, curve, Axis, Chart, Kind, Svg, LEFT, NARROW, RIGHT};
use crate::summary::{EpochTrace, Place, Row, Summary};
use std::fmt::Write;

/// Limit of points of a line; longer lines are thinned.
const POINTS_MAX: usize = 400;

/// Share of lock waits that last longer than x, both axes logarithmic.
pub(crate) fn waits(rows: &[&Row], profile: &str, at: &str, place: &str) -> Option<Chart> {
    let with: Vec<(&str, &[u64])> = rows
        .iter()
        .filter(|r| r.key.profile == profile)
        .map(|r| (r.key.arm.as_str(), r.wait_hist.as_slice()))
        .filter(|(_, hist)| hist.iter().any(|n| *n > 0))
        .collect();
    let title = format!("Lock waits, {profile}, {place}");
    let mut svg = Svg::of_width(NARROW, 0.0);
    let arms: Vec<&str> = with.iter().map(|(arm, _)| *arm).collect();
    let last = with.iter().filter_map(|(_, hist)| hist.iter().rposition(|n| *n > 0)).max()? + 1;
    let first = with.iter().filter_map(|(_, hist)| hist.iter().position(|n| *n > 0)).min()?;
    let top = svg.legend(&arms);
    let axes = WaitAxes { first, last, top, bottom: top + 220.0 };
    svg.height = axes.bottom + 40.0;
    axes.draw(&mut svg);
    for (i, (arm, hist)) in with.iter().enumerate() {
        curve(&mut svg, colour(&arms, i), &axes.points(hist), arm);
    }
    Some(Chart {
        name: format!("waits-{profile}-{at}"),
        kind: Kind::Waits,
        svg: svg.finish(&title),
        title,
    })
}

/// The axes: waits by power of two from `first` to `last`, and their shares by power of ten.
struct WaitAxes {
    first: usize,
    last: usize,
    top: f64,
    bottom: f64,
}

/// The smallest share is 10 to the minus this.
const DECADES: i32 = 6;

impl WaitAxes {
    fn x(&self, bucket: usize) -> f64 {
        let width = (self.last - self.first).max(1) as f64;
        LEFT + (bucket - self.first) as f64 / width * (NARROW - LEFT - RIGHT)
    }

    fn y(&self, share: f64) -> f64 {
        let decades = f64::from(DECADES);
        let down = (-share.max(1e-12).log10()).clamp(0.0, decades) / decades;
        self.top + down * (self.bottom - self.top)
    }

    fn draw(&self, svg: &mut Svg) {
        for d in 0..=DECADES {
            let y = self.y(10f64.powi(-d));
            svg.line(LEFT, y, NARROW - RIGHT, y, if d == DECADES { "axis" } else { "grid" });
            svg.text(LEFT - 6.0, y + 4.0, "end", &format!("1e-{d}"));
        }
        let step = (self.last - self.first).div_ceil(8).max(1);
        for b in (self.first..=self.last).step_by(step) {
            svg.text(self.x(b), self.bottom + 16.0, "middle", &format!("2^{b}"));
        }
        let what = "share of lock waits longer than that many TSC cycles";
        svg.text(NARROW / 2.0, self.bottom + 34.0, "middle", what);
    }

    /// The curve of one histogram.
    fn points(&self, hist: &[u64]) -> String {
        let total = hist.iter().copied().fold(0, u64::saturating_add);
        let mut left = total;
        let mut points = format!("{:.1},{:.1}", self.x(self.first), self.y(1.0));
        for (b, n) in hist.iter().enumerate().skip(self.first).take(self.last - self.first) {
            left = left.saturating_sub(*n);
            let share = left as f64 / total as f64;
            // Writing to a String cannot fail.
            let _ = write!(points, " {:.1},{:.1}", self.x(b + 1), self.y(share));
        }
        points
    }
}

/// Windows over time: one line per VM, one colour per arm.
pub(crate) fn windows(
    traces: &[EpochTrace],
    s: &Summary,
    profile: &str,
    at: &Place,
    place: &str,
) -> Option<Chart> {
    let is_here = |t: &&EpochTrace| t.at.profile == profile && t.at.place == *at;
    let with: Vec<&EpochTrace> = traces.iter().filter(is_here).collect();
    if with.is_empty() {
        return None;
    }
    let arms = distinct(with.iter().map(|t| t.arm.as_str()));
    let length =
        |t: &EpochTrace| t.samples.last().map_or(0, |e| e.at_ns).saturating_sub(first_of(&with, t));
    let long = with.iter().map(|t| length(t)).max().unwrap_or(1).max(1) as f64;
    let most = with.iter().flat_map(|t| &t.samples).map(|e| e.window_cycles).max().unwrap_or(1);
    let title = format!("PLE window over time, {profile}, {place}");
    let mut svg = Svg::of_width(NARROW, 0.0);
    let top = svg.legend(&arms);
    let bottom = top + 240.0;
    svg.height = bottom + 56.0;
    let axis = Axis::new(most as f64, bottom, top + 6.0);
    axis.draw(&mut svg, |v| format!("{v:.0}"));
    draw_time(&mut svg, s, long, bottom);
    for t in &with {
        let zero = first_of(&with, t);
        let every = t.samples.len().div_ceil(POINTS_MAX).max(1);
        let mut points = String::new();
        for e in t.samples.iter().step_by(every) {
            let x = LEFT + e.at_ns.saturating_sub(zero) as f64 / long * (NARROW - LEFT - RIGHT);
            let _ = write!(points, "{x:.1},{:.1} ", axis.y(e.window_cycles as f64));
        }
        let i = arms.iter().position(|a| *a == t.arm).unwrap_or(0);
        curve(&mut svg, colour(&arms, i), points.trim_end(), &format!("{}, VM {}", t.arm, t.vm));
    }
    let name = format!("window-{profile}-{}", file_part(at));
    Some(Chart { name, kind: Kind::Window, svg: svg.finish(&title), title })
}

/// The time axis for `long` ns, and the titles of the axes.
fn draw_time(svg: &mut Svg, s: &Summary, long: f64, bottom: f64) {
    for i in 0..=6 {
        let x = LEFT + (NARROW - LEFT - RIGHT) * f64::from(i) / 6.0;
        svg.text(x, bottom + 16.0, "middle", &format!("{:.0}", long * f64::from(i) / 6e6));
    }
    let exits: Vec<String> = s.provenance.epoch_ple_exits.iter().map(u32::to_string).collect();
    let what = "ms of the machine's time; window in TSC cycles";
    svg.text(NARROW / 2.0, bottom + 34.0, "middle", what);
    if !exits.is_empty() {
        let epoch = format!("an epoch is {} PLE exits", exits.join(" or "));
        svg.text(NARROW / 2.0, bottom + 50.0, "middle", &epoch);
    }
}

/// Start of the run a trace is of: the first epoch of any VM under its arm.
fn first_of(all: &[&EpochTrace], t: &EpochTrace) -> u64 {
    all.iter()
        .filter(|o| o.arm == t.arm)
        .filter_map(|o| o.samples.first())
        .map(|e| e.at_ns)
        .min()
        .unwrap_or(0)
}
