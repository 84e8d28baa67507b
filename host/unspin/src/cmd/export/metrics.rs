// SPDX-License-Identifier: MIT OR Apache-2.0
//! The families of metrics; docs/export.md lists them. Code addresses of guests are not exported,
//! because they reveal what guests do.

use super::collect::{Collector, OfVcpu, OfVm};
use super::text::{seconds, Format, Kind, Text};
use crate::cmd::schedule::{Document, Taken};
use crate::cmd::written::{read, Written, SCHEDULED};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unspin_diagnosis::{Cause, State, Waits};
use unspin_host::{Kind as NameKind, Name};
use unspin_uapi::{Counter, Value};

/// Longest name of a VM in a label, in characters.
const NAME_MAX: usize = 128;

/// Metrics of the exporter itself.
#[derive(Default)]
pub struct Own {
    pub scrapes: AtomicU64,
    pub failures: AtomicU64,
    /// Number of connections closed without a response.
    pub cut: AtomicU64,
}

pub fn text(collector: &Collector, own: &Own, took: Duration, format: Format) -> String {
    let mut text = Text::new(format);
    of_vcpus(collector, &mut text);
    of_waits(collector, &mut text);
    text.family("unspin_vm", Kind::Info, "VMs that run");
    for vm in collector.vms() {
        let pid = vm.process.pid.to_string();
        let uuid = vm.process.uuid().unwrap_or_default();
        let monitor = vm.process.monitor.name();
        let names: Vec<(&str, String)> = vm.process.names.iter().filter_map(of_name).collect();
        let mut labels =
            vec![("vm", vm.label.as_str()), ("pid", &pid), ("uuid", &uuid), ("monitor", monitor)];
        labels.extend(names.iter().map(|(key, name)| (*key, name.as_str())));
        text.sample(&labels, 1);
    }
    of_module(collector, &mut text);
    of_scheduler(collector, read(Path::new(SCHEDULED)), &mut text);
    of_exporter(collector, own, took, &mut text);
    text.end()
}

/// The label for a kind of name other than the UUID.
fn of_name((kind, name): (NameKind, &Name)) -> Option<(&'static str, String)> {
    (kind != NameKind::Uuid).then(|| (kind.key(), name.short(NAME_MAX)))
}

fn of_vcpus(collector: &Collector, text: &mut Text) {
    let vcpus = || collector.vms().flat_map(|vm| vm.vcpus.values().map(move |vcpu| (vm, vcpu)));
    let labels = |(vm, vcpu): (&OfVm, &OfVcpu)| (vm.label.clone(), vcpu.number.to_string());
    let help =
        "Seconds that the vCPU spent in a state, since it is watched; without states that are \
                unknown";
    text.family("unspin_vcpu_seconds", Kind::Counter, help);
    for of in vcpus() {
        let (vm, vcpu) = labels(of);
        for state in State::ALL.iter().filter(|state| of.1.knows(**state)) {
            let labels = [("vm", vm.as_str()), ("vcpu", &vcpu), ("state", state.name())];
            text.sample(&labels, seconds(of.1.times[*state]));
        }
    }
    let help = "Seconds that the vCPU lost to a cause, since it is watched; without times for \
                which the loss is unknown";
    text.family("unspin_vcpu_lost_seconds", Kind::Counter, help);
    for of in vcpus() {
        let (vm, vcpu) = labels(of);
        for (cause, lost) in Cause::ALL.iter().zip(&of.1.lost) {
            if let Some(lost) = lost {
                let labels = [("vm", vm.as_str()), ("vcpu", &vcpu), ("cause", cause.name())];
                text.sample(&labels, format_args!("{lost:.9}"));
            }
        }
    }
}

/// Families of waits in the terms of other tools, in the order of [`Waits::ns`].
const WAITS: [(&str, &str); 3] = [
    ("ready", "Seconds that the vCPU could run and had no CPU (%RDY of esxtop)"),
    ("costop", "Seconds of these in which a sibling vCPU was on a CPU (%CSTP of esxtop)"),
    ("limit", "Seconds of these in which a quota of its cgroup was used up (%MLMTD of esxtop)"),
];

fn of_waits(collector: &Collector, text: &mut Text) {
    for (index, (name, help)) in WAITS.iter().enumerate() {
        text.family(&format!("unspin_vcpu_{name}_seconds"), Kind::Counter, help);
        for vm in collector.vms() {
            for vcpu in vm.vcpus.values() {
                let waits = Waits::of(&vcpu.times, vcpu.costop, vcpu.tells_throttled);
                if let Some(ns) = waits.ns()[index] {
                    let number = vcpu.number.to_string();
                    text.sample(&[("vm", &vm.label), ("vcpu", &number)], seconds(ns));
                }
            }
        }
    }
}

