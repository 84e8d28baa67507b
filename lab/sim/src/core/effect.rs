// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest asks of others: it never calls them. The machine sees to each in turn.

use crate::engine::{VcpuId, VmId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The vCPU, asleep, wants to run.
    Wake(VcpuId),
    /// What the vCPU does ends at another time than was known. Only where another effect comes first;
    /// else its timer is set at once.
    Rearm(VcpuId),
    /// `by` has sent its sibling the interrupt that wakes it.
    Waker { woken: VcpuId, by: VcpuId },
    /// Whether an interrupt waits for the vCPU that its host would see.
    InterruptPending(VcpuId, bool),
    /// An over-threshold wait for a spin-lock is over, in a VM whose locks were passed so often.
    LongWait { vm: VmId, passes: u64 },
    /// A guest has reported an over-threshold wait.
    Reported(VmId),
    /// The vCPU sleeps, off its pCPU, until its turn comes; the scheduler says so.
    Parks(VcpuId),
}
