// SPDX-License-Identifier: MIT OR Apache-2.0
//! The costs of the host of machine `sim` that a scenario can set.

use serde::{Deserialize, Serialize};

/// Declares the costs once: as fields, and by their keys in scenarios. `schema/keys/host.rs` describes
/// each.
macro_rules! costs {
    ($($key:ident,)+) => {
        /// Costs in cycles of the host, each in place of the model's own (`[host] model`); `None` leaves that.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct HostCosts {
            $(#[serde(default, skip_serializing_if = "Option::is_none")]
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
    exit_cycles, yield_cycles, queue_lock_cycles, switch_cycles, tick_cycles, interrupt_cycles,
    ipi_cycles, kick_cycles, halt_cycles, wake_cycles, handoff_cycles, guest_switch_cycles,
    migration_cycles,
}
