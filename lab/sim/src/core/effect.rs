// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest requests of other parts. It never calls them; the machine handles the effects in
//! order.

use crate::engine::{VcpuId, VmId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The vCPU, asleep, wants to run.
    Wake(VcpuId),
    /// The end of the vCPU's action has changed. Used only if another effect comes first; otherwise
    /// its timer is set immediately.
    Rearm(VcpuId),
    /// `by` has sent its sibling the interrupt that wakes it.
    Waker { woken: VcpuId, by: VcpuId },
    /// Whether an interrupt that its host would see is pending for the vCPU.
    InterruptPending(VcpuId, bool),
    /// An over-threshold wait for a spin-lock is over. `passes`: number of times that the VM's
    /// locks changed hands so far.
    LongWait { vm: VmId, passes: u64 },
    /// A guest has reported an over-threshold wait.
    Reported(VmId),
    /// The scheduler reports that the vCPU is parked until its turn comes.
    Parks(VcpuId),
}
