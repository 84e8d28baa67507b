// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boxes and arrows as SVG, for light and dark pages.

use std::fmt::Write;

use serde::Deserialize;

use super::layout::{Laid, Point};

pub const TITLE_HEIGHT: f64 = 18.0;
pub const LINE_HEIGHT: f64 = 14.0;
const PADDING: f64 = 8.0;
/// The widest of the usual sans-serif fonts has letters of this width on average, at 11 px.
pub const LETTER_WIDTH: f64 = 6.4;

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    Grey,
    Yellow,
    Blue,
    Green,
    Orange,
    Purple,
    Red,
}

/// How a box looks.
#[derive(Clone, Copy)]
pub struct Look {
    pub colour: Colour,
    /// Rounder, and with a wider edge.
    pub is_state: bool,
}

pub struct Box_ {
    pub look: Look,
    pub title: String,
    pub lines: Vec<Line>,
    /// Shown where the pointer rests.
    pub tip: String,
}

pub struct Line {
    pub text: String,
    pub is_code: bool,
}

pub struct Arrow_ {
    pub class: &'static str,
    pub label: Vec<String>,
    pub tip: String,
}

/// A strip across the picture behind a row.
pub struct Band {
    pub top: f64,
    pub bottom: f64,
    pub label: String,
}

pub struct Sample {
    pub of: SampleOf,
    pub text: String,
}

pub enum SampleOf {
    Box(Look),
    /// Its class.
    Arrow(&'static str),
}

impl Look {
    pub const fn plain(colour: Colour) -> Look {
        Look { colour, is_state: false }
    }

    fn class(self) -> String {
        let colour = match self.colour {
            Colour::Grey => "grey",
            Colour::Yellow => "yellow",
            Colour::Blue => "blue",
            Colour::Green => "green",
            Colour::Orange => "orange",
            Colour::Purple => "purple",
            Colour::Red => "red",
        };
        let state = if self.is_state { " state" } else { "" };
        format!("box {colour}{state}")
    }

    fn radius(self) -> u32 {
        if self.is_state {
            16
        } else {
            6
        }
    }
}

pub struct Picture<'a> {
    pub name: &'a str,
    pub description: &'a str,
    /// What the picture was made from, a line each, so that it can be held against it.
    pub facts: &'a str,
    pub left: f64,
    pub bands: Vec<Band>,
    pub boxes: &'a [Box_],
    pub box_width: f64,
    pub arrows: &'a [Arrow_],
    pub samples: Vec<Sample>,
    pub note: &'a str,
}

