// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of an experiment, as tables and as JSON.

use super::switch::Switch;
use super::trial::{Asked, Window, POLL_SHARE_MIN};
use crate::cmd::diagnose::show::title;
use crate::cmd::diagnose::table::STATE_SHARE_MIN;
use crate::fit::{self, percent, wrap_lines, Column};
use serde::Serialize;
use std::fmt::Write;
use unspin_diagnosis::pairs::Interval;
use unspin_diagnosis::{Cause, State};
use unspin_host::Names;
use unspin_text::printable_lines;

#[derive(Serialize)]
pub struct Document {
    schema: u32,
    ab: Ab,
}

#[derive(Serialize)]
struct Ab {
    name: Option<String>,
    names: Names,
    pid: u32,
    uuid: Option<String>,
    cause: Cause,
    a: String,
    b: String,
    rounds: usize,
    window_s: f64,
    /// A letter per phase (A or B), in order of time.
    order: String,
    causes: Vec<Compared>,
    states: Vec<Compared>,
    work: Option<Work>,
    /// Share of the cause by `diagnose`, in A; `None` if unknown.
    diagnosed: Option<f64>,
    /// The time that B regains, derived from the work, as a share of B's pace. `None` without
    /// `--work`.
    found: Option<Interval>,
    notes: Vec<String>,
    #[serde(skip)]
    title: String,
}

/// A share of the vCPUs' wall time in A and in B. `None`: unknown.
#[derive(Serialize)]
struct Compared {
    #[serde(rename = "of")]
    name: &'static str,
    a: Option<f64>,
    b: Option<f64>,
    #[serde(flatten)]
    difference: Option<Difference>,
}

impl Compared {
    /// The larger share; 0 if both are unknown.
    fn most(&self) -> f64 {
        self.a.unwrap_or(0.0).max(self.b.unwrap_or(0.0))
    }
}

/// B - A, with its 95 % interval.
#[derive(Serialize)]
struct Difference {
    difference: f64,
    low: f64,
    high: f64,
    /// Whether 0 is in the interval; if so, the difference is not significant.
    zero_within: bool,
}

#[derive(Serialize)]
struct Work {
    a_per_s: f64,
    b_per_s: f64,
    /// Work in B relative to A; `None` if a phase did no work.
    ratio: Option<Interval>,
}

/// B - A in each round, of a number per phase; `None` if one is unknown.
fn differences(windows: &[Window], of: &dyn Fn(&Window) -> Option<f64>) -> Option<Vec<f64>> {
    let pair = |pair: &[Window]| {
        let (a, b) = if pair[0].is_b { (&pair[1], &pair[0]) } else { (&pair[0], &pair[1]) };
        Some(of(b)? - of(a)?)
    };
    windows.chunks_exact(2).map(pair).collect()
}

fn mean(windows: &[Window], is_b: bool, of: &dyn Fn(&Window) -> Option<f64>) -> Option<f64> {
    let all: Option<Vec<f64>> = windows.iter().filter(|w| w.is_b == is_b).map(of).collect();
    all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64)
}

fn compared(
    name: &'static str,
    windows: &[Window],
    of: &dyn Fn(&Window) -> Option<f64>,
) -> Compared {
    let interval = differences(windows, of).and_then(|all| Interval::of(&all));
    let difference = interval.map(|of| Difference {
        difference: of.mean,
        low: of.low,
        high: of.high,
        zero_within: of.holds(0.0),
    });
    Compared { name, a: mean(windows, false, of), b: mean(windows, true, of), difference }
}

/// The ratio of work in B to work in A, from the logarithms of each round.
fn ratio(windows: &[Window]) -> Option<Interval> {
    let log = |window: &Window| window.work.filter(|rate| *rate > 0.0).map(f64::ln);
    Some(Interval::of(&differences(windows, &log)?)?.map(f64::exp))
}

fn work(windows: &[Window]) -> Option<Work> {
    let of = |window: &Window| window.work;
    Some(Work {
        a_per_s: mean(windows, false, &of)?,
        b_per_s: mean(windows, true, &of)?,
        ratio: ratio(windows),
    })
}

