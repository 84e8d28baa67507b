// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin status`: the module, its defaults and every VM.

use crate::cmd::written::{read, Written, SCHEDULED, SHAPED};
use crate::cmd::{schedule, shape};
use crate::fit::{cut_apart, terminal_width, wrap};
use crate::out;
use crate::sysfs::{root, Module};
use crate::vms::{with_ids, Vm};
use serde::Serialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unspin_host::{place, Host};
use unspin_text::Framed;
use unspin_uapi::{turns_refused, COSCHEDULING, MODE, TURNS_REFUSED};
use unspin_uapi::{Coscheduling, Counter, ModuleValue, Value as Of};

/// Limit of characters of a name in the table; --json has the whole name.
const NAME_MAX: usize = 30;
/// Cells reserved for the other columns in a narrow terminal.
const BESIDE_NAME: usize = 30;
const NAME_MIN: usize = 10;
/// In a narrower terminal the name is no longer repeated in each part of a table.
const BOTH_KEYS_MIN: usize = 40;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
average: (spin + switch) / CPU since the counters were reset: the share of the VM's CPU time that pause-loop exits wasted. \
wasted: the same share in the last epoch. fail open: how often the module left the VM to KVM's own code. \
docs/sysfs.md explains all columns.")]
pub struct Args {
    /// Print JSON, with all values.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true, default_value_os_t = root())]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value_os_t = place::proc())]
    proc: PathBuf,
    #[arg(long, hide = true, default_value = SHAPED)]
    shaped: PathBuf,
}

#[derive(Serialize)]
struct Status {
    schema: u32,
    version: Option<String>,
    window_control: Option<String>,
    turns_excluded_cpus: Option<String>,
    live_objects: Option<Value>,
    fail_open_total: Option<Value>,
    /// The scheduler that replaces the kernel's own, in words; null if none is enabled.
    sched_ext: Option<String>,
    default: BTreeMap<String, Value>,
    vms: BTreeMap<String, BTreeMap<String, Value>>,
    /// The last decisions of `unspin shape`; null if it does not run.
    shaped: Option<Written<shape::Document>>,
    /// What `unspin schedule` does; null if it does not run.
    scheduled: Option<Written<schedule::Document>>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let (shaped, scheduled) = (read(&args.shaped), read(Path::new(SCHEDULED)));
    let width = terminal_width();
    let of_shape = shaped.as_ref().map(|shaped| of_shape(shaped, width));
    let of_schedule = scheduled.as_ref().map(|scheduled| of_schedule(scheduled, width));
    let others = [of_shape, of_schedule].into_iter().flatten().collect::<String>();
    let module = match Module::open(&args.sysfs) {
        Err(e) if !args.json && !others.is_empty() => {
            say!("unspin: {e:#}");
            return out::print(&others);
        }
        opened => opened?,
    };
    if let Some(why) = module.other_version() {
        say!("unspin: {why}");
    }
    let host = Host::at(&args.proc);
    let (ids, files): (Vec<String>, Vec<Files>) = module.vms()?.into_iter().unzip();
    let vms: Vec<(Vm, Files)> = with_ids(ids, &host).into_iter().zip(files).collect();
    if !args.json {
        let note = host.sched_ext().map(|of| wrapped(&format!("Note: {of}."), width));
        let note = note.unwrap_or_default();
        return out::print(&(table(&module, &vms, width) + &note + &others));
    }
    out::json(&Status {
        schema: 1,
        version: module.value("version"),
        window_control: module.value(ModuleValue::WINDOW_CONTROL.file()),
        turns_excluded_cpus: module.value(ModuleValue::TURNS_EXCLUDED_CPUS.file()),
        live_objects: module.value(ModuleValue::LIVE_OBJECTS.file()).as_deref().map(value),
        fail_open_total: module.value(ModuleValue::FAIL_OPEN_TOTAL.file()).as_deref().map(value),
        sched_ext: host.sched_ext().map(|of| of.to_string()),
        default: typed(&module.defaults()),
        vms: vms.iter().map(|(vm, files)| (vm.id.clone(), known(vm, files))).collect(),
        shaped,
        scheduled,
    })
}

fn of_shape(written: &Written<shape::Document>, width: usize) -> String {
    let head = wrapped(&format!("unspin shape (process {}):", written.process), width);
    head + &written.document.text(width)
}

fn of_schedule(written: &Written<schedule::Document>, width: usize) -> String {
    let text = written.document.text();
    let lines: String = text.lines().map(|line| wrapped(line, width)).collect();
    wrapped(&format!("unspin schedule (process {}):", written.process), width) + &lines
}

fn wrapped(text: &str, width: usize) -> String {
    wrap(text, width, "").join("\n") + "\n"
}

fn value(s: &str) -> Value {
    s.parse::<u64>().map_or_else(|_| Value::from(s), Value::from)
}

