// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a guest in its initial state.

use super::lock::{Lock, Protocol, Stalls, BUCKETS, LOCKS};
use super::program::{Act, Instruction, Step};
use super::state::{Context, Doing, Guest, Scheduler, Thread, ThreadState, Vm};
use super::sync::{sockets, Barrier, Mutex};
use crate::engine::{Rng, ThreadId, VcpuId, VmId};
use std::collections::VecDeque;
use unspin_guest_abi::STALL_BUCKETS;
use unspin_scenario::result;

/// Describes the guest of a VM.
#[derive(Debug, Clone, Copy)]
pub struct VmSpec {
    pub vcpus: u32,
    pub threads: u32,
    /// Period of its kernel's timer; 0: none.
    pub tick_ns: u64,
    pub has_mutexes: bool,
    pub has_sockets: bool,
    pub has_shootdowns: bool,
    /// See [`Vm::handles_ipis`].
    pub handles_ipis: bool,
}

/// Whether each pass of a program begins with a timer.
fn begins_by_timer(program: &[Instruction]) -> bool {
    let first = program.first().map(|instruction| instruction.step);
    matches!(first, Some(Step::Act(Act::Block { has_timer: true, .. })))
}

impl Guest {
    /// Adds a VM with this program and these locks; its vCPUs and threads follow. Returns where its
    /// program begins.
    pub fn add_vm(&mut self, program: &[Instruction], spec: VmSpec, locks: Protocol) -> u32 {
        let VmSpec { vcpus, threads, .. } = spec;
        let begin = self.steps.len() as u32;
        self.steps.extend_from_slice(program);
        self.locks.extend(std::iter::repeat_n(Lock::free(locks), self.locks_per_vm as usize));
        let mutexes = if spec.has_mutexes { LOCKS as usize } else { 0 };
        let acks = if spec.has_shootdowns { vcpus as usize } else { 0 };
        let mut vm = Vm {
            program: begin,
            program_end: self.steps.len() as u32,
            first_thread: ThreadId(self.threads.len() as u32),
            threads,
            scheduler: None,
            tick_ns: spec.tick_ns,
            mutexes: vec![Mutex::free(threads); mutexes],
            sockets: if spec.has_sockets { sockets(threads) } else { Vec::new() },
            acks: vec![Vec::with_capacity(vcpus as usize); acks],
            handles_ipis: spec.handles_ipis,
            barrier: Barrier {
                missing_off: vcpus,
                turns: VecDeque::with_capacity(vcpus as usize),
                ..Barrier::default()
            },
            wait_hist: vec![0; BUCKETS],
            max_wait_cycles: 0,
            responses: begins_by_timer(program).then(result::Responses::none),
            stalls: Stalls::default(),
            turns: self.counts_turns.then(|| result::Stalls {
                free: vec![0; STALL_BUCKETS],
                held: vec![0; STALL_BUCKETS],
            }),
            lock_halts: 0,
            idle_halts: 0,
            kicks: 0,
        };
        if threads == vcpus {
            vm.barrier.off.set(true, 0);
        } else {
            let queue = VecDeque::with_capacity(threads as usize);
            vm.scheduler = Some(Scheduler { ready: vec![queue; vcpus as usize], off: 0 });
            // Kept by note_wanting() from the start on.
            vm.barrier.missing_off = 0;
        }
        self.vms.push(vm);
        begin
    }

    /// The threads of `number`, whose vCPUs exist.
    pub fn add_threads(&mut self, number: VmId, first: VcpuId, vcpus: u32, seed: u64) {
        let Vm { program, threads, .. } = self.vms[number];
        for index in 0..threads {
            let v = first + index % vcpus;
            let away = Context::new(program, Rng::new(seed, index));
            let runs = index < vcpus;
            let state = if runs { ThreadState::Running } else { ThreadState::Ready };
            let thread =
                Thread { vm: number, index, home: v, state, in_block: false, due_ns: 0, away };
            let t = self.threads.push(thread);
            if runs {
                self.cpus[v].thread = t;
            } else if let Some(scheduler) = &mut self.vms[number].scheduler {
                scheduler.ready[(v - first) as usize].push_back(t);
            }
        }
        for v in first.and_next(vcpus).skip(threads as usize) {
            // It has nothing to do, and halts as soon as it runs.
            self.cpus[v].run.doing = Doing::HaltBlock;
        }
    }
}
