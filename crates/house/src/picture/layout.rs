// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places for boxes and ways for arrows, by Graphviz' `dot`.
//!
//! It is told the size of each box and writes no text, so that fonts of the computer do not matter.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};
use serde::Deserialize;

/// All lengths are in points, of which dot has 72 to its inch.
const POINTS_PER_INCH: f64 = 72.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

pub struct Size {
    pub width: f64,
    pub height: f64,
}

pub struct Way {
    pub from: usize,
    pub to: usize,
    /// Of its label.
    pub label: Option<Size>,
    /// It says nothing about who stands above whom.
    pub is_loose: bool,
}

pub struct Wanted {
    pub boxes: Vec<Size>,
    pub ways: Vec<Way>,
    /// Boxes side by side.
    pub rows: Vec<Vec<usize>>,
    pub between_boxes: f64,
    pub between_rows: f64,
}

pub struct Laid {
    pub width: f64,
    pub height: f64,
    /// Middles.
    pub boxes: Vec<Point>,
    /// Per way, where it starts, then three points per curve; last the tip.
    pub ways: Vec<Vec<Point>>,
    pub labels: Vec<Option<Point>>,
}

#[derive(Deserialize)]
struct Answer {
    bb: String,
    objects: Vec<Object>,
    edges: Vec<Edge>,
}

#[derive(Deserialize)]
struct Object {
    name: String,
    /// A row has none.
    pos: Option<String>,
}

#[derive(Deserialize)]
struct Edge {
    /// Its index in `Wanted`.
    id: String,
    pos: String,
    lp: Option<String>,
}

pub fn lay(wanted: &Wanted) -> Result<Laid> {
    let text = dot(&question(wanted))?;
    let answer: Answer = serde_json::from_str(&text).context("what dot answered")?;
    let corners = numbers(&answer.bb)?;
    let [_, _, width, height] = corners[..] else { bail!("dot's bb is {:?}", answer.bb) };
    let flipped = |text: &str| -> Result<Point> {
        match numbers(text)?[..] {
            [x, y] => Ok(Point { x, y: height - y }),
            _ => bail!("dot gave {text:?} as a point"),
        }
    };
    let mut laid = Laid {
        width,
        height,
        boxes: vec![Point { x: 0.0, y: 0.0 }; wanted.boxes.len()],
        ways: vec![Vec::new(); wanted.ways.len()],
        labels: vec![None; wanted.ways.len()],
    };
    for object in &answer.objects {
        let Some(pos) = &object.pos else { continue };
        let index: usize = object.name.parse().context("dot named a box anew")?;
        laid.boxes[index] = flipped(pos)?;
    }
    for edge in &answer.edges {
        let index: usize = edge.id.parse().context("dot gave a way no number")?;
        let mut points = edge.pos.split(' ').map(|p| (p.strip_prefix("e,"), p));
        let tip = points.next().and_then(|(tip, _)| tip).context("dot gave a way no tip")?;
        for (_, point) in points {
            laid.ways[index].push(flipped(point)?);
        }
        laid.ways[index].push(flipped(tip)?);
        laid.labels[index] = edge.lp.as_deref().map(flipped).transpose()?;
    }
    Ok(laid)
}

fn numbers(text: &str) -> Result<Vec<f64>> {
    text.split(',').map(|n| n.parse().with_context(|| format!("dot gave {text:?}"))).collect()
}

fn question(wanted: &Wanted) -> String {
    let inch = |points: f64| points / POINTS_PER_INCH;
    let mut text = String::from("digraph {\n");
    let (boxes, rows) = (inch(wanted.between_boxes), inch(wanted.between_rows));
    let _ = writeln!(text, "graph [nodesep={boxes:.3} ranksep={rows:.3}];");
    text.push_str("node [shape=box fixedsize=true label=\"\"];\nedge [arrowsize=0.7];\n");
    for (index, size) in wanted.boxes.iter().enumerate() {
        let (width, height) = (inch(size.width), inch(size.height));
        let _ = writeln!(text, "{index} [width={width:.3} height={height:.3}];");
    }
    for row in &wanted.rows {
        let row: Vec<String> = row.iter().map(usize::to_string).collect();
        let _ = writeln!(text, "{{rank=same; {};}}", row.join("; "));
    }
    for (index, way) in wanted.ways.iter().enumerate() {
        let _ = write!(text, "{} -> {} [id=\"{index}\"", way.from, way.to);
        if way.is_loose {
            text.push_str(" constraint=false");
        }
        if let Some(size) = &way.label {
            let (width, height) = (size.width, size.height);
            let _ = write!(
                text,
                " label=<<TABLE BORDER=\"0\" FIXEDSIZE=\"TRUE\" WIDTH=\"{width:.0}\" \
                 HEIGHT=\"{height:.0}\"><TR><TD></TD></TR></TABLE>>"
            );
        }
        text.push_str("];\n");
    }
    text.push_str("}\n");
    text
}

fn dot(question: &str) -> Result<String> {
    let mut child = Command::new("dot")
        .arg("-Tjson0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("cannot start dot: install Debian's graphviz (make house does)")?;
    // It reads all before it writes.
    child.stdin.take().expect("it is piped").write_all(question.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("dot failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}