fn typed(files: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    files.iter().map(|(k, v)| (k.clone(), value(v))).collect()
}

fn known(vm: &Vm, files: &Files) -> BTreeMap<String, Value> {
    let mut all = typed(files);
    if let Some(text) = files.get(TURNS_REFUSED) {
        all.insert(TURNS_REFUSED.into(), turns_refused(text).into());
    }
    if let Some(process) = &vm.process {
        all.insert("pid".into(), process.pid.into());
        all.insert("name".into(), process.name_text().into());
        all.insert("names".into(), json!(process.names));
        all.insert("uuid".into(), process.uuid().into());
    }
    all
}

/// The title of a column, and its cell for the files of a VM.
type Column = (&'static str, fn(&Files) -> Option<String>);
type Files = BTreeMap<String, String>;

const OVERVIEW: &[Column] = &[
    ("mode", |f| text(f, MODE)),
    ("window", |f| text(f, Of::WINDOW.file())),
    ("PLE exits", |f| text(f, Counter::PLE_EXITS.file())),
    ("wasted", |f| percent(f, Of::INEFFICIENCY_LAST.file())),
    ("average", |f| percent(f, Of::INEFFICIENCY_AVG.file())),
    ("Mcycles wasted", |f| {
        let number = |counter: Counter| number(f, counter.file());
        Some(millions(number(Counter::SPIN_CYCLES)? + number(Counter::SWITCH_CYCLES)?))
    }),
    ("epochs", |f| text(f, Of::EPOCHS.file())),
    ("rounds", |f| text(f, Of::ROUNDS.file())),
    ("fail open", |f| text(f, Of::FAIL_OPEN.file())),
];

/// By outcome: the kind of target, or the reason for none.
const YIELDS: &[Column] = &[
    ("to resource w.", |f| text(f, Counter::YIELD_RESOURCE.file())),
    ("to lock w.", |f| text(f, Counter::YIELD_LOCK.file())),
    ("to yielded", |f| text(f, Counter::YIELD_YIELDED.file())),
    ("to woken", |f| text(f, Counter::YIELD_WOKEN.file())),
    ("none", |f| text(f, Counter::YIELD_NONE.file())),
    ("gave way", |f| text(f, Counter::GAVE_WAY.file())),
    ("failed", |f| text(f, Counter::YIELD_FAILED.file())),
    ("ran next", |f| text(f, Counter::RAN_NEXT.file())),
];

/// When vCPUs run together, and how long others wait.
const TURNS: &[Column] = &[
    ("coscheduling", |f| text(f, COSCHEDULING)),
    ("VCRD", |f| {
        text(f, Of::VCRD.file()).map(|high| if high == "0" { "LOW" } else { "HIGH" }.to_string())
    }),
    ("turns", |f| text(f, Of::TURNS.file())),
    ("Mcycles in them", |f| number(f, Of::TURN_CYCLES.file()).map(millions)),
    ("parks", |f| text(f, Counter::PARKS.file())),
    ("late", |f| text(f, Counter::PARKS_LATE.file())),
    ("missed", |f| text(f, Counter::PARKS_MISSED.file())),
    ("Mcycles parked", |f| number(f, Counter::PARKED_CYCLES.file()).map(millions)),
    ("Mcycles overstayed", |f| number(f, Counter::OVERSTAY_CYCLES.file()).map(millions)),
    ("holes filled", |f| text(f, Counter::FILLS.file())),
    ("user samples", |f| text(f, Counter::USER_SAMPLES.file())),
    ("user spins", |f| text(f, Counter::USER_SPINS.file())),
    ("reports", |f| text(f, Counter::REPORTS.file())),
    ("ignored", |f| text(f, Counter::REPORTS_IGNORED.file())),
];

/// Whether a VM has turns, or waits for those of others.
fn has_turns(files: &Files) -> bool {
    let is_set = files.get(COSCHEDULING).is_some_and(|set| set != Coscheduling::DEFAULT.name());
    is_set || number(files, Counter::PARKS.file()).is_some_and(|n| n > 0.0)
}

fn table(module: &Module, vms: &[(Vm, Files)], width: usize) -> String {
    let known = |name: &str| module.value(name).unwrap_or_else(|| "unknown".to_string());
    let defaults: Vec<String> = module.defaults().iter().map(|(k, v)| format!("{k}={v}")).collect();
    let head = format!(
        "unspin {} · window control {} · fail open {}",
        known("version"),
        known(ModuleValue::WINDOW_CONTROL.file()),
        known(ModuleValue::FAIL_OPEN_TOTAL.file()),
    );
    let defaults = wrap(&defaults.join(" "), width, "default: ").join("\n") + "\n";
    let text = wrapped(&head, width) + &defaults;
    if vms.is_empty() {
        return text + "no VMs\n";
    }
    let columns = |title, columns| columns_of(title, columns, vms, width);
    let text = text + &columns("VM", OVERVIEW) + &columns("yields of VM", YIELDS);
    let turns = match vms.iter().any(|(_, files)| has_turns(files)) {
        true => columns("turns of VM", TURNS) + &excluded(module, width),
        false => String::new(),
    };
    text + &turns + &refusals(vms, width)
}

fn refusals(vms: &[(Vm, Files)], width: usize) -> String {
    let of_vm = |(vm, files): &(Vm, Files)| {
        let reason = files.get(TURNS_REFUSED).and_then(|text| turns_refused(text))?;
        Some(wrapped(&format!("VM {} has no turns: {reason}", vm.id), width))
    };
    vms.iter().filter_map(of_vm).collect()
}

/// Which CPUs are excluded from turns while VMs have turns.
fn excluded(module: &Module, width: usize) -> String {
    match module.value(ModuleValue::TURNS_EXCLUDED_CPUS.file()).as_deref() {
        None | Some("") => String::new(),
        Some(cpus) => {
            wrapped(&format!("no turns on CPUs {cpus}: tasks of the host use them"), width)
        }
    }
}

fn columns_of(title: &str, columns: &[Column], vms: &[(Vm, Files)], width: usize) -> String {
    let heads = [title, "name"].into_iter().chain(columns.iter().map(|(title, _)| *title));
    let mut records = vec![heads.map(String::from).collect()];
    for ((vm, files), name) in vms.iter().zip(names(vms, width)) {
        let cells = columns.iter().map(|(_, of)| of(files).unwrap_or_else(|| "-".to_string()));
        records.push([vm.id.clone(), name].into_iter().chain(cells).collect());
    }
    let keys = if width < BOTH_KEYS_MIN { 1 } else { 2 };
    Framed { records, keys, ..Framed::default() }.text(width)
}

/// The names of VMs, cut to the column; `?` if the process is missing or not visible.
fn names(vms: &[(Vm, Files)], width: usize) -> Vec<String> {
    let title =
        |(vm, _): &(Vm, Files)| vm.process.as_ref().map_or("?".into(), |of| of.title().into());
    let titles: Vec<String> = vms.iter().map(title).collect();
    let pid = |(vm, _): &(Vm, Files)| format!("pid:{}", vm.id);
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let most = NAME_MAX.min(width.saturating_sub(BESIDE_NAME).max(NAME_MIN));
    cut_apart(&titles, &vms.iter().map(pid).collect::<Vec<_>>(), most)
}

fn text(files: &Files, key: &str) -> Option<String> {
    files.get(key).cloned()
}

fn number(files: &Files, key: &str) -> Option<f64> {
    files.get(key)?.parse().ok()
}

fn millions(number: f64) -> String {
    format!("{:.1}", number / 1e6)
}

fn percent(files: &Files, key: &str) -> Option<String> {
    number(files, key).map(|ppm| format!("{:.1} %", ppm / 1e4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let fake = Fake::new();
        let vms = ["41-0", "1234567-12"].map(|id| {
            fake.vm(id, "database-of-a-customer-with-a-long-name");
            (Vm::new(&fake.host(), id.into()), Files::new())
        });
        for width in [20, 25, 39, 40, 80] {
            let text = table(&fake.module(), &vms, width) + &columns_of("VM", TURNS, &vms, width);
            assert!(text.lines().all(|line| crate::fit::cells(line) <= width), "{width}: {text}");
            assert!(text.contains("41-0") && text.contains("VM"), "{text}");
        }
    }

    /// Each file has its index as its value, so a column that reads the wrong file shows a wrong
    /// number.
    #[test]
    fn every_count_but_those_of_the_guest_has_its_column() {
        let all: Files = (Counter::ALL.iter().map(|c| c.file()))
            .chain(Of::ALL.iter().map(|v| v.file()))
            .enumerate()
            .map(|(n, file)| (file.to_string(), format!("{}", 1_000_000 * n)))
            .collect();
        let shown = |columns: &[Column]| -> Vec<_> {
            columns.iter().filter_map(|(_, of)| of(&all)).collect()
        };
        let columns: [Vec<String>; 3] = [OVERVIEW, YIELDS, TURNS].map(shown);
        let apart = [
            Counter::SPIN_CYCLES,
            Counter::SWITCH_CYCLES,
            Counter::HC_KICK,
            Counter::PARKED_CYCLES,
            Counter::OVERSTAY_CYCLES,
        ];
        for counter in Counter::ALL {
            let column = columns.iter().any(|table| table.contains(&all[counter.file()]));
            let expected = !apart.contains(counter) && *counter != Counter::HC_SCHED_YIELD;
            assert_eq!(column, expected, "{counter:?}");
        }
    }
}
