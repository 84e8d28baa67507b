// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the source of a command's samples by its hidden options.

use super::facts::Detail;
use super::kernel::Kernel;
use super::sample::Source;
use super::synthetic::{parse_size, Synthetic};
use crate::sysfs::root;
use crate::vms;
use std::path::PathBuf;
use unspin_host::{place, Host};

#[derive(Debug, clap::Args)]
pub struct SourceArgs {
    #[arg(long, hide = true, default_value_os_t = root())]
    pub sysfs: PathBuf,
    #[arg(long, hide = true, default_value_os_t = place::proc())]
    pub proc: PathBuf,
    /// Synthetic VMs, for tests.
    #[arg(long, hide = true, value_name = "VMSxVCPUS", value_parser = parse_size)]
    pub synthetic: Option<(usize, u32)>,
}

impl SourceArgs {
    /// Opens the source. `detail`: what samples of this host contain.
    pub fn open(&self, detail: Detail) -> anyhow::Result<Box<dyn Source + Send>> {
        Ok(match self.synthetic {
            Some((vms, vcpus)) => Box::new(Synthetic::new(vms, vcpus)),
            None => {
                let kernel = Kernel::new(Host::at(&self.proc), &self.sysfs, detail)?;
                vms::say_unseen(&Host::at(&self.proc));
                Box::new(kernel)
            }
        })
    }
}
