// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest asks of other parts. It never calls them; the machine handles the effects in order.

use crate::engine::{VcpuId, VmId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The vCPU, asleep, wants to run.
    Wake(VcpuId),
    /// The action of the vCPU ends at another time than before. Used only if another effect comes
    /// first; otherwise its timer is set at once.
    Rearm(VcpuId),
    /// `by` has sent its sibling the interrupt that wakes it.
    Waker { woken: VcpuId, by: VcpuId },
    /// Whether an interrupt waits for the vCPU that its host would see.
    InterruptPending(VcpuId, bool),
    /// An over-threshold wait for a spin-lock is over. `passes`: how often the VM's locks were
    /// passed so far.
    LongWait { vm: VmId, passes: u64 },
    /// A guest has reported an over-threshold wait.
    Reported(VmId),
    /// The scheduler reports that the vCPU sleeps off its pCPU until its turn comes.
    Parks(VcpuId),
}
