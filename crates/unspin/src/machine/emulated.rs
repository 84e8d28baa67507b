// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `emulated`: a computer with VT-x and PLE, emulated by Bochs (crates/lab).

use super::{Job, Machine, Sink};
use crate::exit::Cannot;

pub struct Emulated;

impl Machine for Emulated {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn default_kernels(&self) -> Vec<String> {
        vec!["6.12".to_string()]
    }

    fn boots(&self) -> bool {
        true
    }

    fn run(&self, job: &Job, _sink: &mut Sink) -> anyhow::Result<()> {
        // Filled in with unspin_lab::boot_plan(job.plan, job.kernel, job.dir, job.stop, sink).
        let _ = (job.plan, job.kernel, job.dir, job.stop);
        Err(Cannot("machine emulated: this build has no lab".to_string()).into())
    }
}