impl Document {
    pub fn new(asked: &Asked, switch: &Switch, windows: &[Window]) -> Document {
        let cause = |cause: Cause| {
            compared(cause.name(), windows, &|window| window.losses[cause as usize].share)
        };
        let state = |state: &State| {
            compared(state.name(), windows, &|window| Some(window.did.share(&[*state])))
        };
        let seen = |of: &Compared| of.most() > 0.0;
        let vm = asked.vm;
        let ab = Ab {
            name: vm.name_text(),
            names: vm.names.clone(),
            pid: vm.pid,
            uuid: vm.uuid(),
            cause: switch.cause,
            a: switch.a.clone(),
            b: switch.b.clone(),
            rounds: asked.rounds,
            window_s: asked.window.as_secs_f64(),
            order: windows.iter().map(|window| if window.is_b { 'B' } else { 'A' }).collect(),
            causes: Cause::ALL.into_iter().map(cause).collect(),
            states: State::ALL.iter().map(state).filter(seen).collect(),
            work: work(windows),
            diagnosed: mean(windows, false, &|w| w.losses[switch.cause as usize].share),
            found: ratio(windows).map(|ratio| ratio.map(|ratio| 1.0 - 1.0 / ratio)),
            notes: notes(asked, switch, windows),
            title: title(vm),
        };
        Document { schema: 1, ab }
    }

    pub fn text(&self, width: usize) -> String {
        let ab = &self.ab;
        let head = format!(
            "{}: {}, {} phases of {:.1} s ({})\nA: {}\nB: {}",
            ab.title,
            ab.cause.name(),
            ab.order.len(),
            ab.window_s,
            ab.order,
            ab.a,
            ab.b
        );
        let shown = |of: &&Compared| of.most() >= STATE_SHARE_MIN;
        let mut text = wrap_lines(&head, width);
        text += &table("cause", ab.causes.iter(), width);
        text += &table("state", ab.states.iter().filter(shown), width);
        text += &wrap_lines(&ab.answer(), width);
        for note in &ab.notes {
            text.extend(fit::wrap(note, width, "* ").into_iter().map(|line| line + "\n"));
        }
        printable_lines(&text)
    }
}

impl Ab {
    fn answer(&self) -> String {
        let name = self.cause.name();
        let mut text = match self.diagnosed {
            Some(share) => format!("diagnose: {name} takes {} of the time in A.\n", percent(share)),
            None => format!("diagnose: the share of {name} is unknown.\n"),
        };
        let Some(work) = &self.work else { return text };
        let _ = writeln!(text, "work: {:.1} /s in A, {:.1} /s in B", work.a_per_s, work.b_per_s);
        let (Some(ratio), Some(found)) = (&work.ratio, &self.found) else { return text };
        let may_be_none = match ratio.holds(1.0) {
            true => ": not significant",
            false => "",
        };
        let _ = writeln!(
            text,
            "experiment: B does {:.3} times the work of A (95 %: {:.3} to {:.3}){may_be_none}. B \
             regains {} of the time ({} to {}).",
            ratio.mean,
            ratio.low,
            ratio.high,
            percent(found.mean),
            percent(found.low),
            percent(found.high)
        );
        text
    }
}

fn table<'a>(of: &'static str, rows: impl Iterator<Item = &'a Compared>, width: usize) -> String {
    let columns = [
        Column::text(of, 0),
        Column::number("A", 3),
        Column::number("B", 3),
        Column::number("B - A", 1),
        Column::number("95 %", 2),
        Column::text("", 1),
    ];
    let share = |share: Option<f64>| share.map_or("?".into(), percent);
    let row = |row: &Compared| {
        let (difference, interval, sure) = match &row.difference {
            None => ("?".into(), String::new(), ""),
            Some(of) => (
                format!("{:+.1} %", 100.0 * of.difference),
                format!("{:+.1} to {:+.1}", 100.0 * of.low, 100.0 * of.high),
                if of.zero_within { "not significant" } else { "" },
            ),
        };
        let (name, sure) = (row.name.to_string(), sure.to_string());
        vec![name, share(row.a), share(row.b), difference, interval, sure]
    };
    fit::table(&columns, &rows.map(row).collect::<Vec<_>>(), width) + "\n"
}

