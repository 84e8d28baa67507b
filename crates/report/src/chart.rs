// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures: SVG that needs nothing else, with colours that survive colour-blindness
//! (Okabe and Ito) and a dark page.

use crate::summary::{Place, Row, Summary};
use crate::text::{arm_order, places, profile_order};
use crate::{Document, EpochTrace};
use std::fmt::Write;
use unspin_scenario::plan::CgroupLayout;
use unspin_scenario::IDEAL_ARM;

/// A picture, its file name without ending, and what it shows.
pub struct Chart {
    pub name: String,
    pub kind: Kind,
    pub title: String,
    pub svg: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Performance,
    Inefficiency,
    Window,
    Yields,
    Waits,
}

pub(crate) const WIDTH: f64 = 920.0;
pub(crate) const LEFT: f64 = 64.0;
pub(crate) const RIGHT: f64 = 16.0;
/// Most points of a line; longer ones are thinned.
const POINTS_MAX: usize = 400;

impl Document {
    /// A short name for files: scenario and kernel series.
    pub fn stem(&self) -> String {
        let kernel: Vec<&str> = self.summary.kernel.split(['.', '-', '+']).take(2).collect();
        let safe =
            |s: &str| s.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "_");
        format!(
            "{}-{}-{}",
            safe(&self.summary.scenario),
            safe(&self.summary.machine),
            safe(&kernel.join("."))
        )
    }

    /// All pictures of the document.
    pub fn charts(&self) -> Vec<Chart> {
        let s = &self.summary;
        let mut out = Vec::new();
        for at_place in &places(s) {
            let rows: Vec<&Row> =
                s.arms.iter().filter(|r| r.vm_index.is_none() && r.place() == *at_place).collect();
            let at = file_part(at_place);
            let lock = match at_place.lock.as_str() {
                "" => String::new(),
                lock => format!(", lock {lock}"),
            };
            let place = format!(
                "{} VM, cgroups {}{lock} ({}, {})",
                at_place.vms,
                layout(at_place.cgroup),
                s.machine,
                s.kernel
            );
            out.push(performance(&rows, &at, &place));
            out.extend(inefficiency(&rows, &at, &place));
            out.extend(yields(&rows, &at, &place));
            for p in profile_order(&rows) {
                out.extend(waits(&rows, p, &at, &place));
                out.extend(windows(&self.traces, s, p, at_place, &place));
            }
        }
        out
    }
}

/// A place in the name of a file.
fn file_part(place: &Place) -> String {
    let lock = if place.lock.is_empty() { String::new() } else { format!("-{}", place.lock) };
    format!("{}vm-{}{lock}", place.vms, layout(place.cgroup))
}

fn layout(c: CgroupLayout) -> &'static str {
    match c {
        CgroupLayout::Flat => "flat",
        CgroupLayout::Vm => "vm",
        CgroupLayout::Vcpu => "vcpu",
    }
}

/// For series without a colour of their own (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7F7F7F"];

/// An arm keeps its colour in every picture.
const ARM_COLOURS: [(&str, &str); 13] = [
    ("stock", "#7F7F7F"),
    ("ple-off", "#D55E00"),
    ("aple", "#E69F00"),
    ("hvs", "#009E73"),
    ("apples", "#0072B2"),
    ("ideal", "#7F7F7F"),
    ("cpth-r", "#CC79A7"),
    ("cpth-l", "#56B4E9"),
    ("cch", "#B8A800"),
    ("hvs-paper", "#44AA99"),
    ("hvs-displaced", "#882255"),
    ("best-fixed", "#56B4E9"),
    ("worst-fixed", "#CC79A7"),
];

/// Fixed windows, from the smallest to the largest.
const FIXED_COLOURS: [&str; 7] =
    ["#cfc0e8", "#b7a0dc", "#9d80cd", "#8463bc", "#6b47a8", "#52308f", "#3a1c72"];

/// The colour of the n-th of the series `names`.
pub(crate) fn colour(names: &[&str], n: usize) -> &'static str {
    let is_fixed = |name: &str| name.starts_with("fixed-");
    if is_fixed(names[n]) {
        let rank = names[..n].iter().filter(|s| is_fixed(s)).count();
        return FIXED_COLOURS[rank % FIXED_COLOURS.len()];
    }
    match ARM_COLOURS.iter().find(|(arm, _)| *arm == names[n]) {
        Some((_, c)) => c,
        None => COLOURS[n % COLOURS.len()],
    }
}

/// Fill of a bar or of a mark in a legend.
pub(crate) fn paint(names: &[&str], n: usize) -> String {
    let c = colour(names, n);
    if names[n] == IDEAL_ARM {
        format!("fill=\"none\" stroke=\"{c}\" stroke-width=\"1.5\"")
    } else {
        format!("fill=\"{c}\"")
    }
}

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) struct Svg {
    body: String,
    pub(crate) height: f64,
}

