// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin status`: the module, its defaults, every VM.

use crate::out;
use crate::sysfs::{Module, ROOT};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tabled::builder::Builder;
use tabled::settings::Style;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Everything, as JSON.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true, default_value = ROOT)]
    sysfs: PathBuf,
}

#[derive(Serialize)]
struct Status {
    schema: u32,
    version: Option<String>,
    window_control: Option<String>,
    live_objects: Option<Value>,
    fail_open_total: Option<Value>,
    default: BTreeMap<String, Value>,
    vms: BTreeMap<String, BTreeMap<String, Value>>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let module = Module::open(&args.sysfs)?;
    let vms = module.vms()?;
    if !args.json {
        return out::print(&table(&module, &vms));
    }
    out::json(&Status {
        schema: 1,
        version: module.value("version"),
        window_control: module.value("window_control"),
        live_objects: module.value("live_objects").as_deref().map(value),
        fail_open_total: module.value("fail_open_total").as_deref().map(value),
        default: typed(&module.defaults()),
        vms: vms.iter().map(|(id, files)| (id.clone(), typed(files))).collect(),
    })
}

fn value(s: &str) -> Value {
    s.parse::<u64>().map_or_else(|_| Value::from(s), Value::from)
}

fn typed(files: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    files.iter().map(|(k, v)| (k.clone(), value(v))).collect()
}

const COLUMNS: &[(&str, &str)] = &[
    ("mode", "mode"),
    ("window_cycles", "window"),
    ("ple_exits", "PLE exits"),
    ("inefficiency_last_ppm", "wasted"),
    ("inefficiency_avg_ppm", "average"),
    ("epochs", "epochs"),
    ("rounds", "rounds"),
    ("yields_resource_waiter", "to resource w."),
    ("yields_lock_waiter", "to lock w."),
    ("picks_ran_next", "ran next"),
    ("fail_open_events", "failed open"),
];

fn table(module: &Module, vms: &[(String, BTreeMap<String, String>)]) -> String {
    let known = |name: &str| module.value(name).unwrap_or_else(|| "unknown".to_string());
    let defaults: Vec<String> = module.defaults().iter().map(|(k, v)| format!("{k}={v}")).collect();
    let mut text = format!(
        "unspin {} · window control {} · failed open {}\ndefault: {}\n",
        known("version"),
        known("window_control"),
        known("fail_open_total"),
        defaults.join(" ")
    );
    if vms.is_empty() {
        return text + "no VMs\n";
    }
    let mut b = Builder::default();
    b.push_record(std::iter::once("VM").chain(COLUMNS.iter().map(|(_, title)| *title)));
    for (id, files) in vms {
        let cells = COLUMNS.iter().map(|(key, _)| cell(key, files.get(*key)));
        b.push_record(std::iter::once(id.clone()).chain(cells));
    }
    text += &b.build().with(Style::sharp()).to_string();
    text + "\n"
}

fn cell(key: &str, value: Option<&String>) -> String {
    let Some(v) = value else {
        return "-".to_string();
    };
    match (key.ends_with("_ppm"), v.parse::<f64>()) {
        (true, Ok(ppm)) => format!("{:.1} %", ppm / 1e4),
        _ => v.clone(),
    }
}
