// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU that only spins, each time for a given number of TSC cycles, and the thread that runs it.
//! Its spins are short, except for as many long ones as the host requests.

use crate::exact::{start_state, to_the_end};
use crate::machine::{code_between, pin, says, tid, Memory};
use kvm_bindings::{kvm_mp_state, KVM_MP_STATE_RUNNABLE};
use kvm_ioctls::{VcpuFd, VmFd};
use std::arch::global_asm;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;

/// Size of the memory of spinners' guests and of other guests beside them.
pub const MEMORY: usize = 0x5000;
/// As in `exact`, whose start state these guests have, too.
pub const ENTRY: usize = 0x1000;
const WORDS: usize = 0x2000;
/// Words of a vCPU: the length of long spins, the number of spins so far, the number left, and how
/// many of those are long.
const WORDS_BYTES: usize = 0x40;
/// Spins until it is stopped.
pub const FOR_EVER: u32 = u32::MAX;

// 32-bit protected mode. ESI: the vCPU's words.
global_asm!(
    ".pushsection .rodata.unspin_spins, \"a\"",
    ".globl unspin_spins_begin, unspin_spins_end",
    ".code32",
    "unspin_spins_begin:",
    "2: mov edi, 500", // shorter than any window
    "cmp dword ptr [esi + 12], 0",
    "je 5f",
    "mov edi, dword ptr [esi]",
    "dec dword ptr [esi + 12]",
    "5: rdtsc",
    "mov ebx, eax",
    "3: pause",
    "rdtsc",
    "sub eax, ebx",
    "cmp eax, edi",
    "jb 3b",
    "mov ecx, 2000", // longer than any gap
    "4: dec ecx",
    "jnz 4b",
    "inc dword ptr [esi + 4]",
    "dec dword ptr [esi + 8]",
    "jnz 2b",
    "out 0x10, al",
    "jmp 2b",
    "unspin_spins_end:",
    ".code64",
    ".popsection",
);
extern "C" {
    static unspin_spins_begin: u8;
    static unspin_spins_end: u8;
}

/// Puts the program of all spinners into memory.
pub fn load(memory: Memory) {
    // SAFETY: both labels are in one section, in this order.
    memory.write(ENTRY, unsafe { code_between(&unspin_spins_begin, &unspin_spins_end) });
}

/// The words of one vCPU, which host and guest share.
#[derive(Clone, Copy)]
pub struct Words {
    length: &'static AtomicU32,
    made: &'static AtomicU32,
    left: &'static AtomicU32,
    long: &'static AtomicU32,
}

impl Words {
    pub fn made(&self) -> u32 {
        self.made.load(Ordering::SeqCst)
    }

    /// Sets the number of spins that are left.
    pub fn set_left(&self, spins: u32) {
        self.left.store(spins, Ordering::SeqCst);
    }

    /// Makes the next `spins` spins `cycles` long. No long spin may be due, because the guest
    /// counts them down.
    pub fn set_long(&self, spins: u32, cycles: u32) {
        self.length.store(cycles, Ordering::SeqCst);
        self.long.store(spins, Ordering::SeqCst);
    }

    /// Whether long spins are still due.
    pub fn is_long_due(&self) -> bool {
        self.long.load(Ordering::SeqCst) != 0
    }
}

/// Makes vCPU `index`, ready to run the spinners' program.
pub fn make(vm: &VmFd, memory: Memory, index: usize) -> Result<(VcpuFd, Words), String> {
    let at = WORDS + index * WORDS_BYTES;
    let vcpu = vm.create_vcpu(index as u64).map_err(says("KVM_CREATE_VCPU"))?;
    start_state(&vcpu, 0, 0, at as u32).map_err(says("the vCPU's state"))?;
    // With an irqchip all but the first would wait for INIT and SIPI.
    let _ = vcpu.set_mp_state(kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE });
    let word = |offset| memory.word(at + offset);
    Ok((vcpu, Words { length: word(0), made: word(4), left: word(8), long: word(12) }))
}

/// A vCPU and the thread that runs it.
pub struct Spinner {
    pub words: Words,
    pub tid: i32,
    /// To the thread: enter the guest. From it: the guest has finished its spins.
    go: Sender<()>,
    done: Receiver<Result<(), String>>,
}

impl Spinner {
    /// Creates vCPU `index` on CPU `cpu` of the host.
    pub fn new(vm: &VmFd, memory: Memory, index: usize, cpu: u32) -> Result<Spinner, String> {
        let (mut vcpu, words) = make(vm, memory, index)?;
        let (go, told) = channel();
        let (tell, done) = channel();
        let (say_tid, its_tid) = channel();
        std::thread::spawn(move || {
            let _ = say_tid.send(pin(cpu).map(|()| tid()));
            while told.recv().is_ok() && tell.send(to_the_end(&mut vcpu)).is_ok() {}
        });
        let tid = its_tid.recv().map_err(|e| e.to_string())??;
        Ok(Spinner { words, tid, go, done })
    }

    /// Starts `spins` spins, which end early at [`Spinner::stop`].
    pub fn start(&self, spins: u32) -> Result<(), String> {
        self.words.set_left(spins);
        self.go.send(()).map_err(|e| e.to_string())
    }

    /// Waits until the spins are done.
    pub fn finish(&self) -> Result<(), String> {
        self.done.recv().map_err(|e| e.to_string())?
    }

    /// The guest counts down the same word, so its store may undo this one.
    pub fn stop(&self) -> Result<(), String> {
        loop {
            self.words.set_left(1);
            if let Ok(done) = self.done.recv_timeout(Duration::from_millis(5)) {
                return done;
            }
        }
    }
}
