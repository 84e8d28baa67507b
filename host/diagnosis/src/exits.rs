// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state to which an exit's reason leads. Reasons that are not listed lead to
//! [`State::ExitOther`].

use crate::State;
use State::*;

/// Basic exit reasons of Intel's processors (arch/x86/include/uapi/asm/vmx.h of the kernel).
pub const VMX: &[(u16, State)] = &[
    (1, ExitInterrupt),
    (7, ExitInterrupt), // the guest can take an interrupt now
    (10, ExitCpuid),
    (12, ExitHalt),
    (18, ExitHypercall),
    (30, ExitIo),
    (31, ExitMsr),
    (32, ExitMsr),
    (40, ExitPause),
    (44, ExitApic), // access to its page
    (45, ExitApic), // end of interrupt
    (48, ExitMemory),
    (49, ExitMmio),      // what KVM has marked as a device's, at its first access
    (52, ExitInterrupt), // the guest's own timer
    (56, ExitApic),      // write
];

/// Exit codes of AMD's processors (arch/x86/include/uapi/asm/svm.h of the kernel).
pub const SVM: &[(u16, State)] = &[
    (0x60, ExitInterrupt),
    (0x64, ExitInterrupt), // the guest can take an interrupt now
    (0x72, ExitCpuid),
    (0x77, ExitPause),
    (0x78, ExitHalt),
    (0x7b, ExitIo),
    (0x7c, ExitMsr),
    (0x81, ExitHypercall),
    (0x400, ExitMemory),
    (0x401, ExitIpi), // one that AVIC could not deliver
    (0x402, ExitApic),
];

/// The codes of [`SVM`] from here on are consecutive again.
pub const SVM_SECOND_FIRST: u16 = 0x400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_leads_to_one_exit() {
        for table in [VMX, SVM] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, each once");
            assert!(table.iter().all(|(_, state)| state.is_exit()));
        }
    }
}
