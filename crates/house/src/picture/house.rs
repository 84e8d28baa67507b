// SPDX-License-Identifier: MIT OR Apache-2.0
//! The house: rooms on their floors, and which knows which.

use std::collections::BTreeMap;

use anyhow::Result;
use petgraph::algo::toposort;
use petgraph::algo::tred::{dag_to_toposorted_adjacency_list, dag_transitive_reduction_closure};
use petgraph::graph::{DiGraph, NodeIndex};

use super::layout::{lay, Laid, Size, Wanted, Way};
use super::svg::{
    self, Arrow_, Band, Box_, Colour, Line, Look, Picture, Sample, SampleOf, LETTER_WIDTH,
};
use crate::rooms::Rooms;

const BOX_WIDTH: f64 = 178.0;
const BAND_MARGIN: f64 = 14.0;
const RUST: Look = Look::plain(Colour::Blue);
const C: Look = Look::plain(Colour::Green);
const TOP: Look = Look::plain(Colour::Yellow);

pub fn svg(rooms: &Rooms) -> Result<String> {
    let floors = rooms.floors()?;
    let names: Vec<&str> = rooms.rooms.keys().map(String::as_str).collect();
    let highest = floors.values().copied().max().unwrap_or(0);
    let boxes: Vec<Box_> =
        names.iter().map(|name| room_box(rooms, name, floors[name] == highest)).collect();
    let mut rows = vec![Vec::new(); highest + 1];
    for (index, name) in names.iter().enumerate() {
        rows[floors[name]].push(index);
    }
    let (ways, arrows) = arrows(rooms, &names);
    let size = |one: &Box_| Size { width: BOX_WIDTH, height: svg::box_height(one.lines.len()) };
    let wanted = Wanted {
        boxes: boxes.iter().map(size).collect(),
        ways,
        rows,
        between_boxes: 18.0,
        between_rows: 46.0,
    };
    let laid = lay(&wanted)?;
    let picture = Picture {
        name: "The rooms of unspin",
        description: "Crates and directories of C by floor. An arrow leads from a room to one it is \
                      built on.",
        facts: &rooms.facts(),
        left: 76.0,
        bands: bands(&wanted, &laid),
        boxes: &boxes,
        box_width: BOX_WIDTH,
        arrows: &arrows,
        samples: samples(),
        note: "Arrows lead down; only tests may look up. One that follows from others is left out; rest the pointer on \
               a room to see all it is built on.",
    };
    Ok(svg::svg(&picture, &laid))
}

fn room_box(rooms: &Rooms, name: &str, is_top: bool) -> Box_ {
    let what = &rooms.rooms[name];
    let letters = ((BOX_WIDTH - 20.0) / LETTER_WIDTH) as usize;
    let lines = svg::wrap(what, letters);
    let below: Vec<&str> =
        rooms.knows.iter().filter(|(from, _)| from == name).map(|(_, to)| to.as_str()).collect();
    let below = if below.is_empty() { "no other room".to_string() } else { below.join(", ") };
    Box_ {
        look: match name {
            _ if is_top => TOP,
            name if name.starts_with("crates/") => RUST,
            _ => C,
        },
        title: name.to_string(),
        lines: lines.into_iter().map(|text| Line { text, is_code: false }).collect(),
        tip: format!("{name}: {what}. Built on: {below}"),
    }
}

/// Without those that follow from others.
fn arrows(rooms: &Rooms, names: &[&str]) -> (Vec<Way>, Vec<Arrow_>) {
    let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    let mut graph = DiGraph::<(), ()>::new();
    for _ in names {
        graph.add_node(());
    }
    for (from, to) in &rooms.knows {
        let [from, to] = [from, to].map(|n| NodeIndex::new(index[n.as_str()]));
        graph.update_edge(from, to, ());
    }
    let order = toposort(&graph, None).expect("floors were found, so there is no circle");
    let (list, place) = dag_to_toposorted_adjacency_list::<_, u32>(&graph, &order);
    let (reduced, closure) = dag_transitive_reduction_closure(&list);
    let (mut ways, mut drawn) = (Vec::new(), Vec::new());
    for (pairs, is_loose) in [(&rooms.knows, false), (&rooms.tests_know, true)] {
        for (from, to) in pairs {
            let (f, t) = (index[from.as_str()], index[to.as_str()]);
            let has = if is_loose {
                !closure.contains_edge(place[f], place[t])
            } else {
                reduced.contains_edge(place[f], place[t])
            };
            if !has {
                continue;
            }
            ways.push(Way { from: f, to: t, label: None, is_loose });
            let (class, verb) = if is_loose {
                ("tests", "tests, benches: built on")
            } else {
                ("plain", "is built on")
            };
            drawn.push(Arrow_ { class, label: Vec::new(), tip: format!("{from} {verb} {to}") });
        }
    }
    (ways, drawn)
}

fn bands(wanted: &Wanted, laid: &Laid) -> Vec<Band> {
    let of_row = |(floor, row): (usize, &Vec<usize>)| {
        let half = |i: &usize| wanted.boxes[*i].height / 2.0;
        let top = row.iter().map(|i| laid.boxes[*i].y - half(i)).fold(f64::MAX, f64::min);
        let bottom = row.iter().map(|i| laid.boxes[*i].y + half(i)).fold(0.0, f64::max);
        let label = if floor == 0 { "ground".to_string() } else { format!("floor {floor}") };
        Band { top: top - BAND_MARGIN, bottom: bottom + BAND_MARGIN, label }
    };
    wanted.rows.iter().enumerate().map(of_row).collect()
}

fn samples() -> Vec<Sample> {
    [
        (SampleOf::Box(RUST), "a Rust crate"),
        (SampleOf::Box(C), "a directory of C"),
        (SampleOf::Box(TOP), "the command"),
        (SampleOf::Arrow("plain"), "is built on"),
        (SampleOf::Arrow("tests"), "only its tests are"),
    ]
    .map(|(of, text)| Sample { of, text: text.to_string() })
    .into()
}