impl Svg {
    pub(crate) fn new(height: f64) -> Self {
        Svg { body: String::new(), height }
    }

    fn add(&mut self, args: std::fmt::Arguments) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(args);
        self.body.push('\n');
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        ));
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A bar, `fill` as [`paint`] gives it, and what it shows when pointed at.
    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, tip: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {fill}><title>{}</title></rect>",
            escape(tip)
        ));
    }

    /// Series names with their colours, on as many lines as they need; the space they took.
    pub(crate) fn legend(&mut self, names: &[&str]) -> f64 {
        let (mut x, mut y) = (LEFT, 14.0);
        for (i, name) in names.iter().enumerate() {
            let width = 26.0 + 7.2 * name.chars().count() as f64;
            if x + width > WIDTH - RIGHT {
                x = LEFT;
                y += 18.0;
            }
            let fill = paint(names, i);
            self.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" {fill}/>",
                y - 10.0
            ));
            self.text(x + 16.0, y, "start", name);
            x += width;
        }
        y + 10.0
    }

    pub(crate) fn finish(self, title: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"unspin\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{t}\">\n<title>{t}</title>\n<style>{STYLE}</style>\n{}</svg>\n",
            self.height,
            self.body,
            t = escape(title)
        )
    }
}

const STYLE: &str =
    ".unspin{font-family:system-ui,sans-serif;font-size:12px}.unspin text{fill:#222}\
.unspin .grid{stroke:#ddd}.unspin .axis,.unspin .one,.unspin .whisker{stroke:#222}\
.unspin .one{stroke-dasharray:4 3}.unspin .faded{opacity:.35}\
.unspin .curve{fill:none;stroke-width:1.6}\
@media(prefers-color-scheme:dark){.unspin text{fill:#ddd}.unspin .grid{stroke:#444}\
.unspin .axis,.unspin .one,.unspin .whisker{stroke:#ddd}}";

/// A vertical axis over [0, top].
pub(crate) struct Axis {
    top: f64,
    step: f64,
    y0: f64,
    y1: f64,
}

impl Axis {
    pub(crate) fn new(most: f64, y0: f64, y1: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let raw = most / 5.0;
        let scale = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .iter()
            .map(|m| m * scale)
            .find(|s| *s >= raw * 0.999)
            .unwrap_or(10.0 * scale);
        Axis { top: (most / step).ceil() * step, step, y0, y1 }
    }

    pub(crate) fn y(&self, v: f64) -> f64 {
        self.y0 - (v / self.top).clamp(0.0, 1.0) * (self.y0 - self.y1)
    }

    pub(crate) fn draw(&self, svg: &mut Svg, label: impl Fn(f64) -> String) {
        let n = (self.top / self.step).round() as u32;
        for i in 0..=n {
            let v = f64::from(i) * self.step;
            svg.line(
                LEFT,
                self.y(v),
                WIDTH - RIGHT,
                self.y(v),
                if i == 0 { "axis" } else { "grid" },
            );
            svg.text(LEFT - 6.0, self.y(v) + 4.0, "end", &label(v));
        }
    }
}

struct Bar {
    value: f64,
    ends: Option<(f64, f64)>,
    faded: bool,
    tip: String,
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
    let mut svg = Svg::new(0.0);
    let top = svg.legend(&arms);
    let bottom = top + 250.0;
    svg.height = bottom + 30.0;
    let bars: Vec<(usize, usize, Bar)> = rows
        .iter()
        .filter_map(|r| {
            let p = profiles.iter().position(|p| *p == r.profile)?;
            let a = arms.iter().position(|a| *a == r.arm)?;
            Some((p, a, bar(r)?))
        })
        .collect();
    let most = bars
        .iter()
        .map(|(_, _, b)| b.ends.map_or(b.value, |e| e.1.max(b.value)))
        .fold(if one { 1.0 } else { 0.0 }, f64::max);
    let axis = Axis::new(most, bottom, top + 6.0);
    axis.draw(&mut svg, label);
    let group = (WIDTH - LEFT - RIGHT) / profiles.len().max(1) as f64;
    let width = (group * 0.84 / arms.len().max(1) as f64).min(44.0);
    for (i, p) in profiles.iter().enumerate() {
        svg.text(LEFT + group * (i as f64 + 0.5), bottom + 18.0, "middle", p);
    }
    for (p, a, b) in &bars {
        let middle = LEFT + group * (*p as f64 + 0.5);
        let x = middle + (*a as f64 - arms.len() as f64 / 2.0) * width;
        let y = axis.y(b.value);
        let class = if b.faded { " class=\"faded\"" } else { "" };
        let fill = paint(&arms, *a);
        svg.add(format_args!(
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" {fill}{class}><title>{}</title></rect>",
            x + 1.0,
            width - 2.0,
            (bottom - y).max(0.5),
            escape(&b.tip)
        ));
        if let Some((low, high)) = b.ends.filter(|(l, h)| h > l) {
            let mid = x + width / 2.0;
            svg.line(mid, axis.y(low), mid, axis.y(high), "whisker");
        }
        if b.faded {
            svg.text(x + width / 2.0, y - 4.0, "middle", "!");
        }
    }
    if one {
        svg.line(LEFT, axis.y(1.0), WIDTH - RIGHT, axis.y(1.0), "one");
    }
    svg.finish(title)
}

