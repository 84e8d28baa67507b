// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared state of a pCPU.

/// The initial guess: half a tick of a guest that halts in a lock and has its timer set.
const IDLE_GUESS_NS: u64 = 2_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Pcpu {
    pub idle: bool,
    /// The time until which the scheduler's times are updated.
    pub billed_ns: u64,
    pub switches: u64,
    pub idle_since_ns: u64,
    pub idle_ns: u64,
    /// How long the kernel expects it to idle.
    pub idle_guess_ns: u64,
    /// The time until which directed yields hold the lock of its run queue.
    pub queue_locked_ns: u64,
    /// The time of its last balancing, from which the next follows (`host/balance.rs`).
    pub balanced_ns: u64,
    pub balance_ns: u64,
}

impl Pcpu {
    /// A pCPU on which no vCPU has run.
    pub const NEW: Pcpu = Pcpu {
        idle: true,
        billed_ns: 0,
        switches: 0,
        idle_since_ns: 0,
        idle_ns: 0,
        idle_guess_ns: IDLE_GUESS_NS,
        queue_locked_ns: 0,
        balanced_ns: 0,
        balance_ns: 0,
    };
}

impl Pcpu {
    pub fn begin_idling(&mut self, now_ns: u64) {
        self.idle = true;
        self.idle_since_ns = now_ns;
    }

    /// Ends its idling, and returns the time for which it was expected to idle, ns.
    pub fn end_idling(&mut self, now_ns: u64) -> u64 {
        self.idle = false;
        let idle_ns = now_ns - self.idle_since_ns;
        self.idle_ns += idle_ns;
        self.has_idled(idle_ns)
    }

    /// Updates the expected idle time after it idled for `ns`: the mean of idle times, with a decay
    /// of 7/8 (DECAY of Linux's menu governor).
    fn has_idled(&mut self, ns: u64) -> u64 {
        let guess_ns = self.idle_guess_ns;
        self.idle_guess_ns = guess_ns - guess_ns / 8 + ns / 8;
        guess_ns
    }
}
