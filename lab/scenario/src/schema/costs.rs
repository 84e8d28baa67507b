// SPDX-License-Identifier: MIT OR Apache-2.0
//! The costs of the host of machine `sim` that a scenario can set.

use serde::{Deserialize, Serialize};

/// Declares the costs once: as fields, and by their keys in scenarios.
macro_rules! costs {
    ($($(#[$doc:meta])+ $key:ident,)+) => {
        /// Costs in cycles of the host, each in place of the model's own (`[host] model`); `None` leaves that.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct HostCosts {
            $($(#[$doc])+ #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $key: Option<u32>,)+
        }

        impl HostCosts {
            /// Their keys in a scenario.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];

            /// The cost with this key in a scenario, if any.
            pub fn named(&mut self, key: &str) -> Option<&mut Option<u32>> {
                match key {
                    $(stringify!($key) => Some(&mut self.$key),)+
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// A PLE exit and the entry after it with KVM's selection. The cost with the module's selection
    /// changes in proportion.
    exit_cycles,
    /// One call of yield_to(), successful or not.
    yield_cycles,
    /// Of that, how long it holds the locks of both run queues.
    queue_lock_cycles,
    /// Switching a pCPU from one vCPU's thread to another's.
    switch_cycles,
    /// A timer tick of the host: exit, handler, entry.
    tick_cycles,
    /// An interrupt that takes a running vCPU out of its guest and back.
    interrupt_cycles,
    /// A guest's write to its APIC that sends an interrupt.
    ipi_cycles,
    /// A guest's hypercall that wakes a halted vCPU.
    kick_cycles,
    /// HLT, until the thread is off its pCPU.
    halt_cycles,
    /// From running again after a HLT until the guest continues.
    wake_cycles,
    /// From a release of a lock until the next waiter continues.
    handoff_cycles,
    /// The guest's kernel switching from one thread to another.
    guest_switch_cycles,
    /// Cache misses of a vCPU that moves to another last-level cache.
    migration_cycles,
}