fn of_module(collector: &Collector, text: &mut Text) {
    let counters = Counter::ALL.iter().map(|of| (of.file(), Kind::Counter, of.meaning()));
    let values = Value::ALL.iter().map(|of| {
        let kind = match of.kind() {
            unspin_uapi::Kind::COUNT => Kind::Counter,
            unspin_uapi::Kind::LAST => Kind::Gauge,
        };
        (of.file(), kind, of.meaning())
    });
    for (file, kind, meaning) in counters.chain(values) {
        text.family(&format!("unspin_vm_{file}"), kind, meaning);
        for vm in collector.vms() {
            let number = || -> Option<u64> {
                collector.facts()?.of_module(vm.process.pid, file)?.parse().ok()
            };
            if let Some(number) = number() {
                text.sample(&[("vm", &vm.label)], number);
            }
        }
    }
}

/// What `unspin schedule` does with VMs, if it runs.
fn of_scheduler(collector: &Collector, written: Option<Written<Document>>, text: &mut Text) {
    let Some(Written { document, .. }) = written else { return };
    let vms = || collector.vms().map(|vm| (vm.label.as_str(), vm.process.pid));
    let taken = |pid| document.vms.iter().find(|taken| taken.process == pid);
    let taken_ones = || vms().filter_map(|(label, pid)| Some((label, taken(pid)?)));
    let help = "1 if unspin schedule has taken the VM, 0 if it was refused";
    text.family("unspin_vm_scheduled", Kind::Gauge, help);
    for (label, pid) in vms() {
        let is_refused = document.refused.iter().any(|refused| refused.process == pid);
        let is_taken = taken(pid).is_some();
        if is_taken || is_refused {
            text.sample(&[("vm", label)], u8::from(is_taken));
        }
    }
    let help = "The VM's share of the scheduler's CPUs when all VMs want them, 0 to 1";
    text.family("unspin_vm_schedule_share", Kind::Gauge, help);
    for (label, taken) in taken_ones() {
        text.sample(&[("vm", label)], taken.share / 100.0);
    }
    type Time = (&'static str, &'static str, fn(&Taken) -> u64);
    let times: [Time; 3] = [
        ("ran", "CPU seconds of all threads of the VM", |vm| vm.ran_ns),
        ("hole", "Seconds of these in holes of other VMs' turns", |vm| vm.filled_ns),
        ("waited", "Seconds that vCPUs of the VM were ready without a CPU", |vm| vm.waited_ns),
    ];
    for (name, help, time) in times {
        text.family(&format!("unspin_vm_schedule_{name}_seconds"), Kind::Counter, help);
        for (label, taken) in taken_ones() {
            text.sample(&[("vm", label)], seconds(time(taken)));
        }
    }
    let counts: [Time; 2] = [
        ("turns", "Turns in which vCPUs of the VM ran together", |vm| vm.turns),
        ("ple_exits", "Pause-loop exits of the VM", |vm| vm.ple_exits),
    ];
    for (name, help, count) in counts {
        text.family(&format!("unspin_vm_schedule_{name}"), Kind::Counter, help);
        for (label, taken) in taken_ones() {
            text.sample(&[("vm", label)], count(taken));
        }
    }
    let help = "Whether the VM's vCPUs run together";
    text.family("unspin_vm_schedule_gang", Kind::Info, help);
    for (label, taken) in taken_ones() {
        text.sample(&[("vm", label), ("gang", &taken.gang)], 1);
    }
    let help = "Why unspin schedule has refused the VM";
    text.family("unspin_vm_schedule_refused", Kind::Info, help);
    for (label, pid) in vms() {
        if let Some(refused) = document.refused.iter().find(|refused| refused.process == pid) {
            text.sample(&[("vm", label), ("why", &refused.why)], 1);
        }
    }
    let help = "CPUs of unspin schedule on which the VM may run although it is not taken";
    text.family("unspin_vm_schedule_outside", Kind::Info, help);
    for (label, pid) in vms() {
        if let Some(outside) = document.outside.iter().find(|outside| outside.process == pid) {
            text.sample(&[("vm", label), ("cpus", &outside.cpus)], 1);
        }
    }
    text.family(
        "unspin_schedule_cpus_left",
        Kind::Info,
        "CPUs that it has left to tasks of the host",
    );
    text.sample(&[("cpus", &document.left)], 1);
}

