// SPDX-License-Identifier: MIT OR Apache-2.0
//! An arm's window, and the parameters of an adaptive one.

use crate::parse::keys::OfKeys;
use crate::schema::arm::{ApleParams, Window};
use crate::schema::key::{Integer, Key};
use crate::schema::keys::window::{self as keys, WINDOW_FORMS};
use unspin_text::Value;

pub(crate) fn read_window(v: &Value, aple: &ApleParams) -> Option<Window> {
    if v.is_str() {
        return v.choice(&[
            ("stock", Window::Stock),
            ("off", Window::Off),
            ("aple", Window::Aple(*aple)),
        ]);
    }
    let t = v.table(WINDOW_FORMS)?;
    t.only_of(&keys::WINDOW);
    match (t.at(&keys::FIXED), t.at(&keys::APLE)) {
        (Some(_), None) => Some(Window::Fixed { cycles: t.read(&keys::FIXED)?? }),
        (None, Some(a)) => read_aple(&a, aple),
        (Some(_), Some(_)) => {
            v.problem("both fixed and adaptive", "one of fixed_cycles and aple");
            None
        }
        (None, None) => {
            if t.keys().is_empty() {
                v.problem("empty", WINDOW_FORMS);
            }
            None
        }
    }
}

fn read_aple(v: &Value, usual: &ApleParams) -> Option<Window> {
    let t = v.table(keys::APLE.takes.0)?;
    t.only_of(&keys::ADAPTED);
    let window_init = t.read_or(&keys::WINDOW_INIT, usual.window_init_cycles);
    let window_min = t.read_or(&keys::WINDOW_MIN, usual.window_min_cycles);
    let window_max = t.read_or(&keys::WINDOW_MAX, usual.window_max_cycles);
    let delta = t.read_or(&keys::DELTA, usual.delta_cycles);
    let delta_max = t.read_or(&keys::DELTA_MAX, usual.delta_max_cycles);
    let epoch = t.read_or(&keys::EPOCH, usual.epoch_ple_exits);
    let epoch_min = t.read_or(&keys::EPOCH_MIN, usual.epoch_min_us);
    let window_max = window_max?;
    // As in the module: a lower upper bound also lowers defaults.
    let settled = |key: &Key<ApleParams, Integer<u32>>, said: u32| match t.at(key) {
        Some(_) => said,
        None => said.min(window_max),
    };
    let p = ApleParams {
        window_init_cycles: window_init?,
        window_min_cycles: window_min?,
        window_max_cycles: window_max,
        delta_cycles: settled(&keys::DELTA, delta?),
        delta_max_cycles: settled(&keys::DELTA_MAX, delta_max?),
        epoch_ple_exits: epoch?,
        epoch_min_us: epoch_min?,
    };
    check_aple(v, &p);
    Some(Window::Aple(p))
}

/// The window starts between its bounds, and no step exceeds the upper bound.
fn check_aple(v: &Value, p: &ApleParams) {
    let (least, most) = (p.window_min_cycles, p.window_max_cycles);
    if least > most {
        v.problem(
            format!("window_min_cycles {least} is above window_max_cycles {most}"),
            "window_min_cycles <= window_init_cycles <= window_max_cycles",
        );
    } else {
        if !(least..=most).contains(&p.window_init_cycles) {
            v.problem(
                format!("window_init_cycles {} is out of range", p.window_init_cycles),
                format!("from {least} to {most} (window_min_cycles, window_max_cycles)"),
            );
        }
        for (key, delta) in
            [("delta_cycles", p.delta_cycles), ("delta_max_cycles", p.delta_max_cycles)]
        {
            if delta > most {
                v.problem(
                    format!("{key} {delta} is out of range"),
                    format!("up to {most} (window_max_cycles)"),
                );
            }
        }
    }
}
