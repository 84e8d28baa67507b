// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of pictures: SVG without external parts, in colours for colour-blind readers (Okabe and
//! Ito), also on a dark page.

use std::fmt::Write;
use unspin_scenario::IDEAL_ARM;

/// A picture, its file name without extension, and its contents.
pub struct Chart {
    pub name: String,
    pub kind: Kind,
    pub title: String,
    pub svg: String,
}

impl Chart {
    /// Whether it is wider than a phone.
    pub(crate) fn is_wide(&self) -> bool {
        !self.svg.contains(&format!("viewBox=\"0 0 {NARROW} "))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Performance,
    /// Performance over worlds.
    Bands,
    Inefficiency,
    Window,
    Yields,
    Waits,
}

pub(crate) const WIDTH: f64 = 920.0;
pub(crate) const LEFT: f64 = 64.0;
pub(crate) const RIGHT: f64 = 16.0;

/// Colours of series without one of their own (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7F7F7F"];

/// An arm has the same colour in every picture.
const ARM_COLOURS: [(&str, &str); 14] = [
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
    ("hvs-paper-displaced", "#332288"),
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

pub(crate) fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The head of each picture.
pub(crate) const SVG_HEAD: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"unspin\"";

/// Width of a picture that fits on a phone.
pub(crate) const NARROW: f64 = 388.0;
/// Width of a picture with names at the left.
pub(crate) const MEDIUM: f64 = 560.0;
/// Least scale on a page: letters of 12 pixels then have 11.
const LEAST: f64 = 0.92;
/// Largest scale on a page.
const MOST: f64 = 1.25;

pub(crate) struct Svg {
    body: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Svg {
    pub(crate) fn of_width(width: f64, height: f64) -> Self {
        Svg { body: String::new(), width, height }
    }

    pub(crate) fn add(&mut self, args: std::fmt::Arguments) {
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

    pub(crate) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A bar; `fill` is a result of [`paint`], `tip` is shown under the pointer.
    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, tip: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {fill}><title>{}</title></rect>",
            escape(tip)
        ));
    }

    /// Draws a legend on as many lines as needed, and returns its height.
    pub(crate) fn legend(&mut self, names: &[&str]) -> f64 {
        let (mut x, mut y) = (LEFT, 14.0);
        for (i, name) in names.iter().enumerate() {
            let width = 26.0 + 7.2 * name.chars().count() as f64;
            if x + width > self.width - RIGHT {
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
            "{SVG_HEAD} style=\"min-width:{:.0}px;max-width:{:.0}px\" viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"{t}\">\n<title>{t}</title>\n<style>{STYLE}</style>\n{}</svg>\n",
            LEAST * self.width,
            MOST * self.width,
            self.width,
            self.height,
            self.body,
            t = escape(title)
        )
    }
}

const STYLE: &str =
    ".unspin{font-family:system-ui,sans-serif;font-size:12px}.unspin text{fill:#222}\
.unspin .grid{stroke:#ddd}.unspin .axis,.unspin .one,.unspin .whisker{stroke:#222}\
.unspin .one{stroke-dasharray:4 3}\
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
                svg.width - RIGHT,
                self.y(v),
                if i == 0 { "axis" } else { "grid" },
            );
            svg.text(LEFT - 6.0, self.y(v) + 4.0, "end", &label(v));
        }
    }
}

pub(crate) fn curve(svg: &mut Svg, colour: &str, points: &str, name: &str) {
    svg.add(format_args!(
        "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{points}\"><title>{}</title></polyline>",
        escape(name)
    ));
}
