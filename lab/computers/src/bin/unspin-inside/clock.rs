// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU that only reads its clock. It sums up the times between two readings that are too short
//! for an exit: its time in the guest, as the guest sees it.

use crate::exact::{start_state, to_the_end};
use crate::machine::{code_between, says, tsc, Memory};
use crate::watched;
use std::arch::global_asm;
use std::sync::atomic::Ordering;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const MEMORY: usize = 0x4000;
/// As in `exact`, whose start state this guest has, too.
const ENTRY: usize = 0x1000;
/// The sum, in TSC cycles (64 bits); and whether the guest must end.
const SUM: usize = 0x2000;
const STOP: usize = 0x2008;

// 32-bit protected mode. A reading follows the last one within a few cycles; an exit takes thousands.
global_asm!(
    ".pushsection .rodata.unspin_clock, \"a\"",
    ".globl unspin_clock_begin, unspin_clock_end",
    ".code32",
    "unspin_clock_begin:",
    "2: rdtsc",
    "mov ecx, eax",
    "sub ecx, ebx",
    "mov ebx, eax",
    "cmp ecx, 1000",
    "ja 3f",
    "add dword ptr [esi], ecx",
    "adc dword ptr [esi + 4], 0",
    "3: cmp dword ptr [esi + 8], 0",
    "je 2b",
    "out 0x10, al",
    "unspin_clock_end:",
    ".code64",
    ".popsection",
);
extern "C" {
    static unspin_clock_begin: u8;
    static unspin_clock_end: u8;
}

/// Runs for `ms`. With `beside_us`, a thread beside it alternately sleeps and computes for that long.
/// Returns the guest's running time by its own clock, in us.
pub fn run(ms: u64, beside_us: Option<u64>) -> Result<String, String> {
    let memory = Memory::new(MEMORY)?;
    // SAFETY: both are in one section, in this order.
    memory.write(ENTRY, unsafe { code_between(&unspin_clock_begin, &unspin_clock_end) });
    let vm = memory.vm()?;
    let mut vcpu = vm.create_vcpu(0).map_err(says("KVM_CREATE_VCPU"))?;
    start_state(&vcpu, 0, 0, SUM as u32).map_err(says("the vCPU's state"))?;
    let length = Duration::from_millis(ms);
    watched::begin(length * 3 / 2)?;
    let begin = Instant::now();
    let cycles = tsc();
    let stop = memory.word(STOP);
    let ends = spawn(move || {
        sleep(length);
        stop.store(1, Ordering::SeqCst);
    });
    let beside = beside_us.map(Duration::from_micros);
    let rival = beside.map(|time| {
        spawn(move || {
            while stop.load(Ordering::SeqCst) == 0 {
                in_turn(time)
            }
        })
    });
    to_the_end(&mut vcpu)?;
    let (cycles, us) = (u128::from(tsc() - cycles), begin.elapsed().as_micros());
    for thread in [ends].into_iter().chain(rival) {
        thread.join().map_err(|_| "a thread beside the guest died")?;
    }
    let half = |at: usize| u128::from(memory.word(at).load(Ordering::SeqCst));
    Ok(((half(SUM + 4) << 32 | half(SUM)) * us / cycles.max(1)).to_string())
}

/// Alternately sleeps and computes, each for `time`.
fn in_turn(time: Duration) {
    sleep(time);
    let begin = Instant::now();
    while begin.elapsed() < time {}
}