const STYLE: &str = "
text { font: 11px system-ui, 'DejaVu Sans', sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 13px; }
.code { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 10px; }
.quiet { fill: #57606a; }
.band { fill: #818b98; fill-opacity: 0.08; }
.box rect { stroke-width: 1.2; }
.state rect { stroke-width: 2.6; }
.grey rect { fill: #f6f8fa; stroke: #57606a; }
.yellow rect { fill: #fff8c5; stroke: #9a6700; }
.blue rect { fill: #ddf4ff; stroke: #0969da; }
.green rect { fill: #dafbe1; stroke: #1a7f37; }
.orange rect { fill: #fff1e5; stroke: #bc4c00; }
.purple rect { fill: #fbefff; stroke: #8250df; }
.red rect { fill: #ffebe9; stroke: #cf222e; stroke-dasharray: 5 3; }
.arrow path { fill: none; stroke: #57606a; stroke-width: 1.2; }
.arrow.tests path { stroke-dasharray: 4 3; }
.arrow.open path { stroke: #cf222e; stroke-dasharray: 5 3; }
.head { fill: #57606a; }
.head.open { fill: #cf222e; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.quiet { fill: #9198a1; }
.grey rect { fill: #21262d; stroke: #9198a1; }
.yellow rect { fill: #3b2f07; stroke: #d29922; }
.blue rect { fill: #0c2d6b; stroke: #58a6ff; }
.green rect { fill: #0f3d1e; stroke: #3fb950; }
.orange rect { fill: #4a2309; stroke: #db6d28; }
.purple rect { fill: #352160; stroke: #a371f7; }
.red rect { fill: #4c1618; stroke: #f85149; }
.arrow path { stroke: #9198a1; }
.arrow.open path { stroke: #f85149; }
.head { fill: #9198a1; }
.head.open { fill: #f85149; }
}
";

pub fn box_height(lines: usize) -> f64 {
    2.0 * PADDING + TITLE_HEIGHT + LINE_HEIGHT * lines as f64
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// At spaces, into lines of at most that many letters.
pub fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > letters {
            lines.push(word.to_string());
        } else {
            let space = if last.is_empty() { "" } else { " " };
            last.push_str(space);
            last.push_str(word);
        }
    }
    lines
}

pub fn svg(picture: &Picture<'_>, laid: &Laid) -> String {
    let margin = 12.0;
    let legend_height = 22.0 * (picture.samples.len().div_ceil(4) + 1) as f64;
    let width = picture.left + laid.width + 2.0 * margin;
    let height = laid.height + 2.0 * margin + legend_height;
    let at = |p: Point| Point { x: p.x + picture.left + margin, y: p.y + margin };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(picture.name)
    );
    let (name, description) = (escape(picture.name), escape(picture.description));
    let _ = writeln!(out, "<title>{name}</title>\n<desc>{description}</desc>");
    let _ = writeln!(out, "<metadata>\n{}</metadata>", escape(picture.facts));
    let _ = writeln!(out, "<style>{STYLE}</style>");
    for kind in ["plain", "open"] {
        let _ = writeln!(
            out,
            "<marker id=\"head-{kind}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
             <path class=\"head {kind}\" d=\"M0 0.5 8 4 0 7.5Z\"/></marker>"
        );
    }
    for band in &picture.bands {
        let (top, high) = (band.top + margin, band.bottom - band.top);
        let _ = writeln!(
            out,
            "<rect class=\"band\" x=\"4\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{high:.1}\" rx=\"6\"/>\
             <text class=\"quiet\" x=\"14\" y=\"{:.1}\">{}</text>",
            width - 8.0,
            top + 18.0,
            escape(&band.label)
        );
    }
    for ((arrow, way), label) in picture.arrows.iter().zip(&laid.ways).zip(&laid.labels) {
        let way: Vec<Point> = way.iter().map(|&p| at(p)).collect();
        draw_arrow(&mut out, arrow, &way, label.map(at));
    }
    for (one, &middle) in picture.boxes.iter().zip(&laid.boxes) {
        draw_box(&mut out, one, at(middle), picture.box_width);
    }
    draw_legend(&mut out, picture, laid.height + 2.0 * margin + 8.0, margin);
    out.push_str("</svg>\n");
    out
}

fn head(class: &str) -> &'static str {
    if class == "open" {
        "open"
    } else {
        "plain"
    }
}

fn draw_arrow(out: &mut String, arrow: &Arrow_, way: &[Point], label: Option<Point>) {
    let Some((start, curve)) = way.split_first() else { return };
    let Some((tip, curve)) = curve.split_last() else { return };
    let mut d = format!("M{:.1} {:.1}C", start.x, start.y);
    for point in curve {
        let _ = write!(d, "{:.1} {:.1} ", point.x, point.y);
    }
    let _ = write!(d, "L{:.1} {:.1}", tip.x, tip.y);
    let _ = writeln!(
        out,
        "<g class=\"arrow {}\"><title>{}</title><path d=\"{d}\" marker-end=\"url(#head-{})\"/></g>",
        arrow.class,
        escape(&arrow.tip),
        head(arrow.class)
    );
    let Some(middle) = label else { return };
    let first = middle.y - LINE_HEIGHT * (arrow.label.len() as f64 - 1.0) / 2.0 + 4.0;
    for (index, line) in arrow.label.iter().enumerate() {
        let y = first + LINE_HEIGHT * index as f64;
        let _ = writeln!(
            out,
            "<text class=\"quiet\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            middle.x,
            escape(line)
        );
    }
}

fn draw_box(out: &mut String, one: &Box_, middle: Point, width: f64) {
    let height = box_height(one.lines.len());
    let (left, top) = (middle.x - width / 2.0, middle.y - height / 2.0);
    let _ = writeln!(
        out,
        "<g class=\"{}\"><title>{}</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\" rx=\"{}\"/>",
        one.look.class(),
        escape(&one.tip),
        one.look.radius()
    );
    let (x, mut y) = (left + PADDING + 2.0, top + PADDING + 12.0);
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
        escape(&one.title)
    );
    y += TITLE_HEIGHT - LINE_HEIGHT;
    for line in &one.lines {
        y += LINE_HEIGHT;
        let class = if line.is_code { "code" } else { "plain" };
        let text = escape(&line.text);
        let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }
    out.push_str("</g>\n");
}

fn draw_legend(out: &mut String, picture: &Picture<'_>, top: f64, left: f64) {
    let column = 210.0;
    for (index, sample) in picture.samples.iter().enumerate() {
        let x = left + column * (index % 4) as f64;
        let y = top + 22.0 * (index / 4) as f64;
        let _ = match sample.of {
            SampleOf::Arrow(class) => writeln!(
                out,
                "<g class=\"arrow {class}\"><path d=\"M{x:.1} {0:.1}H{1:.1}\" \
                 marker-end=\"url(#head-{2})\"/></g>",
                y + 7.0,
                x + 26.0,
                head(class)
            ),
            SampleOf::Box(look) => writeln!(
                out,
                "<g class=\"{}\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"24\" height=\"14\" \
                 rx=\"{}\"/></g>",
                look.class(),
                look.radius() / 2
            ),
        };
        let text = escape(&sample.text);
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>", x + 34.0, y + 11.0);
    }
    let y = top + 22.0 * picture.samples.len().div_ceil(4) as f64 + 11.0;
    let note = escape(picture.note);
    let _ = writeln!(out, "<text class=\"quiet\" x=\"{left:.1}\" y=\"{y:.1}\">{note}</text>");
}
