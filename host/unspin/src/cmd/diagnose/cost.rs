// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a VM costs the host: the CPUs that it keeps busy, what its guest accesses, and how many vCPUs it
//! needs.

use serde::Serialize;
use unspin_diagnosis::{right_size, Cause, Did, Group, Kind, RightSize, State};

const SHOWN: usize = 5;

/// Accesses with a smaller share of the vCPUs' time are in --json only.
const SHARE_MIN: f64 = 0.0005;

#[derive(Debug, Serialize)]
pub struct Cost {
    cpus: Cpus,
    /// By time, longest first; `None` is unknown.
    accesses: Option<Vec<OfAccess>>,
    /// The time during which 0, 1, 2, … vCPUs wanted a CPU, up to the largest number that occurred;
    /// `None` is unknown.
    wanting_s: Option<Vec<f64>>,
    right_size: Option<RightSize>,
}

/// CPUs that are busy for it, on average.
#[derive(Debug, Serialize)]
struct Cpus {
    /// Used by its vCPUs, inside and outside the guest; `None` is unknown.
    vcpus: Option<f64>,
    /// The part inside the guest; `None` is unknown.
    guest: Option<f64>,
    /// Used by its VMM's threads that run no vCPU; `None` is unknown.
    monitor: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OfAccess {
    kind: Kind,
    /// The lowest and the highest address that was accessed; `None` for the group of accesses that are not
    /// distinguished.
    first: Option<u64>,
    last: Option<u64>,
    device: Option<&'static str>,
    exits: u64,
    /// The number of accesses that the VMM served.
    to_vmm: u64,
    /// CPU time of the vCPUs from these exits to the following entries.
    cpu_s: f64,
    #[serde(skip)]
    text: String,
}

impl Cost {
    pub fn new(did: &Did) -> Cost {
        let of_access = |group: &Group| OfAccess {
            kind: group.kind,
            first: group.range.map(|(first, _)| first),
            last: group.range.map(|(_, last)| last),
            device: group.device.map(|device| device.name),
            exits: group.accessed.count,
            to_vmm: group.accessed.visits,
            cpu_s: group.accessed.ns as f64 / 1e9,
            text: text(did, group),
        };
        let wanting = |ns: &[u64]| {
            let length = ns.iter().rposition(|ns| *ns > 0).map_or(0, |last| last + 1);
            ns[..length].iter().map(|ns| *ns as f64 / 1e9).collect()
        };
        let is_known = did.vcpus > 0 && did.unseen == 0;
        Cost {
            cpus: Cpus {
                vcpus: is_known.then(|| did.cpus_of_vcpus()),
                guest: (is_known && !did.is_unseen()).then(|| did.cpus(did.times[State::Guest])),
                monitor: did.monitor_ns.map(|ns| did.cpus(ns)),
            },
            accesses: did.accesses.as_ref().map(|all| all.iter().map(of_access).collect()),
            wanting_s: (!did.wanting_ns.is_empty()).then(|| wanting(&did.wanting_ns)),
            right_size: right_size(did),
        }
    }

