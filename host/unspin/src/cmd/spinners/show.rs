// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts, as tables and as JSON.

use crate::cmd::diagnose::show::title;
use crate::fit::{cut_end, percent, wrap_lines};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use unspin_diagnosis::spinners::{by_symbol, fit, Counts, Fit, Samples, Symbols};
use unspin_host::VmProcess;
use unspin_text::{printable_lines, Framed};

/// Limit of lines in a table; --json has all places.
const LINES_MAX: usize = 20;
/// Limit of cells of a symbol in a table.
const SYMBOL_MAX: usize = 64;

/// The symbols that name addresses.
pub struct Names {
    symbols: Symbols,
    /// Where they are from.
    file: String,
    /// What to do if the guest runs another kernel.
    mend: String,
}

impl Names {
    pub fn of_file(symbols: Symbols, path: &Path) -> Names {
        let file = path.display().to_string();
        let mend = format!(
            "{file}; addresses change with each boot: copy /proc/kallsyms again, in the guest, as root"
        );
        Names { symbols, file, mend }
    }

    /// Those of Debian's kernel of a series.
    pub fn of_series(symbols: Symbols, series: &str) -> Names {
        let mend = format!(
            "Debian's current kernel {series}; the guest runs another kernel, or KASLR moved it: in the guest, as \
             root, run cat /proc/kallsyms > FILE, and use --kallsyms FILE"
        );
        Names { symbols, file: format!("Debian's kernel {series}"), mend }
    }
}

pub struct Watched<'a> {
    pub vm: &'a VmProcess,
    pub threads: usize,
    pub samples: Samples,
}

#[derive(Serialize)]
pub struct Document {
    schema: u32,
    seconds: f64,
    /// The file with the symbols.
    symbols: Option<String>,
    /// Exits that were not counted by place, because the kernel's table was full.
    dropped: u64,
    vms: Vec<OfVm>,
}

#[derive(Serialize)]
struct OfVm {
    pid: u32,
    name: Option<String>,
    uuid: Option<String>,
    /// `web1 (process 4242)`.
    #[serde(skip)]
    title: String,
    threads: usize,
    /// Whether these are its vCPUs, or all its threads.
    #[serde(skip)]
    vcpus_known: bool,
    /// Whether the symbols are those of its kernel; null without symbols, or if no address of the
    /// kernel was observed.
    symbols_fit: Option<bool>,
    pause_loop_exits: u64,
    /// Of the pause-loop exits in its kernel, the share in functions with names.
    named_share: Option<f64>,
    spinners: Vec<Place>,
    interrupts: u64,
    interrupted: Vec<Place>,
    #[serde(skip)]
    fit: Fit,
}

#[derive(Serialize)]
struct Place {
    symbol: String,
    count: u64,
    share: f64,
}

impl Document {
    pub fn new(
        time: Duration,
        names: Option<&Names>,
        dropped: u64,
        watched: &[Watched],
    ) -> Document {
        let symbols = names.map(|names| &names.symbols);
        Document {
            schema: 1,
            seconds: time.as_secs_f64(),
            symbols: names.map(|names| names.file.clone()),
            dropped,
            vms: watched.iter().map(|watched| OfVm::new(watched, symbols)).collect(),
        }
    }

    /// Limitations that a reader must know before trusting the tables.
    pub fn warnings(&self, names: Option<&Names>) -> Vec<String> {
        let of = |vm: &OfVm| {
            let (names, Fit { kernel, named }) = (names?, vm.fit);
            (vm.symbols_fit == Some(false)).then(|| {
                let which = &vm.title;
                let mend = &names.mend;
                format!(
                    "{which} runs another kernel than the symbols are from: {named} of {kernel} \
                     exits of its kernel are in functions of {mend}"
                )
            })
        };
        self.vms.iter().filter_map(of).collect()
    }

    pub fn text(&self, width: usize) -> String {
        let vms = self.vms.iter().map(|vm| vm.text(self.seconds, width));
        let text = vms.collect::<Vec<_>>().join("\n");
        let mut notes = String::new();
        if self.dropped > 0 {
            let _ = writeln!(
                notes,
                "\n{} exits are not in the tables: the kernel's table of addresses was full; use \
                 fewer --seconds",
                self.dropped
            );
        }
        if self.symbols.is_none() {
            notes +=
                "\nFor names instead of addresses: in the guest, as root, run cat /proc/kallsyms > \
                 FILE, and use --kallsyms FILE\n";
        }
        printable_lines(&(text + &wrap_lines(&notes, width)))
    }
}

