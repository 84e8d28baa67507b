// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that computes with its interrupts on or off, beside a thread that wants the same CPU.
//! Checks whether the host's timer takes the CPU from the guest.

use crate::exact;
use crate::machine::{pin, says};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CPU: u32 = 0;
/// Ten ticks of 250 Hz at 200 MHz, of two instructions a turn.
const TURNS: u32 = 4_000_000;
/// Time for the thread to begin.
const BEGIN: Duration = Duration::from_millis(20);
const RFLAGS_IF: u64 = 1 << 9;

/// With interrupts on; off when the guest is entered first; or turned off by its first instruction.
/// Returns how often an interrupt of the host caused an exit of the guest, and the longest time
/// that the thread waited for the CPU, in microseconds.
pub fn beside(interrupts: &str) -> Result<String, String> {
    if !["on", "off", "turned-off"].contains(&interrupts) {
        return Err(format!("{interrupts} is none of on, off and turned-off"));
    }
    let (_vm, mut vcpu) = exact::computing(interrupts == "turned-off", TURNS)?;
    if interrupts == "off" {
        let mut regs = vcpu.get_regs().map_err(says("KVM_GET_REGS"))?;
        regs.rflags &= !RFLAGS_IF;
        vcpu.set_regs(&regs).map_err(says("KVM_SET_REGS"))?;
    }
    pin(CPU)?;
    let (done, longest_us) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        let rival = threads.spawn(|| want_the_cpu(&done, &longest_us));
        std::thread::sleep(BEGIN);
        let before = interrupt_exits();
        longest_us.store(0, Ordering::SeqCst);
        let ended = exact::to_the_end(&mut vcpu);
        done.store(true, Ordering::SeqCst);
        let exits = interrupt_exits();
        rival.join().map_err(|_| "the thread beside the guest panicked".to_string())??;
        ended?;
        Ok(format!("{} {}", exits? - before?, longest_us.load(Ordering::SeqCst)))
    })
}

/// Computes until `done`. The last wait counts too: if the guest keeps its CPU, it is the only wait.
fn want_the_cpu(done: &AtomicBool, longest_us: &AtomicU64) -> Result<(), String> {
    pin(CPU)?;
    let mut last = Instant::now();
    loop {
        let end = done.load(Ordering::SeqCst);
        let now = Instant::now();
        longest_us.fetch_max((now - last).as_micros() as u64, Ordering::SeqCst);
        if end {
            return Ok(());
        }
        last = now;
    }
}

/// Exits of all VMs at interrupts, as KVM counts them.
fn interrupt_exits() -> Result<u64, String> {
    let file = "/sys/kernel/debug/kvm/irq_exits";
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    text.trim().parse().map_err(|e| format!("{file}: {e}"))
}