fn performance(rows: &[&Row], at: &str, place: &str) -> Chart {
    let title = format!("Normalised performance, {place}");
    let svg = grouped(
        rows,
        &title,
        true,
        |v| format!("{v:.2}"),
        |r| {
            let value = r.performance?;
            let ends = r.performance_min.zip(r.performance_max);
            let told = match (r.adapted, r.verdict) {
                (Some(false), _) => ", not adapted",
                (_, Some(v)) => &format!(", {v}"),
                _ => "",
            };
            let range = ends.map(|(l, h)| format!(" ({l:.3} to {h:.3})")).unwrap_or_default();
            Some(Bar {
                value,
                ends,
                faded: r.adapted == Some(false),
                tip: format!("{} {}: {value:.3}{range}{told}", r.profile, r.arm),
            })
        },
    );
    Chart { name: format!("performance-{at}"), kind: Kind::Performance, title, svg }
}

fn inefficiency(rows: &[&Row], at: &str, place: &str) -> Option<Chart> {
    if rows.iter().all(|r| r.inefficiency.is_none()) {
        return None;
    }
    let title = format!("Inefficiency (wasted ÷ CPU cycles), {place}");
    let with: Vec<&Row> = rows.iter().copied().filter(|r| r.arm != IDEAL_ARM).collect();
    let svg = grouped(
        &with,
        &title,
        false,
        |v| format!("{:.1} %", v * 100.0),
        |r| {
            let value = r.inefficiency?;
            Some(Bar {
                value,
                ends: r.inefficiency_min.zip(r.inefficiency_max),
                faded: r.adapted == Some(false),
                tip: format!("{} {}: {:.2} %", r.profile, r.arm, value * 100.0),
            })
        },
    );
    Some(Chart { name: format!("inefficiency-{at}"), kind: Kind::Inefficiency, title, svg })
}

const OUTCOMES: [&str; 8] = [
    "resource waiter",
    "lock waiter",
    "yielded",
    "gave way",
    "none",
    "failed",
    "woken",
    "interrupt receiver",
];

fn yields(rows: &[&Row], at: &str, place: &str) -> Option<Chart> {
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
                y.ipi_receiver,
            ];
            (n.iter().sum::<u64>() > 0).then_some((*r, n))
        })
        .collect();
    if with.is_empty() {
        return None;
    }
    let title = format!("Yields by outcome, {place}");
    let mut svg = Svg::new(0.0);
    let top = svg.legend(&OUTCOMES);
    svg.height = top + 20.0 * with.len() as f64 + 10.0;
    let (x0, x1) = (190.0, WIDTH - 100.0);
    for (i, (r, n)) in with.iter().enumerate() {
        let y = top + 20.0 * i as f64 + 4.0;
        let total: u64 = n.iter().sum();
        svg.text(x0 - 8.0, y + 12.0, "end", &format!("{} · {}", r.profile, r.arm));
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

/// Share of lock waits that last longer than x, both axes logarithmic.
fn waits(rows: &[&Row], profile: &str, at: &str, place: &str) -> Option<Chart> {
    let with: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|r| r.profile == profile && r.wait_hist.iter().any(|n| *n > 0))
        .collect();
    let ends = |r: &Row| r.wait_hist.iter().rposition(|n| *n > 0).unwrap_or(0);
    let last = with.iter().map(|r| ends(r) + 1).max()?;
    let first =
        with.iter().filter_map(|r| r.wait_hist.iter().position(|n| *n > 0)).min().unwrap_or(0);
    let title = format!("Lock waits, {profile}, {place}");
    let mut svg = Svg::new(0.0);
    let arms: Vec<&str> = with.iter().map(|r| r.arm.as_str()).collect();
    let top = svg.legend(&arms);
    let bottom = top + 220.0;
    svg.height = bottom + 40.0;
    let decades = 6.0;
    let x = |b: usize| {
        LEFT + (b - first) as f64 / (last - first).max(1) as f64 * (WIDTH - LEFT - RIGHT)
    };
    let y = |share: f64| {
        top + (-share.max(1e-12).log10()).clamp(0.0, decades) / decades * (bottom - top)
    };
    for d in 0..=6 {
        let share = 10f64.powi(-d);
        svg.line(LEFT, y(share), WIDTH - RIGHT, y(share), if d == 6 { "axis" } else { "grid" });
        svg.text(LEFT - 6.0, y(share) + 4.0, "end", &format!("1e-{d}"));
    }
    let step = (last - first).div_ceil(12).max(1);
    for b in (first..=last).step_by(step) {
        svg.text(x(b), bottom + 16.0, "middle", &format!("2^{b}"));
    }
    svg.text(
        WIDTH / 2.0,
        bottom + 34.0,
        "middle",
        "share of lock waits longer than that many TSC cycles",
    );
    for (i, r) in with.iter().enumerate() {
        let total = r.wait_hist.iter().copied().fold(0, u64::saturating_add);
        let mut left = total;
        let mut points = format!("{:.1},{:.1}", x(first), y(1.0));
        for (b, n) in r.wait_hist.iter().enumerate().skip(first).take(last - first) {
            left = left.saturating_sub(*n);
            let _ = write!(points, " {:.1},{:.1}", x(b + 1), y(left as f64 / total as f64));
        }
        curve(&mut svg, colour(&arms, i), &points, &r.arm);
    }
    Some(Chart {
        name: format!("waits-{profile}-{at}"),
        kind: Kind::Waits,
        svg: svg.finish(&title),
        title,
    })
}

