// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab model`: how well applications scale on a machine, and in a VM that shares it.

mod record;

use crate::exit::{unread, Usage};
use crate::out;
use serde::Serialize;
use std::path::{Path, PathBuf};
use unspin_model::{confirm, Allocation, App, Confirmed, Prediction, TOLERANCE};
use unspin_text::fit::{terminal_width, wrap_lines};
use unspin_text::{read_text, shown, Framed};

/// Simulated time of a run, in ms.
const WINDOW_MS: u64 = 8000;

const HELP: &str = "\
--record measures a running VM by `unspin diagnose`, which must be installed and needs root, and writes the \
resulting profile. It changes nothing. Comments in the file name the program's type and the evidence for it. \
Record while the program runs and no other VM competes: a sibling that waits for a vCPU without a CPU counts \
as idle.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Application profiles, such as models/amdahl.toml.
    #[arg(value_name = "PROFILE", required_unless_present = "record")]
    profiles: Vec<PathBuf>,
    #[command(flatten)]
    record: record::Args,
    /// Check each prediction with the simulator.
    #[arg(long)]
    simulate: bool,
    /// Divide the CPU time of the VM among its vCPUs by their work, instead of evenly.
    #[arg(long)]
    matched: bool,
    /// Seed of the simulator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON, one line per profile.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    machine: &'static str,
    name: String,
    units: u32,
    share: f64,
    period_ms: f64,
    r#type: u32,
    parallelism: f64,
    speedup_pm: f64,
    speedup_vm: f64,
    efficiency_vm: f64,
    efficiency_max: f64,
    switch_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_speedup_pm: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_speedup_vm: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_efficiency_vm: Option<f64>,
    /// "confirmed" or "refuted", by both speedups.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.record.is_asked() {
        return args.record.run();
    }
    let apps = args.profiles.iter().map(|p| read(p)).collect::<anyhow::Result<Vec<App>>>()?;
    let allocation = if args.matched { Allocation::Matched } else { Allocation::Even };
    let mut lines = Vec::new();
    for (app, path) in apps.iter().zip(&args.profiles) {
        let simulated = args
            .simulate
            .then(|| confirm(app, WINDOW_MS, args.seed))
            .transpose()
            .map_err(|e| Usage(format!("{}: {e}", shown(path))))?;
        lines.push(line(app, &app.predict(allocation), simulated.as_ref()));
    }
    if args.json {
        return lines.iter().try_for_each(out::json);
    }
    out::print(&table(&lines, args.simulate, terminal_width()))
}

fn read(path: &Path) -> anyhow::Result<App> {
    let text = read_text(path).map_err(unread)?;
    App::parse(&shown(path), &text).map_err(|e| Usage(e.to_string()).into())
}

fn line(app: &App, p: &Prediction, simulated: Option<&Confirmed>) -> Line {
    Line {
        machine: "model",
        name: app.name.clone(),
        units: app.units,
        share: app.share,
        period_ms: app.period_ms,
        r#type: p.kind.number(),
        parallelism: p.parallelism,
        speedup_pm: p.speedup_pm,
        speedup_vm: p.speedup_vm,
        efficiency_vm: p.efficiency_vm,
        efficiency_max: p.efficiency_max,
        switch_share: p.switch_share,
        simulated_speedup_pm: simulated.map(|c| c.speedup_pm),
        simulated_speedup_vm: simulated.map(|c| c.speedup_vm),
        simulated_efficiency_vm: simulated.map(|c| c.efficiency_vm),
        verdict: simulated.map(|c| if c.agrees_with(p) { "confirmed" } else { "refuted" }),
    }
}

fn table(lines: &[Line], simulated: bool, width: usize) -> String {
    let mut head = vec![
        "model",
        "type",
        "units",
        "parallelism",
        "speedup PM",
        "speedup VM",
        "eff. VM",
        "eff. max",
    ];
    if simulated {
        head.extend(["PM (sim)", "VM (sim)", "eff. (sim)", "the model is"]);
    }
    let mut records = vec![head.into_iter().map(String::from).collect::<Vec<_>>()];
    for l in lines {
        let percent = |x: f64| format!("{:.1} %", x * 100.0);
        let number = |x: f64| format!("{x:.2}");
        let mut cells = vec![
            l.name.clone(),
            l.r#type.to_string(),
            l.units.to_string(),
            number(l.parallelism),
            number(l.speedup_pm),
            number(l.speedup_vm),
            percent(l.efficiency_vm),
            percent(l.efficiency_max),
        ];
        if simulated {
            cells.extend(
                [l.simulated_speedup_pm, l.simulated_speedup_vm]
                    .map(|x| number(x.unwrap_or(f64::NAN))),
            );
            cells.push(percent(l.simulated_efficiency_vm.unwrap_or(f64::NAN)));
            cells.push(l.verdict.unwrap_or_default().to_string());
        }
        records.push(cells);
    }
    let table = Framed { records, keys: 1, right_from: Some(1), right_titles: false };
    let rule = if simulated {
        format!(
            "confirmed: both simulated speedups are within {:.0} % of the model's\n",
            100.0 * TOLERANCE
        )
    } else {
        String::new()
    };
    let legend = format!(
        "PM: speedup over 1 core on a physical machine; VM: speedup over 1 vCPU in a VM. eff.: share of the \
         available CPU time that is used; max: with CPU time divided by work.\n\
         type: 1 parallel, blocks rarely; 2 less parallel, blocks often; 3 parallel, blocks often; \
         4 less parallel, blocks rarely. Parallel: on average at least 3 of 4 units work; often: \
         within 6 ms.\nThese are predictions, not measurements.\n{rule}"
    );
    table.text(width) + &wrap_lines(&legend, width)
}