fn of_exporter(collector: &Collector, own: &Own, took: Duration, text: &mut Text) {
    text.family("unspin_exporter_build", Kind::Info, "The exporter's version");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family("unspin_exporter_module_loaded", Kind::Gauge, "1 if the module is loaded, else 0");
    text.sample(&[], u8::from(collector.facts().is_some_and(|facts| facts.has_module())));
    text.family(
        "unspin_exporter_vcpus",
        Kind::Gauge,
        "vCPUs that are exported, and vCPUs that are not",
    );
    text.sample(&[("exported", "true")], collector.exported());
    text.sample(&[("exported", "false")], collector.left_out());
    let help = "VMs that are not watched, because the limit is reached";
    text.family("unspin_exporter_unwatched_vms", Kind::Gauge, help);
    text.sample(&[], collector.unwatched());
    let counters = [
        (
            "left_out_vcpus",
            collector.left_out_total,
            "vCPUs that were not exported, because the limit was reached",
        ),
        ("scrapes", own.scrapes.load(Ordering::Relaxed), "Requests for metrics"),
        (
            "failures",
            own.failures.load(Ordering::Relaxed),
            "Requests and scans for VMs that failed",
        ),
        (
            "cut_connections",
            own.cut.load(Ordering::Relaxed),
            "Connections closed without a response",
        ),
    ];
    for (name, count, help) in counters {
        text.family(&format!("unspin_exporter_{name}"), Kind::Counter, help);
        text.sample(&[], count);
    }
    text.family(
        "unspin_exporter_collect_seconds",
        Kind::Gauge,
        "Duration of the last collection in seconds",
    );
    text.sample(&[], took.as_secs_f64());
    text.family("process_cpu_seconds", Kind::Counter, "CPU seconds of the exporter");
    text.sample(&[], cpu_seconds());
}

fn cpu_seconds() -> f64 {
    // SAFETY: all zeroes are a valid value, and the call writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::export::collect::tests::collector;
    use crate::watch::Synthetic;
    use std::collections::BTreeSet;

    #[test]
    fn families_are_in_one_piece_and_no_series_is_there_twice() {
        let mut collector = collector(12, 3, 24);
        collector.collect().unwrap();
        collector.collect().unwrap();
        let text = text(&collector, &Own::default(), Duration::ZERO, Format::OpenMetrics);
        let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
        let mut family = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap();
                assert!(families.insert(family), "{family}");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} in {family}");
                assert!(series.insert(line.rsplit_once(' ').unwrap().0), "{line}");
            }
        }
        assert!(text.ends_with("\n# EOF\n"));
        let count = |start: &str| series.iter().filter(|name| name.starts_with(start)).count();
        assert_eq!(count("unspin_vcpu_seconds_total{"), 24 * State::COUNT);
        assert!(text.contains("unspin_exporter_vcpus{exported=\"false\"} 12\n"), "{text}");
        assert!(text.contains("unspin_exporter_left_out_vcpus_total 12\n"), "{text}");
        assert_eq!(count("unspin_vm_ple_exits_total{"), 12);
        for waits in ["ready", "costop", "limit"] {
            assert_eq!(count(&format!("unspin_vcpu_{waits}_seconds_total{{")), 24, "{waits}");
        }
        assert!(text.contains("vm=\"calm \\\\u{1b}[31m\\\"x\\\"\\\\\\\\\\\\n\\\\xff1\""), "{text}");
    }

    /// Of a vCPU that was not observed nothing is known. Throttling is unknown on some kernels.
    #[test]
    fn what_is_unknown_has_no_series() {
        for (is_seen, tells_throttled) in [(true, true), (true, false), (false, true)] {
            let mut sample = Synthetic::new(1, 1).at(Duration::from_secs(10));
            for seen in sample.seen.values_mut() {
                if !is_seen {
                    (seen.times, seen.exits) = Default::default();
                }
                seen.tells_throttled = tells_throttled;
            }
            let mut collector = collector(0, 1, 4);
            collector.take(sample);
            let text = text(&collector, &Own::default(), Duration::ZERO, Format::OpenMetrics);
            let has = |series: &str| text.lines().any(|line| line.starts_with(series));
            assert_eq!(has("unspin_vcpu_seconds_total{"), is_seen, "{text}");
            assert_eq!(has("unspin_vcpu_lost_seconds_total{"), is_seen, "{text}");
            assert_eq!(has("unspin_vcpu_ready_seconds_total{"), is_seen, "{text}");
            assert_eq!(has("unspin_vcpu_costop_seconds_total{"), is_seen, "{text}");
            let is_told = is_seen && tells_throttled;
            assert_eq!(text.contains("state=\"throttled\""), is_told, "{text}");
            assert_eq!(has("unspin_vcpu_limit_seconds_total{"), is_told, "{text}");
        }
    }

    /// All metrics that dashboards and rules of contrib/ use exist. This needs no Prometheus.
    #[test]
    fn contrib_asks_for_what_is_exported() {
        let mut collector = collector(2, 2, 4);
        collector.collect().unwrap();
        let text = text(&collector, &Own::default(), Duration::ZERO, Format::Prometheus);
        let types: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for contrib in [
            include_str!("../../../../../contrib/grafana/unspin.json"),
            include_str!("../../../../../contrib/prometheus/unspin.rules.yml"),
        ] {
            let words = contrib.split(|c| !is_word(c));
            let asked: BTreeSet<&str> = words.filter(|w| w.starts_with("unspin_")).collect();
            assert!(asked.len() > 3, "{asked:?}");
            let missing: Vec<&&str> = asked.iter().filter(|w| !types.contains(**w)).collect();
            assert!(missing.is_empty(), "{missing:?} of {types:?}");
        }
    }
}
