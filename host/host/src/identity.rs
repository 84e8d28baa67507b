// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a VM on its command line.

/// Name and UUID of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: Option<Vec<u8>>,
    pub uuid: Option<String>,
}
