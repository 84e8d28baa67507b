// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts with as many VMs as pCPUs, of 8 vCPUs each that all spin and may run on all pCPUs: the
//! cost of planning their turns.

use unspin_policy::gang::{Cpu, CpuSet, Host, Vcpu, Vm};

const VCPUS: usize = 8;
const TURN_NS: u64 = 6_000_000;

/// Where vCPUs are when the turn begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Those of a VM on pCPUs of their own.
    Alone,
    /// Those of a VM on one pCPU.
    Stacked,
    /// All on the first pCPU.
    OnOne,
}

pub const LAYOUTS: [Layout; 3] = [Layout::Alone, Layout::Stacked, Layout::OnOne];

/// No two numbers alike.
pub fn scattered(i: usize) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A host, whose turns begin from the same state.
pub struct Load<'a> {
    start: Vec<Vm>,
    vms: Vec<Vm>,
    vcpus: Vec<Vcpu<'a>>,
    cpus: Vec<Cpu>,
    turn: u32,
}

impl<'a> Load<'a> {
    /// Two nodes; caches of 16 threads, or nothing is known of them.
    pub fn new(count: usize, layout: Layout, known: bool, everywhere: &'a CpuSet) -> Load<'a> {
        let at = |i: usize| match layout {
            Layout::Alone => i % count,
            Layout::Stacked => i / VCPUS,
            Layout::OnOne => 0,
        };
        let vcpu = |i: usize| Vcpu {
            got: scattered(i) >> 42,
            allowed: Some(everywhere),
            wants: 1,
            ..Vcpu::new(at(i) as u32, 1024)
        };
        let vm = |i: usize| Vm {
            high: 1,
            owed: (scattered(i) >> 44) as i64 - (1 << 19),
            ..Vm::new((VCPUS * i) as u32, VCPUS as u32)
        };
        // Threads of a core are half of the pCPUs apart, as Linux counts them.
        let first = |i: usize, of: usize| (i % (count / 2) / of * of) as u32;
        let cpu = |i: usize| match known {
            true => Cpu {
                core: first(i, 1),
                cache: first(i, 8.min(count / 4)),
                node: first(i, count / 4),
                ..Cpu::default()
            },
            false => Cpu::default(),
        };
        let start: Vec<Vm> = (0..count).map(vm).collect();
        Load {
            vms: start.clone(),
            start,
            vcpus: (0..VCPUS * count).map(vcpu).collect(),
            cpus: (0..count).map(cpu).collect(),
            turn: 0,
        }
    }

    /// A turn ends and the next starts. Whether all pCPUs have owners.
    pub fn one(&mut self) -> bool {
        self.vms.copy_from_slice(&self.start);
        let Load { vms, vcpus, cpus, turn, .. } = self;
        let mut host = Host { vms, vcpus, cpus, turn };
        host.account(TURN_NS);
        host.turn_starts() && host.cpus.iter().all(|cpu| cpu.owner != u32::MAX)
    }
}
