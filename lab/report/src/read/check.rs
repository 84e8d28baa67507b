// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of records, which come from files that anyone may have written: which records are
//! accepted, and which text is displayed.

use unspin_scenario::is_name;
use unspin_scenario::result::{Begin, RunResult, VmResult};
use unspin_text::printable;

/// Largest accepted count. Doubles and JSON represent every integer up to it, and sums over all VMs
/// and vCPUs of a scenario stay within 64 bits. An hour of 64 vCPUs at 5 GHz has 2^50 cycles.
const COUNT_MAX: u64 = 1 << 53;
/// Buckets of a histogram over powers of two of 64-bit values.
const BUCKETS_MAX: usize = 64;

/// The reason why unspin cannot have written the record, if there is one.
pub(crate) fn wrong_in(r: &RunResult) -> Option<String> {
    let run = &r.run;
    for (what, name) in
        [("profile", &run.profile), ("arm", &run.arm.name), ("baseline", &run.baseline)]
    {
        if !is_name(name) {
            return Some(format!("its {what} {name:?} cannot be a name"));
        }
    }
    let vms = run.vm_count();
    if run.vms.len() != r.vm.len() {
        return Some(format!("it is of {vms} VMs and has counts of {}", r.vm.len()));
    }
    if let Some(e) = r.epochs.iter().find(|e| e.vm >= vms) {
        return Some(format!("it has an epoch of VM {}, and {vms} VMs", e.vm));
    }
    if r.window_ns > COUNT_MAX {
        return Some(format!("its window of {} ns is too long to be true", r.window_ns));
    }
    if let Some(group) = run.groups().into_iter().find(|group| !is_name(group)) {
        return Some(format!("its group {group:?} cannot be a name"));
    }
    run.vms.iter().zip(&r.vm).find_map(|(vm, v)| {
        let vcpus = vm.vcpus as usize;
        wrong_in_vm(v, vcpus, if vm.linux.is_some() { [1, 0, 1] } else { [vcpus; 3] })
    })
}

/// `wanted`: the required numbers of units, acquisitions and CPU times.
fn wrong_in_vm(v: &VmResult, vcpus: usize, wanted: [usize; 3]) -> Option<String> {
    let [units, acquisitions, cpu_ns] = wanted.map(Some);
    let lists = [
        ("units", &v.units, units),
        ("acquisitions", &v.acquisitions, acquisitions),
        ("cpu_ns", &v.cpu_ns, cpu_ns),
        ("wait_hist", &v.wait_hist, None),
    ];
    for (name, list, wanted) in lists {
        if wanted.map_or(list.len() > BUCKETS_MAX, |n| list.len() != n) {
            return Some(format!("its {name} has {} numbers, at {vcpus} vCPUs", list.len()));
        }
        let sum = list.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        if sum.is_none_or(|sum| sum > COUNT_MAX) {
            return Some(format!("its {name} are too large to be true"));
        }
    }
    let mut counters = numbers(&v.module);
    counters.extend(numbers(&v.attribution));
    counters.extend(numbers(&v.attribution.and_then(|a| a.factors)));
    let (name, n) = counters.into_iter().find(|(_, n)| *n > COUNT_MAX)?;
    Some(format!("its {name}={n} is too large to be true"))
}

/// The fields of a table of counts; empty if it is missing.
fn numbers<T: serde::Serialize>(table: &Option<T>) -> Vec<(String, u64)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(table) else {
        return Vec::new();
    };
    fields.into_iter().filter_map(|(name, n)| Some((name, n.as_u64()?))).collect()
}

/// Makes all text in a Begin record printable.
pub(crate) fn clean(b: &mut Begin) {
    for text in [
        &mut b.scenario,
        &mut b.scenario_hash,
        &mut b.kernel,
        &mut b.cpu_model,
        &mut b.machine,
        &mut b.title,
    ] {
        *text = printable(text);
    }
    for text in [&mut b.module, &mut b.window_control, &mut b.commit, &mut b.version] {
        *text = text.as_deref().map(printable);
    }
    if let Some(world) = &mut b.world {
        for input in &mut world.inputs {
            for text in [&mut input.name, &mut input.value, &mut input.source] {
                *text = printable(text);
            }
        }
    }
    b.settings = b.settings.iter().map(|(k, v)| (printable(k), fields(&printable(v)))).collect();
}

/// The fields of a Rust structure's debug output, without names of types and braces. Machine sim
/// wrote its costs in this form.
fn fields(text: &str) -> String {
    if !text.contains(" { ") {
        return text.to_string();
    }
    let words: Vec<&str> = text.split(' ').collect();
    let opens = |i: usize| words.get(i) == Some(&"{");
    let mut out: Vec<String> = Vec::new();
    for (i, word) in words.iter().enumerate() {
        match *word {
            "{" | "}" => {}
            "}," => {
                if let Some(last) = out.last_mut() {
                    last.push(',');
                }
            }
            // The name of a type, or of a field with a nested structure.
            _ if opens(i + 1) || opens(i + 2) && word.ends_with(':') => {}
            _ => out.push(word.to_string()),
        }
    }
    out.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_told_by_their_fields() {
        let text = "Costs { a_cycles: 1, group: GroupCosts { b: 2, c: 3 }, d: 4 }";
        assert_eq!(fields(text), "a_cycles: 1, b: 2, c: 3, d: 4");
        assert_eq!(fields("4096"), "4096");
    }
}
