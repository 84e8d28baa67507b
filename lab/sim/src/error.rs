// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs that cannot be simulated.

/// The reason why a run cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("run {id}: {text}")]
    Run { id: u32, text: String },
    #[error(
        "a host of {pcpus} pCPUs of {khz} kHz with a tick of {tick_ns} ns; it has 1 to 65536 \
         pCPUs of 1 MHz to 100 GHz and a tick of at least 1000 ns"
    )]
    Host { pcpus: u32, khz: u64, tick_ns: u64 },
    #[error(transparent)]
    Program(#[from] unspin_guest_abi::ProgramError),
}