fn notes(asked: &Asked, switch: &Switch, windows: &[Window]) -> Vec<String> {
    let mut notes = Vec::new();
    if asked.work.is_none() {
        let text =
            "only shares are compared: the host does not see the work of the VM; --work COMMAND \
             reports it";
        notes.push(text.to_string());
    } else if ratio(windows).is_none() {
        notes.push("a phase had no work, so the ratio of B to A is unknown".to_string());
    }
    match switch.cause {
        Cause::SpinSwitch => {
            let text = "in B spinning does not exit, and counts as guest time: a smaller \
                        spin-switch in B is not a gain by itself";
            notes.push(text.to_string());
            let text = "the VM now has its own mode, window bounds and delta_cycles: values in \
                        default/ no longer apply to it, except off in default/mode";
            notes.push(text.to_string());
        }
        Cause::Cache => {
            let text = "the vCPU threads now have an affinity of their own, as set by taskset";
            notes.push(text.to_string());
        }
        Cause::IdleSwitch => {
            let polls = |window: &Window| window.did.share(&[State::Poll]) >= POLL_SHARE_MIN;
            if !windows.iter().any(polls) {
                let text = "KVM polled neither in A nor in B, so they do not differ: it does not \
                            poll if sleeps are long, or if the VMM has turned polling off";
                notes.push(text.to_string());
            }
        }
        _ => {}
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use unspin_diagnosis::{losses, pairs::is_of_b, Did};
    use unspin_host::{Kind, Monitor, VmProcess};

    fn windows(work: impl Fn(bool, usize) -> Option<f64>) -> Vec<Window> {
        let window = |index| {
            let is_b = is_of_b(index);
            let mut did = Did { vcpus: 2, window_ns: 500_000, ..Did::default() };
            did.times[State::ExitHalt] = if is_b { 100_000 } else { 300_000 };
            did.times[State::Guest] = 1_000_000 - did.times[State::ExitHalt] + index as u64;
            Window { is_b, losses: losses(&did), did, work: work(is_b, index) }
        };
        (0..8).map(window).collect()
    }

    fn document(work: Option<&str>, windows: &[Window]) -> Document {
        let names = Names::default().with(Kind::Name, "web\x1b");
        let vm = VmProcess::new(7, Monitor::Qemu, names, Vec::new());
        let asked = Asked { vm: &vm, rounds: 4, window: Duration::from_secs(5), work };
        let (a, b) = ("as it is".into(), "another".into());
        let switch = Switch { cause: Cause::IdleSwitch, a, b, wanted: Vec::new() };
        Document::new(&asked, &switch, windows)
    }

    #[test]
    fn shares_of_arms_are_compared() {
        let document = document(None, &windows(|_, _| None));
        let json = serde_json::to_value(&document).unwrap();
        let ab = &json["ab"];
        assert_eq!((&json["schema"], &ab["order"]), (&1.into(), &"ABBAABBA".into()));
        let idle = ab["causes"].as_array().unwrap().iter().find(|c| c["of"] == "idle-switch");
        let idle = idle.unwrap();
        assert!((idle["difference"].as_f64().unwrap() + 0.2).abs() < 1e-9, "{idle}");
        assert_eq!((&idle["zero_within"], &ab["work"]), (&false.into(), &serde_json::Value::Null));
        assert!((ab["diagnosed"].as_f64().unwrap() - 0.3).abs() < 1e-9);
        let cache = ab["causes"].as_array().unwrap().iter().find(|c| c["of"] == "cache").unwrap();
        assert!(cache["a"].is_null() && cache.get("difference").is_none(), "{cache}");
        let text = document.text(1000);
        for words in ["-20.0 %", "--work COMMAND", "ABBAABBA", "takes 30.0 % of the time in A"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn work_is_a_ratio_with_its_interval() {
        // B does 1.25 times the work of A in each round, at any pace.
        let rates = |is_b, index| {
            Some([100.0, 90.0, 110.0, 80.0][index / 2] * if is_b { 1.25 } else { 1.0 })
        };
        let json = serde_json::to_value(document(Some("x"), &windows(rates))).unwrap();
        let ratio = &json["ab"]["work"]["ratio"];
        for of in ["value", "low", "high"] {
            assert!((ratio[of].as_f64().unwrap() - 1.25).abs() < 1e-9, "{ratio}");
        }
        assert!((json["ab"]["found"]["value"].as_f64().unwrap() - 0.2).abs() < 1e-9);
        let none = document(Some("x"), &windows(|_, index| Some(index as f64)));
        assert!(none.text(1000).contains("a phase had no work"), "{}", none.text(1000));
    }
}
