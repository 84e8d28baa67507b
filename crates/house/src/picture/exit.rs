// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of a PLE exit, step by step, each with the function that makes it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use super::layout::{lay, Size, Wanted, Way};
use super::svg::{self, Arrow_, Box_, Line, Picture, Sample, LETTER_WIDTH, LINE_HEIGHT};
use crate::c;

/// What it is made from.
const EXIT_STEPS: &str = "docs/ple-exit.toml";
const BOX_WIDTH: f64 = 264.0;
const LABEL_LETTERS: usize = 26;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    step: Vec<Step>,
    arrow: Vec<Arrow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    id: String,
    at: Where,
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

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Where {
    Guest,
    Kvm,
    Module,
    Policy,
    /// KVM goes its own way.
    Open,
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

impl Where {
    fn class(self) -> &'static str {
        match self {
            Where::Guest => "guest",
            Where::Kvm => "kvm",
            Where::Module => "module",
            Where::Policy => "policy",
            Where::Open => "open",
        }
    }
}

impl Exit {
    pub fn read(root: &Path) -> Result<Exit> {
        let text = std::fs::read_to_string(root.join(EXIT_STEPS)).context(EXIT_STEPS)?;
        let exit: Exit = toml::from_str(&text).context(EXIT_STEPS)?;
        for arrow in &exit.arrow {
            for end in [&arrow.from, &arrow.to] {
                if !exit.step.iter().any(|step| step.id == *end) {
                    bail!("{EXIT_STEPS}: an arrow names `{end}`, which is no step");
                }
            }
        }
        Ok(exit)
    }

    pub fn facts(&self) -> String {
        let steps = self.step.iter().map(|s| format!("{s:?}\n"));
        steps.chain(self.arrow.iter().map(|a| format!("{a:?}\n"))).collect()
    }

    /// Functions that are not defined in the file that is named, a line each.
    pub fn unknown_functions(&self, root: &Path) -> Result<Vec<String>> {
        let mut of_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut found = Vec::new();
        for (step, code) in self.step.iter().flat_map(|s| s.code.iter().map(move |c| (s, c))) {
            let Some((file, functions)) = code.split_once(": ") else {
                bail!("{EXIT_STEPS}: {code:?} of step {} is not \"FILE: FUNCTION()\"", step.id);
            };
            if !of_file.contains_key(file) {
                let text = match std::fs::read_to_string(root.join(file)) {
                    Ok(text) => text,
                    Err(error) => {
                        found.push(format!("{EXIT_STEPS}: step {}: {file}: {error}", step.id));
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
                    found.push(format!("{EXIT_STEPS}: step {id}: {file} defines no {name}()"));
                }
            }
        }
        Ok(found)
    }

    pub fn svg(&self) -> Result<String> {
        let boxes: Vec<Box_> = self.step.iter().map(Step::drawn).collect();
        let index = |id: &String| {
            self.step.iter().position(|s| s.id == *id).expect("read() has looked for it")
        };
        let arrows: Vec<Arrow_> = self.arrow.iter().map(Arrow::drawn).collect();
        let way = |(arrow, drawn): (&Arrow, &Arrow_)| Way {
            from: index(&arrow.from),
            to: index(&arrow.to),
            label: label_size(&drawn.label),
            is_loose: arrow.back,
        };
        let size = |one: &Box_| Size { width: BOX_WIDTH, height: svg::box_height(one.lines.len()) };
        let wanted = Wanted {
            boxes: boxes.iter().map(size).collect(),
            ways: self.arrow.iter().zip(&arrows).map(way).collect(),
            rows: Vec::new(),
            between_boxes: 26.0,
            between_rows: 26.0,
        };
        let laid = lay(&wanted)?;
        let picture = Picture {
            name: "The life of a PLE exit",
            description:
                "From a guest's PAUSE loop through KVM and the module back into the guest.",
            facts: &self.facts(),
            left: 0.0,
            bands: Vec::new(),
            boxes: &boxes,
            box_width: BOX_WIDTH,
            arrows: &arrows,
            samples: samples(),
            note:
                "Names below a step are the functions that make it: of this project, or of Linux \
                   where the path begins with arch/, kernel/ or virt/.",
        };
        Ok(svg::svg(&picture, &laid))
    }
}

impl Step {
    fn drawn(&self) -> Box_ {
        let letters = ((BOX_WIDTH - 20.0) / LETTER_WIDTH) as usize;
        let mut lines = Vec::new();
        if !self.text.is_empty() {
            let wrapped = svg::wrap(&self.text, letters).into_iter();
            lines.extend(wrapped.map(|text| Line { text, is_code: false }));
        }
        for code in self.code.iter().chain(&self.kernel) {
            let wrapped = svg::wrap(code, letters).into_iter();
            lines.extend(wrapped.map(|text| Line { text, is_code: true }));
        }
        let title = self.title.clone();
        Box_ { class: self.at.class(), tip: title.clone(), title, lines }
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

fn samples() -> Vec<Sample> {
    [
        ("guest", false, "guest and processor"),
        ("kvm", false, "KVM and the scheduler"),
        ("module", false, "the module (kmod/)"),
        ("policy", false, "a decision (policy/)"),
        ("open", false, "KVM goes its own way"),
        ("open", true, "by mode, or in doubt"),
    ]
    .map(|(class, is_arrow, text)| Sample { class, is_arrow, text: text.to_string() })
    .into()
}
