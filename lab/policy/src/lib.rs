// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every decision of unspin, for user space: safe wrappers of the C code in `policy/`, and
//! decisions that no kernel makes ([`alike`], [`due`], [`lasting`]).
//!
//! The kernel module links the same sources. So a trace that it recorded gives the same decisions
//! here, and the simulator runs the code that runs on hosts. Nothing in this crate draws a random
//! number, reads a clock or allocates: the caller provides all inputs.
//!
//! * [`aple`]: the pause-loop-exit window of one VM (TPDS 2017, section 3.1).
//! * [`hvs`]: which vCPU gets the core a spinner gives up (sections 3.2, 3.3, 4.4).
//! * [`kvm_stock`]: KVM's own behaviour (section 2.3), by version.
//! * [`alike`]: whether the needs of vCPUs differ at all (ours).
//! * [`asym`]: CPU time, latency and cores by what each vCPU can use (dissertation, section 5.4).
//! * [`credit`]: Credit, plain or coscheduling (ASMan, sections 4.4, 4.5).
//! * [`due`]: how much to raise the weight of a VM whose vCPUs have unequal weights (ours).
//! * [`demand`]: which VMs should run in turns, by the time that they waste (ours).
//! * [`gang`]: whose turn it is on which pCPUs, so that a VM's vCPUs run together (ours).
//! * [`lasting`]: a vCPU's need over more than one period (ours).
//! * [`userspin`]: whether a vCPU spins in user space (ours).
//! * [`vcrd`]: whether the vCPUs of a VM should run together (ASMan, HPDC 2011, section 4.3).

/// What a check of parameters in C found: nothing, or a field that is out of its range. The texts
/// are in the order of the numbers that it returns, from 1 on. One above the last is as the last.
fn judged(number: i32, texts: &[&'static str]) -> Result<(), &'static str> {
    match usize::try_from(number) {
        Ok(0) => Ok(()),
        Ok(n) => Err(texts[n.min(texts.len()) - 1]),
        Err(_) => Err(texts[texts.len() - 1]),
    }
}

#[macro_use]
mod functions;

pub mod aple;
pub mod credit;
pub mod demand;
pub mod gang;
pub mod hvs;
pub mod kvm_stock;
pub mod userspin;
pub mod vcrd;

/// The C functions as their headers declare them. Prefer the safe modules.
pub mod sys {
    use crate::{aple, asym, credit, demand, gang, hvs, kvm_stock, userspin, vcrd};

    macro_rules! declared {
        ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
            extern "C" {
                $(pub fn $name($(_: $arg),*) $(-> $ret)?;)*
            }
        };
    }
    for_each_function!(declared);
}

pub use unspin_shape::{alike, asym, due, lasting};