impl OfVm {
    fn new(watched: &Watched, symbols: Option<&Symbols>) -> OfVm {
        let Watched { vm, threads, samples } = watched;
        let fits = |counts| symbols.map_or(Fit { kernel: 0, named: 0 }, |s| fit(counts, s));
        let (pause, interrupted) = (fits(&samples.pause), fits(&samples.interrupted));
        let both = Fit {
            kernel: pause.kernel + interrupted.kernel,
            named: pause.named + interrupted.named,
        };
        let symbols_fit = (both.kernel > 0).then(|| !both.is_of_another_kernel());
        // Names from another kernel would be wrong.
        let symbols = symbols.filter(|_| symbols_fit == Some(true));
        let named_share = |_| pause.named as f64 / pause.kernel as f64;
        OfVm {
            pid: vm.pid,
            name: vm.name_text(),
            uuid: vm.uuid(),
            title: title(vm),
            threads: *threads,
            vcpus_known: vm.is_all_known(),
            symbols_fit,
            pause_loop_exits: total(&samples.pause),
            named_share: symbols.filter(|_| pause.kernel > 0).map(named_share),
            spinners: places(&samples.pause, symbols),
            interrupts: total(&samples.interrupted),
            interrupted: places(&samples.interrupted, symbols),
            fit: both,
        }
    }

    fn text(&self, seconds: f64, width: usize) -> String {
        let what = match (self.vcpus_known, self.threads) {
            (true, 1) => "vCPU",
            (true, _) => "vCPUs",
            (false, 1) => "thread",
            (false, _) => "threads, including vCPUs",
        };
        let head = format!("{}: {} {what}, {seconds} s", self.title, self.threads);
        let mut text = wrap_lines(&head, width);
        let named = self.named_share.map(|share| format!(", {} of them named", percent(share)));
        let named = named.unwrap_or_default();
        text += &table(
            "pause-loop exits",
            self.pause_loop_exits,
            seconds,
            &named,
            &self.spinners,
            width,
        );
        text += &table(
            "interrupted by the host",
            self.interrupts,
            seconds,
            "",
            &self.interrupted,
            width,
        );
        text
    }
}

fn total(counts: &Counts) -> u64 {
    counts.iter().map(|&(_, count)| count).sum()
}

fn places(counts: &Counts, symbols: Option<&Symbols>) -> Vec<Place> {
    let lines = by_symbol(counts, symbols).into_iter();
    lines.map(|line| Place { symbol: line.symbol, count: line.count, share: line.share }).collect()
}