    /// A paragraph per fact, for people.
    pub fn lines(&self) -> Vec<String> {
        let Cpus { vcpus, guest, monitor } = self.cpus;
        let others = match monitor {
            Some(monitor) => format!("{monitor:.2} by its VMM's other threads"),
            None => "its VMM's other threads are not counted".to_string(),
        };
        let busy = match (vcpus, guest) {
            (Some(vcpus), Some(guest)) => {
                let rest = (vcpus - guest).max(0.0);
                let text =
                    format!("{guest:.2} in the guest, {rest:.2} by its vCPUs out of the guest");
                Some((vcpus, text))
            }
            (Some(vcpus), None) => {
                Some((vcpus, format!("{vcpus:.2} by its vCPUs, in the guest or out of it")))
            }
            (None, _) => None,
        };
        let busy = busy.map(|(vcpus, of_vcpus)| {
            let busy = vcpus + monitor.unwrap_or(0.0);
            format!("It keeps {busy:.2} CPUs busy: {of_vcpus}, {others}.")
        });
        let mut lines = vec![busy.unwrap_or("How many CPUs it keeps busy is unknown.".into())];
        lines.extend(self.accesses.iter().flatten().take(SHOWN).map(|of| of.text.clone()));
        lines.retain(|line| !line.is_empty());
        lines
    }
}

/// Empty if the accesses take hardly any time.
fn text(did: &Did, group: &Group) -> String {
    let of = group.accessed;
    let share = of.ns as f64 / (did.vcpus.max(1) as f64 * did.window_ns.max(1) as f64);
    if share < SHARE_MIN {
        return String::new();
    }
    let per_s = of.count as f64 * 1e9 / did.window_ns.max(1) as f64;
    let by = match of.visits as f64 / of.count.max(1) as f64 {
        visits if visits > 0.5 => ", served by the VMM",
        _ => "",
    };
    let percent = 100.0 * share;
    format!("{}: {per_s:.0} exits per s, {percent:.1} % of the vCPUs' time{by}", group.title())
}

/// The accesses that take most of a cause's time, to append to the cause's name.
pub fn mostly(did: &Did, cause: Cause) -> String {
    let is_of_cause = |group: &&Group| match cause {
        Cause::Device => group.kind != Kind::Msr,
        Cause::Msr => group.kind == Kind::Msr,
        _ => false,
    };
    let most = did.accesses.iter().flatten().find(is_of_cause);
    most.map_or(String::new(), |group| format!(", mostly {}", group.title()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};
    use unspin_diagnosis::{groups, Access, Accessed};

    const S: u64 = 1_000_000_000;

    fn did() -> Did {
        let mut did = Did { vcpus: 2, window_ns: 10 * S, ..Did::default() };
        did.times[State::Guest] = 3 * S;
        did.times[State::ExitIo] = 2 * S;
        did.times[State::Halted] = 15 * S;
        did
    }

    #[test]
    fn what_is_unknown_is_null() {
        let cost = Cost::new(&did());
        let value = serde_json::to_value(&cost).unwrap();
        let cpus = json!({"vcpus": 0.5, "guest": 0.3, "monitor": null});
        assert_eq!(value["cpus"], cpus);
        for key in ["accesses", "wanting_s", "right_size"] {
            assert_eq!(value[key], Value::Null, "{key}");
        }
        let lines = cost.lines();
        let busy =
            "It keeps 0.50 CPUs busy: 0.30 in the guest, 0.20 by its vCPUs out of the guest, its \
                    VMM's other threads are not counted.";
        assert_eq!(lines, [busy]);
        assert_eq!(mostly(&did(), Cause::Device), "");
        let mut unseen = Did { vcpus: 1, window_ns: S, ..Did::default() };
        unseen.times[State::Vmm] = S / 2;
        assert_eq!(serde_json::to_value(Cost::new(&unseen)).unwrap()["cpus"]["guest"], Value::Null);
    }

    #[test]
    fn what_is_known_is_shown() {
        let mut did = did();
        did.monitor_ns = Some(S);
        did.wanting_ns = vec![5 * S, 5 * S, 0, 0];
        let access = |kind, address, count, ns| {
            let accessed = Accessed { count, ns, visits: count };
            (Access { kind, address }, accessed)
        };
        did.accesses = Some(groups([
            access(Kind::Port, Some(0x70), 1000, S),
            access(Kind::Port, Some(0x71), 1000, S),
            access(Kind::Msr, Some(0x6e0), 10, 10),
            access(Kind::Mmio, None, 10, 5),
        ]));
        let cost = Cost::new(&did);
        let value = serde_json::to_value(&cost).unwrap();
        let rtc = json!({
            "kind": "port", "first": 0x70, "last": 0x71, "device": "real-time clock (RTC)",
            "exits": 2000, "to_vmm": 2000, "cpu_s": 2.0,
        });
        assert_eq!(value["accesses"][0], rtc);
        assert_eq!(value["accesses"][2]["first"], Value::Null);
        assert_eq!(value["wanting_s"], json!([5.0, 5.0]));
        assert_eq!(value["right_size"]["vcpus"], 1);
        assert_eq!(value["cpus"]["monitor"], 0.1);
        let lines = cost.lines();
        assert!(
            lines[0].contains("0.60 CPUs") && lines[0].contains("0.10 by its VMM's"),
            "{lines:?}"
        );
        let rtc =
            "ports 0x70-0x71: real-time clock (RTC): 200 exits per s, 10.0 % of the vCPUs' time, \
                   served by the VMM";
        assert_eq!(lines[1..], [rtc]);
        assert!(mostly(&did, Cause::Device).contains("RTC"));
        assert!(mostly(&did, Cause::Msr).contains("TSC deadline"));
        assert_eq!(mostly(&did, Cause::Ipi), "");
    }
}
