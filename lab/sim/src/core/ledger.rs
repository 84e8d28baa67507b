// SPDX-License-Identifier: MIT OR Apache-2.0
//! The account of a vCPU: how its time was spent, and how much host time it must pay before its
//! guest continues. Costs are charged here.

/// The use of a vCPU's time. Every nanosecond is in exactly one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// The guest works: steps of its program and the lock operations between them.
    Useful = 0,
    /// It spins, and the vCPU that it waits for is on a pCPU.
    SpinHolderRunning = 1,
    /// It spins, and the vCPU that it waits for is not on a pCPU.
    SpinHolderPreempted = 2,
    /// The host switches to it.
    Switch = 3,
    /// The host handles an exit of the vCPU, or an interrupt during its time.
    Exit = 4,
    /// It sleeps, or has not started.
    Halted = 5,
    /// It wants a pCPU and has none.
    Waiting = 6,
}

pub const CLASSES: usize = 7;
/// The classes on a pCPU come first.
pub const ON_CPU_CLASSES: usize = 5;

/// The purpose of exits and switches (NJIT 2018, chapter 2), as far as it is one of its factors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// A vCPU had nothing to do: halting, waking.
    Idle = 0,
    /// A vCPU was stopped spinning: pause-loop exits.
    Spin = 1,
    /// A sibling's interrupt, sent or received.
    Ipi = 2,
    /// It came to another last-level cache.
    Migration = 3,
    /// Ticks, and preemption by others.
    #[default]
    Other = 4,
}

/// Number of distinguished causes; the rest is the remainder.
const CAUSES: usize = 4;

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The time until which it is accounted.
    pub since_ns: u64,
    /// Host time that it pays before its guest continues: first the switch to it, then exits.
    pub switch_ns: u64,
    pub exit_ns: u64,
    pub switch_cause: Cause,
    /// The parts of `exit_ns` by cause; the rest has other causes.
    owed_ns: [u64; CAUSES],
    /// Its time by class.
    pub time_ns: [u64; CLASSES],
    /// The parts of its time in switches and exits, by cause.
    cause_ns: [u64; CAUSES],
    /// The part of its spinning in user space.
    pub user_spin_ns: u64,
    /// The part of its useful time for data from another last-level cache.
    pub far_ns: u64,
}

impl Ledger {
    pub fn book(&mut self, class: Class, ns: u64) {
        self.time_ns[class as usize] += ns;
    }

    /// Time on a pCPU so far, ns, as of the last accounting.
    pub fn cpu_ns(&self) -> u64 {
        self.time_ns[..ON_CPU_CLASSES].iter().sum()
    }

    /// Time of exits and switches for this cause, ns.
    pub fn cause_ns(&self, cause: Cause) -> u64 {
        self.cause_ns[cause as usize]
    }

    /// Host time that it must pay before its guest continues, ns.
    #[inline]
    pub fn host_ns(&self) -> u64 {
        self.switch_ns + self.exit_ns
    }

    /// Sets the time for handling an exit.
    #[inline]
    pub fn owe_host(&mut self, ns: u64, cause: Cause) {
        self.exit_ns += ns;
        if (cause as usize) < CAUSES {
            self.owed_ns[cause as usize] += ns;
        }
    }

    /// Cancels what it owes for exits.
    pub fn forgive_exit(&mut self) {
        self.exit_ns = 0;
        self.owed_ns = [0; CAUSES];
    }

    /// It was on a pCPU for `ns`. Pays host time first, and returns the rest, which is for its
    /// guest.
    #[inline]
    pub fn pay_host(&mut self, ns: u64) -> u64 {
        // The usual case: it is in its guest.
        if self.host_ns() == 0 {
            return ns;
        }
        let switch = ns.min(self.switch_ns);
        self.switch_ns -= switch;
        self.book(Class::Switch, switch);
        if (self.switch_cause as usize) < CAUSES {
            self.cause_ns[self.switch_cause as usize] += switch;
        }
        let exit = (ns - switch).min(self.exit_ns);
        if exit > 0 {
            self.pay_exit(exit);
        }
        ns - switch - exit
    }

    fn pay_exit(&mut self, ns: u64) {
        self.exit_ns -= ns;
        self.book(Class::Exit, ns);
        let mut left = ns;
        for (owed, paid) in self.owed_ns.iter_mut().zip(&mut self.cause_ns) {
            let now = left.min(*owed);
            *owed -= now;
            *paid += now;
            left -= now;
        }
    }
}
