// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a VM's command line says of who it is.

/// Who the VM is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: Option<Vec<u8>>,
    pub uuid: Option<String>,
}
