// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a vCPU of the bench guest.

use serde::{Deserialize, Serialize};
use unspin_guest_abi as abi;
use unspin_scenario::result::RESPONSE_BUCKETS;

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
/// The counters are in guest memory. The guest may write them meanwhile, with plain stores.
pub(crate) unsafe fn sample(
    counters: *const abi::Counters,
    counts_stalls: bool,
    cpu_ns: u64,
) -> VcpuSample {
    // SAFETY: as the caller says; volatile reads of single words are all that is asked of them.
    let read = |p: *const u64| unsafe { p.read_volatile() };
    let all = |first: *const u64, count: usize| {
        // SAFETY: the array has `count` elements.
        (0..count).map(|b| read(unsafe { first.add(b) })).collect::<Vec<u64>>()
    };
    let stalls = if counts_stalls { abi::STALL_BUCKETS } else { 0 };
    // SAFETY: no reference is made; the places are inside the structure.
    unsafe {
        let responses = read(&raw const (*counters).responses);
        let lengths = if responses > 0 { RESPONSE_BUCKETS } else { 0 };
        VcpuSample {
            units: read(&raw const (*counters).units),
            acquisitions: read(&raw const (*counters).acquisitions),
            iterations: read(&raw const (*counters).iterations),
            max_wait_cycles: read(&raw const (*counters).max_wait_cycles),
            wait_hist: all((&raw const (*counters).wait_hist).cast(), abi::WAIT_BUCKETS),
            stalls_free: all((&raw const (*counters).stalls_free).cast(), stalls),
            stalls_held: all((&raw const (*counters).stalls_held).cast(), stalls),
            responses,
            response_cycles: read(&raw const (*counters).response_cycles),
            response_hist: all((&raw const (*counters).response_hist).cast(), lengths),
            cpu_ns,
        }
    }
}
