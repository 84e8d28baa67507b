// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a vCPU of the bench guest.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use unspin_guest_abi as abi;
use unspin_scenario::result::{Responses, Stalls, VmResult, RESPONSE_BUCKETS};

/// One vCPU's counts since it started, and its thread's CPU time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuSample {
    pub units: u64,
    pub acquisitions: u64,
    pub iterations: u64,
    pub max_wait_cycles: u64,
    pub wait_hist: Vec<u64>,
    /// Waits that reached 2^b turns of their loop, by whether the lock was free at that moment;
    /// empty if they are not counted.
    pub stalls_free: Vec<u64>,
    pub stalls_held: Vec<u64>,
    /// Passes that a timer started, and the TSC cycles from the timer to their end: the sum, and by
    /// bucket; empty if there were none.
    pub responses: u64,
    pub response_cycles: u64,
    pub response_hist: Vec<u64>,
    pub cpu_ns: u64,
}

/// Reads the counters of a vCPU and stores its CPU time with them.
///
/// # Safety
///
/// The counters are in the VM's memory, aligned. The guest may write them meanwhile, with plain stores of single
/// words.
pub unsafe fn sample(counters: *mut abi::Counters, counts_stalls: bool, cpu_ns: u64) -> VcpuSample {
    // SAFETY: as the caller says.
    let read = |word: *mut u64| unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed);
    let all = |first: *mut u64, count: usize| {
        // SAFETY: the array has `count` elements.
        (0..count).map(|b| read(unsafe { first.add(b) })).collect::<Vec<u64>>()
    };
    let stalls = if counts_stalls { abi::STALL_BUCKETS } else { 0 };
    // SAFETY: no reference is made; the places are inside the structure.
    unsafe {
        let responses = read(&raw mut (*counters).responses);
        let lengths = if responses > 0 { RESPONSE_BUCKETS } else { 0 };
        VcpuSample {
            units: read(&raw mut (*counters).units),
            acquisitions: read(&raw mut (*counters).acquisitions),
            iterations: read(&raw mut (*counters).iterations),
            max_wait_cycles: read(&raw mut (*counters).max_wait_cycles),
            wait_hist: all((&raw mut (*counters).wait_hist).cast(), abi::WAIT_BUCKETS),
            stalls_free: all((&raw mut (*counters).stalls_free).cast(), stalls),
            stalls_held: all((&raw mut (*counters).stalls_held).cast(), stalls),
            responses,
            response_cycles: read(&raw mut (*counters).response_cycles),
            response_hist: all((&raw mut (*counters).response_hist).cast(), lengths),
            cpu_ns,
        }
    }
}

/// What a VM did from one sample of its vCPUs to another.
pub fn vm_result(first: &[VcpuSample], second: &[VcpuSample]) -> VmResult {
    let per_vcpu = |count: fn(&VcpuSample) -> u64| {
        let pairs = first.iter().zip(second);
        pairs.map(|(a, b)| count(b).saturating_sub(count(a))).collect::<Vec<u64>>()
    };
    // The histogram of all vCPUs together. A vCPU without events may have none.
    let merged = |hist: fn(&VcpuSample) -> &[u64]| {
        let buckets = second.iter().map(|vcpu| hist(vcpu).len()).max().unwrap_or(0);
        let count = |v: &VcpuSample, b: usize| hist(v).get(b).copied().unwrap_or(0);
        let sum = |at: &[VcpuSample], b: usize| at.iter().map(|v| count(v, b)).sum::<u64>();
        (0..buckets).map(|b| sum(second, b) - sum(first, b)).collect::<Vec<u64>>()
    };
    let responses = Responses {
        count: per_vcpu(|v| v.responses).iter().sum(),
        cycles: per_vcpu(|v| v.response_cycles).iter().sum(),
        hist: merged(|v| &v.response_hist),
    };
    let stalls = Stalls { free: merged(|v| &v.stalls_free), held: merged(|v| &v.stalls_held) };
    VmResult {
        units: per_vcpu(|v| v.units),
        acquisitions: per_vcpu(|v| v.acquisitions),
        cpu_ns: per_vcpu(|v| v.cpu_ns),
        wait_hist: merged(|v| &v.wait_hist),
        stalls: (!stalls.free.is_empty()).then_some(stalls),
        max_wait_cycles: second.iter().map(|v| v.max_wait_cycles).max().unwrap_or(0),
        responses: (!responses.hist.is_empty()).then_some(responses),
        ..VmResult::default()
    }
}
