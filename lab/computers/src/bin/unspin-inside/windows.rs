// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds a vCPU's window in the processor only from exits, with spins of growing length: the first
//! length that exits is above the window, and the one before is below. The length of a spin is
//! measured by the TSC, which is also the clock of the window.
//!
//! For a KVM whose own window does not grow (`ple_window_grow=0`), because reading a window causes
//! exits.

use crate::machine::{shell, wait, Memory, PauseExits};
use crate::spinner::{self, Spinner, FOR_EVER};

/// Tested lengths, in TSC cycles. They are far from the windows that tests set, because with several
/// CPUs the emulator's clock is coarse.
const LENGTHS: [u32; 6] = [3000, 6000, 11_000, 24_000, 44_000, 90_000];
/// Spins per length. One of them may lose its exit to a timer tick.
const SPINS: u32 = 8;
/// The running vCPU has its own CPU; the sleeping one runs while the host waits for it.
const CPUS: [u32; 2] = [1, 0];

struct Seen {
    spinner: Spinner,
    exits: PauseExits,
}

impl Seen {
    fn new(vm: &kvm_ioctls::VmFd, memory: Memory, index: usize) -> Result<Seen, String> {
        let spinner = Spinner::new(vm, memory, index, CPUS[index])?;
        Ok(Seen { exits: PauseExits::of(spinner.tid)?, spinner })
    }

    /// Exits in `SPINS` spins of this length, for a vCPU that always runs.
    fn running(&self, length: u32) -> Result<u64, String> {
        let words = self.spinner.words;
        let exits = self.exits.count()?;
        words.set_long(SPINS, length);
        wait("the running vCPU's spins", || !words.is_long_due())?;
        let made = words.made();
        wait("the end of the last", || words.made().wrapping_sub(made) >= 2)?;
        Ok(self.exits.count()? - exits)
    }

    /// The same for a vCPU that is outside KVM_RUN in between.
    fn sleeping(&self, length: u32) -> Result<u64, String> {
        let exits = self.exits.count()?;
        self.spinner.words.set_long(SPINS, length);
        self.spinner.start(SPINS)?;
        self.spinner.finish()?;
        Ok(self.exits.count()? - exits)
    }
}

/// The window, as the tested lengths below and above it.
fn reading(exits_of: impl Fn(u32) -> Result<u64, String>) -> Result<String, String> {
    let mut longest = 0;
    for length in LENGTHS {
        let exits = exits_of(length)?;
        if exits * 4 >= u64::from(SPINS) * 3 {
            return Ok(format!("{longest}-{length}"));
        }
        if exits * 4 > u64::from(SPINS) {
            return Err(format!("{exits} exits of {SPINS} spins of {length} cycles"));
        }
        longest = length;
    }
    Ok(format!("{longest}-"))
}

/// Reads the windows of a running and of a sleeping vCPU, runs `line` in a shell, and reads both
/// again. Meanwhile the first vCPU makes short spins, and the second stays outside KVM_RUN.
pub fn around(line: &str) -> Result<String, String> {
    let memory = Memory::new(spinner::MEMORY)?;
    spinner::load(memory);
    let vm = memory.vm()?;
    let running = Seen::new(&vm, memory, 0)?;
    let sleeping = Seen::new(&vm, memory, 1)?;
    running.spinner.start(FOR_EVER)?;
    let read = || -> Result<[String; 2], String> {
        Ok([
            reading(|length| running.running(length))?,
            reading(|length| sleeping.sleeping(length))?,
        ])
    };
    let before = read()?;
    shell(line)?;
    let after = read()?;
    running.spinner.stop()?;
    Ok(format!("running {} then {}, sleeping {} then {}", before[0], after[0], before[1], after[1]))
}
