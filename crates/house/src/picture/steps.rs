// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens in the module, step by step, each with the functions that make it: from a file of
//! `docs/`, of which there may be any number.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use super::layout::{lay, Size, Wanted, Way};
use super::svg::{
    self, Arrow_, Box_, Colour, Line, Look, Picture, Sample, SampleOf, LETTER_WIDTH, LINE_HEIGHT,
};
use crate::c;

/// Each `.toml` in it is a picture.
const DIR: &str = "docs";
const BOX_WIDTH: f64 = 264.0;
const LABEL_LETTERS: usize = 26;

/// A whole file, and what it is called.
pub struct Steps {
    file: String,
    steps: File,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    description: String,
    note: String,
    /// What arrows that are `open` stand for.
    open: String,
    lane: Vec<Lane>,
    step: Vec<Step>,
    arrow: Vec<Arrow>,
}

/// Where steps are made, or what they are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lane {
    id: String,
    colour: Colour,
    title: String,
    /// Its boxes are states, and no steps.
    #[serde(default)]
    state: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    id: String,
    /// A lane.
    at: String,
    title: String,
    #[serde(default)]
    text: String,
    /// Of this project: "kmod/hooks.c: hook_on_spin()".
    #[serde(default)]
    code: Vec<String>,
    /// Of the kernel: "arch/x86/kvm/vmx/vmx.c: handle_pause()".
    #[serde(default)]
    kernel: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrow {
    from: String,
    to: String,
    #[serde(default)]
    label: String,
    /// On the way back to KVM's own behaviour.
    #[serde(default)]
    open: bool,
    /// Does not decide who stands above whom.
    #[serde(default)]
    back: bool,
}

/// All files of steps, by name.
pub fn all(root: &Path) -> Result<Vec<Steps>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join(DIR)).context(DIR)? {
        let name = entry.context(DIR)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".toml") {
            files.push(format!("{DIR}/{name}"));
        }
    }
    files.sort();
    files.iter().map(|file| Steps::read(root, file)).collect()
}

impl Steps {
    pub fn read(root: &Path, file: &str) -> Result<Steps> {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_string())?;
        let steps: File = toml::from_str(&text).with_context(|| file.to_string())?;
        for step in &steps.step {
            if steps.lane(step).is_none() {
                bail!("{file}: step {} is at `{}`, which is no lane", step.id, step.at);
            }
        }
        for arrow in &steps.arrow {
            for end in [&arrow.from, &arrow.to] {
                if !steps.step.iter().any(|step| step.id == *end) {
                    bail!("{file}: an arrow names `{end}`, which is no step");
                }
            }
        }
        Ok(Steps { file: file.to_string(), steps })
    }

    /// The picture's file.
    pub fn picture(&self) -> String {
        self.file.replace(".toml", ".svg")
    }

    pub fn facts(&self) -> String {
        let File { name, description, note, open, lane, step, arrow } = &self.steps;
        let mut facts = format!("{name:?} {description:?} {note:?} {open:?}\n");
        facts.extend(lane.iter().map(|one| format!("{one:?}\n")));
        facts.extend(step.iter().map(|one| format!("{one:?}\n")));
        facts.extend(arrow.iter().map(|one| format!("{one:?}\n")));
        facts
    }

    /// Functions that are not defined in the file that is named, a line each.
    pub fn unknown_functions(&self, root: &Path) -> Result<Vec<String>> {
        let own = &self.file;
        let mut of_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut found = Vec::new();
        for (step, code) in self.steps.step.iter().flat_map(|s| s.code.iter().map(move |c| (s, c)))
        {
            let Some((file, functions)) = code.split_once(": ") else {
                bail!("{own}: {code:?} of step {} is not \"FILE: FUNCTION()\"", step.id);
            };
            if !of_file.contains_key(file) {
                let text = match std::fs::read_to_string(root.join(file)) {
                    Ok(text) => text,
                    Err(error) => {
                        found.push(format!("{own}: step {}: {file}: {error}", step.id));
                        continue;
                    }
                };
                let names = c::functions(&text).into_iter().map(|f| f.name).collect();
                of_file.insert(file, names);
            }
            for function in functions.split(", ") {
                let name = function.trim_end_matches("()");
                if !of_file[file].iter().any(|defined| defined == name) {
                    let id = &step.id;
                    found.push(format!("{own}: step {id}: {file} defines no {name}()"));
                }
            }
        }
        Ok(found)
    }

    pub fn svg(&self) -> Result<String> {
        let steps = &self.steps;
        let boxes: Vec<Box_> = steps.step.iter().map(|step| steps.drawn(step)).collect();
        let index = |id: &String| {
            steps.step.iter().position(|s| s.id == *id).expect("read() has looked for it")
        };
        let arrows: Vec<Arrow_> = steps.arrow.iter().map(Arrow::drawn).collect();
        let way = |(arrow, drawn): (&Arrow, &Arrow_)| Way {
            from: index(&arrow.from),
            to: index(&arrow.to),
            label: label_size(&drawn.label),
            is_loose: arrow.back,
        };
        let size = |one: &Box_| Size { width: BOX_WIDTH, height: svg::box_height(one.lines.len()) };
        let wanted = Wanted {
            boxes: boxes.iter().map(size).collect(),
            ways: steps.arrow.iter().zip(&arrows).map(way).collect(),
            rows: Vec::new(),
            between_boxes: 26.0,
            between_rows: 26.0,
        };
        let laid = lay(&wanted)?;
        let picture = Picture {
            name: &steps.name,
            description: &steps.description,
            facts: &self.facts(),
            left: 0.0,
            bands: Vec::new(),
            boxes: &boxes,
            box_width: BOX_WIDTH,
            arrows: &arrows,
            samples: steps.samples(),
            note: &steps.note,
        };
        Ok(svg::svg(&picture, &laid))
    }
}

