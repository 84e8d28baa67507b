// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scenario says of the costs of the host that machine `sim` models.

use serde::{Deserialize, Serialize};

/// Costs in cycles of the host, each in place of the model's own (`[host] model`); `None` leaves that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCosts {
    /// A PLE exit and the entry after it, KVM selecting. What it costs with the module selecting
    /// changes in proportion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_cycles: Option<u32>,
    /// One call of yield_to(), successful or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yield_cycles: Option<u32>,
    /// Of that, how long it holds the locks of both run queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_lock_cycles: Option<u32>,
    /// Switching a pCPU from one vCPU's thread to another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_cycles: Option<u32>,
    /// A timer tick of the host: exit, handler, entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_cycles: Option<u32>,
    /// An interrupt that takes a running vCPU out of its guest and back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_cycles: Option<u32>,
    /// A guest's write to its APIC that sends an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipi_cycles: Option<u32>,
    /// A guest's hypercall that wakes a halted vCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kick_cycles: Option<u32>,
    /// HLT, until the thread is off its pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_cycles: Option<u32>,
    /// From running again after a HLT until the guest goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_cycles: Option<u32>,
    /// From a release of a lock until the waiter whose turn it is goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_cycles: Option<u32>,
    /// The guest's kernel switching from one thread to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_switch_cycles: Option<u32>,
    /// What a vCPU misses that comes to another last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_cycles: Option<u32>,
}

impl HostCosts {
    /// What they are called in a scenario.
    pub const KEYS: [&'static str; 13] = [
        "exit_cycles",
        "yield_cycles",
        "queue_lock_cycles",
        "switch_cycles",
        "tick_cycles",
        "interrupt_cycles",
        "ipi_cycles",
        "kick_cycles",
        "halt_cycles",
        "wake_cycles",
        "handoff_cycles",
        "guest_switch_cycles",
        "migration_cycles",
    ];

    pub(crate) fn is_default(&self) -> bool {
        *self == HostCosts::default()
    }

    /// The cost that is called so in a scenario; `None` where none is.
    pub fn named(&mut self, key: &str) -> Option<&mut Option<u32>> {
        Some(match key {
            "exit_cycles" => &mut self.exit_cycles,
            "yield_cycles" => &mut self.yield_cycles,
            "queue_lock_cycles" => &mut self.queue_lock_cycles,
            "switch_cycles" => &mut self.switch_cycles,
            "tick_cycles" => &mut self.tick_cycles,
            "interrupt_cycles" => &mut self.interrupt_cycles,
            "ipi_cycles" => &mut self.ipi_cycles,
            "kick_cycles" => &mut self.kick_cycles,
            "halt_cycles" => &mut self.halt_cycles,
            "wake_cycles" => &mut self.wake_cycles,
            "handoff_cycles" => &mut self.handoff_cycles,
            "guest_switch_cycles" => &mut self.guest_switch_cycles,
            "migration_cycles" => &mut self.migration_cycles,
            _ => return None,
        })
    }
}