pub(crate) fn curve(svg: &mut Svg, colour: &str, points: &str, name: &str) {
    svg.add(format_args!(
        "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{points}\"><title>{}</title></polyline>",
        escape(name)
    ));
}

/// Windows over time: one line a VM, one colour an arm.
fn windows(
    traces: &[EpochTrace],
    s: &Summary,
    profile: &str,
    at: &Place,
    place: &str,
) -> Option<Chart> {
    let with: Vec<&EpochTrace> = traces
        .iter()
        .filter(|t| {
            t.profile == profile && (&t.lock, t.cgroup, t.vms) == (&at.lock, at.cgroup, at.vms)
        })
        .collect();
    let mut arms: Vec<&str> = Vec::new();
    for t in &with {
        if !arms.contains(&t.arm.as_str()) {
            arms.push(&t.arm);
        }
    }
    if with.is_empty() {
        return None;
    }
    let length =
        |t: &EpochTrace| t.samples.last().map_or(0, |e| e.at_ns).saturating_sub(first_of(&with, t));
    let long = with.iter().map(|t| length(t)).max().unwrap_or(1).max(1) as f64;
    let most = with.iter().flat_map(|t| &t.samples).map(|e| e.window_cycles).max().unwrap_or(1);
    let title = format!("PLE window over time, {profile}, {place}");
    let mut svg = Svg::new(0.0);
    let top = svg.legend(&arms);
    let bottom = top + 240.0;
    svg.height = bottom + 40.0;
    let axis = Axis::new(most as f64, bottom, top + 6.0);
    axis.draw(&mut svg, |v| format!("{v:.0}"));
    for i in 0..=6 {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * f64::from(i) / 6.0;
        svg.text(x, bottom + 16.0, "middle", &format!("{:.0}", long * f64::from(i) / 6e6));
    }
    let exits: Vec<String> = s.provenance.epoch_ple_exits.iter().map(u32::to_string).collect();
    let epoch = if exits.is_empty() {
        String::new()
    } else {
        format!("; an epoch is {} PLE exits", exits.join(" or "))
    };
    svg.text(
        WIDTH / 2.0,
        bottom + 34.0,
        "middle",
        &format!("ms of the machine's time; window in TSC cycles{epoch}"),
    );
    for t in &with {
        let zero = first_of(&with, t);
        let every = t.samples.len().div_ceil(POINTS_MAX).max(1);
        let mut points = String::new();
        for e in t.samples.iter().step_by(every) {
            let x = LEFT + e.at_ns.saturating_sub(zero) as f64 / long * (WIDTH - LEFT - RIGHT);
            let _ = write!(points, "{x:.1},{:.1} ", axis.y(e.window_cycles as f64));
        }
        let i = arms.iter().position(|a| *a == t.arm).unwrap_or(0);
        curve(&mut svg, colour(&arms, i), points.trim_end(), &format!("{}, VM {}", t.arm, t.vm));
    }
    let name = format!("window-{profile}-{}", file_part(at));
    Some(Chart { name, kind: Kind::Window, svg: svg.finish(&title), title })
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