fn table(
    title: &str,
    count: u64,
    seconds: f64,
    named: &str,
    places: &[Place],
    width: usize,
) -> String {
    if places.is_empty() {
        return format!("{title}: none\n");
    }
    let mut records = vec![["where", "count", "share"].map(String::from).to_vec()];
    for place in places.iter().take(LINES_MAX) {
        // The symbols of a guest may have any length.
        let symbol = cut_end(&place.symbol, SYMBOL_MAX.min(width / 2));
        records.push(vec![symbol, place.count.to_string(), percent(place.share)]);
    }
    let others = places.get(LINES_MAX..).unwrap_or_default();
    if !others.is_empty() {
        let sum: u64 = others.iter().map(|place| place.count).sum();
        let where_ = format!("{} other places", others.len());
        records.push(vec![where_, sum.to_string(), percent(sum as f64 / count as f64)]);
    }
    let head = format!("{title}: {count}, {:.0} per second{named}", count as f64 / seconds);
    let table = Framed { records, keys: 1, right_from: Some(1), right_titles: true };
    wrap_lines(&head, width) + &table.text(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_host::Vcpu;

    const SYMBOLS: &str = "\
ffffffff81000000 T _text
ffffffff81000100 t native_queued_spin_lock_slowpath
ffffffff81000200 t smp_call_function_many_cond
ffffffff81000300 T _etext
ffffffffc0000000 t nf_do [nf_tables]
";
    const LOCK: u64 = 0xffff_ffff_8100_0110;
    const CALL: u64 = 0xffff_ffff_8100_0204;

    fn names() -> Names {
        let path = Path::new("guest.syms");
        Names::of_file(Symbols::parse(SYMBOLS, path).unwrap(), path)
    }

    fn vm(name: Option<&str>, vcpus: u32) -> VmProcess {
        let vcpus = (0..vcpus).map(|index| Vcpu { index, tid: 43 + index }).collect();
        let monitor = unspin_host::Monitor::Qemu;
        let name = name.unwrap_or_default();
        let names = unspin_host::Names::default().with(unspin_host::Kind::Name, name);
        VmProcess::new(42, monitor, names, vcpus)
    }

    fn samples(pause: &[(u64, u64)], interrupted: &[(u64, u64)]) -> Samples {
        let (pause, interrupted) = (pause.to_vec(), interrupted.to_vec());
        Samples { pause, interrupted, ..Samples::default() }
    }

    fn document(names: Option<&Names>, dropped: u64, vm: &VmProcess, samples: Samples) -> Document {
        let threads = vm.vcpus.len().max(3);
        let watched = [Watched { vm, threads, samples }];
        Document::new(Duration::from_secs(5), names, dropped, &watched)
    }

    #[test]
    fn functions_are_named_and_counted() {
        let (vm, names) = (vm(Some("web1"), 4), names());
        let samples = samples(
            &[(LOCK, 700), (CALL, 250), (LOCK + 4, 40), (0xffff_ffff_8200_0000, 10)],
            &[(0x5555_0000, 30), (0xffff_ffff_c000_0004, 10)],
        );
        let document = document(Some(&names), 0, &vm, samples);
        let expected = "\
web1 (process 42): 4 vCPUs, 5 s
pause-loop exits: 1000, 200 per second, 99.0 % of them named
┌──────────────────────────────────┬───────┬────────┐
│ where                            │ count │  share │
├──────────────────────────────────┼───────┼────────┤
│ native_queued_spin_lock_slowpath │   740 │ 74.0 % │
│ smp_call_function_many_cond      │   250 │ 25.0 % │
│ 0xffffffff82000000               │    10 │  1.0 % │
└──────────────────────────────────┴───────┴────────┘
interrupted by the host: 40, 8 per second
┌───────────────────┬───────┬────────┐
│ where             │ count │  share │
├───────────────────┼───────┼────────┤
│ user space        │    30 │ 75.0 % │
│ nf_do [nf_tables] │    10 │ 25.0 % │
└───────────────────┴───────┴────────┘
";
        assert_eq!(document.text(80), expected);
        assert!(document.warnings(Some(&names)).is_empty());
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["symbols"], "guest.syms");
        let vm = &json["vms"][0];
        let first = &vm["spinners"][0];
        assert_eq!(first["symbol"], "native_queued_spin_lock_slowpath");
        assert_eq!((&first["count"], &first["share"]), (&740.into(), &0.74.into()));
        assert_eq!(vm["interrupted"][0]["symbol"], "user space");
        assert_eq!((&vm["pause_loop_exits"], &vm["interrupts"]), (&1000.into(), &40.into()));
        assert_eq!((&vm["named_share"], &vm["symbols_fit"]), (&0.99.into(), &true.into()));
    }

    #[test]
    fn without_symbols_there_are_addresses_and_how_to_get_names() {
        let document = document(None, 7, &vm(None, 0), samples(&[], &[(LOCK, 4), (CALL, 1)]));
        let text = document.text(1000);
        assert!(text.starts_with("process 42: 3 threads, including vCPUs, 5 s\n"), "{text}");
        assert!(text.contains("pause-loop exits: none\n"), "{text}");
        assert!(text.contains("│ 0xffffffff81000110 │     4 │ 80.0 % │"), "{text}");
        assert!(text.contains("7 exits are not in the tables"), "{text}");
        assert!(text.ends_with("run cat /proc/kallsyms > FILE, and use --kallsyms FILE\n"));
        assert!(document.warnings(None).is_empty());
        let json = serde_json::to_value(&document).unwrap();
        let vm = &json["vms"][0];
        assert!(vm["symbols_fit"].is_null() && vm["named_share"].is_null(), "{json}");
        assert_eq!(vm["spinners"], serde_json::json!([]));
    }

    #[test]
    fn symbols_of_another_kernel_name_nothing() {
        let vm = vm(Some("web1"), 1);
        let moved = samples(&[(LOCK + 0x60_0000, 5)], &[(LOCK, 1), (0x400, 30)]);
        let names = names();
        let of_file = document(Some(&names), 0, &vm, moved.clone());
        assert!(!of_file.text(80).contains("native_queued"), "{}", of_file.text(80));
        assert!(of_file.text(80).contains("0xffffffff81600110"), "{}", of_file.text(80));
        let warning = of_file.warnings(Some(&names)).concat();
        assert!(warning.starts_with("web1 (process 42) runs another kernel"), "{warning}");
        assert!(
            warning.contains("1 of 6") && warning.contains("guest.syms; addresses change"),
            "{warning}"
        );
        let names = Names::of_series(names.symbols.clone(), "6.12");
        let of_series = document(Some(&names), 0, &vm, moved);
        let warning = of_series.warnings(Some(&names)).concat();
        assert!(warning.contains("kernel 6.12; the guest runs another kernel"), "{warning}");
        assert!(warning.contains("--kallsyms FILE"));
        // A guest that was only in user space shows nothing about its kernel.
        let user = document(Some(&names), 0, &vm, samples(&[], &[(0x400, 30)]));
        assert!(user.warnings(Some(&names)).is_empty());
    }

    #[test]
    fn a_long_table_ends_with_the_rest() {
        let pause: Vec<(u64, u64)> = (0..50).map(|i| (LOCK + 4 * i, 2)).collect();
        let document = document(None, 0, &vm(None, 2), samples(&pause, &[]));
        let text = document.text(80);
        assert_eq!(text.matches("│ 0x").count(), LINES_MAX);
        assert!(text.contains("│ 30 other places    │    60 │ 60.0 % │"), "{text}");
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["vms"][0]["spinners"].as_array().unwrap().len(), 50);
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let evil =
            "ffffffff81000000 T _text\nffffffff81000100 t a\u{1b}[2J\nffffffff81000300 T _etext\n";
        let path = Path::new("x");
        let names = Names::of_file(Symbols::parse(evil, path).unwrap(), path);
        let vm = vm(Some("web\u{1b}[2J"), 1);
        let text = document(Some(&names), 0, &vm, samples(&[(LOCK, 1)], &[])).text(80);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.starts_with("web\\u{1b}[2J (process 42): "), "{text}");
    }
}