impl File {
    fn lane(&self, step: &Step) -> Option<&Lane> {
        self.lane.iter().find(|lane| lane.id == step.at)
    }

    fn drawn(&self, step: &Step) -> Box_ {
        let lane = self.lane(step).expect("read() has looked for it");
        let letters = ((BOX_WIDTH - 20.0) / LETTER_WIDTH) as usize;
        let mut lines = Vec::new();
        if !step.text.is_empty() {
            let wrapped = svg::wrap(&step.text, letters).into_iter();
            lines.extend(wrapped.map(|text| Line { text, is_code: false }));
        }
        for code in step.code.iter().chain(&step.kernel) {
            let wrapped = svg::wrap(code, letters).into_iter();
            lines.extend(wrapped.map(|text| Line { text, is_code: true }));
        }
        let title = step.title.clone();
        Box_ { look: lane.look(), tip: title.clone(), title, lines }
    }

    fn samples(&self) -> Vec<Sample> {
        let of_lane =
            |lane: &Lane| Sample { of: SampleOf::Box(lane.look()), text: lane.title.clone() };
        let mut samples: Vec<Sample> = self.lane.iter().map(of_lane).collect();
        samples.push(Sample { of: SampleOf::Arrow("open"), text: self.open.clone() });
        samples
    }
}

impl Lane {
    fn look(&self) -> Look {
        Look { colour: self.colour, is_state: self.state }
    }
}

impl Arrow {
    fn drawn(&self) -> Arrow_ {
        let label =
            if self.label.is_empty() { Vec::new() } else { svg::wrap(&self.label, LABEL_LETTERS) };
        let class = if self.open { "open" } else { "plain" };
        Arrow_ { class, label, tip: self.label.clone() }
    }
}

fn label_size(label: &[String]) -> Option<Size> {
    let letters = label.iter().map(|l| l.chars().count()).max()?;
    let (width, height) = (letters as f64 * LETTER_WIDTH, label.len() as f64 * LINE_HEIGHT + 4.0);
    Some(Size { width, height })
}
