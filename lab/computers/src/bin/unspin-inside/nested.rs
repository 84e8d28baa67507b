// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that is itself a hypervisor (L1) of a guest that only waits (L2), in 64-bit mode. A word
//! in its memory selects its next action, so that the host can take its CPU away at a chosen
//! moment.
//!
//! For such a vCPU KVM keeps only one window, and writes it to the VMCS that is loaded. If KVM
//! changes the window while L2 is switched out, the new window goes to L2's VMCS, and L1's VMCS
//! keeps the former one. Stock KVM behaves in this way, and the module must handle it.

use crate::machine::{be_realtime, code_between, pin, says, shell, tid, wait, Memory, PauseExits};
use kvm_bindings::{kvm_msr_entry, kvm_regs, kvm_segment, CpuId, Msrs, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd};
use std::arch::global_asm;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

const MEMORY: usize = 0x20000;
const PML4: usize = 0x1000;
const PDPT: usize = 0x2000;
const PD: usize = 0x3000;
const VMXON_REGION: usize = 0x4000;
const VMCS_REGION: usize = 0x5000;
const CODE: usize = 0x8000;
const L1_STACK: u64 = 0xb000;
const L2_STACK: u64 = 0xc000;
/// Layout: two pointers, words, and from `FIELDS` on pairs of a VMCS field and its value.
const DATA: usize = 0x10000;
const COMMAND: usize = DATA + 0x10;
const DONE: usize = DATA + 0x14;
const LENGTH: usize = DATA + 0x18;
const ENTERED: usize = DATA + 0x20;
const LEAVE: usize = DATA + 0x24;
const FAULT: usize = DATA + 0x28;
const FIELDS: usize = DATA + 0x100;
const LAST_FIELD: u64 = u64::MAX;

const SPIN: u32 = 1;
const ENTER: u32 = 2;
const END: u32 = 3;

// R15: DATA. Between commands L1 only exits, so that the host enters it again and again.
global_asm!(
    ".pushsection .rodata.unspin_l1, \"a\"",
    ".globl unspin_l1_begin, unspin_l1_exit, unspin_l1_end",
    "unspin_l1_begin:",
    "vmxon qword ptr [r15]",
    "jbe 99f",
    "vmclear qword ptr [r15 + 8]",
    "jbe 99f",
    "vmptrld qword ptr [r15 + 8]",
    "jbe 99f",
    "lea rbx, [r15 + 0x100]",
    "2: mov rdx, qword ptr [rbx]",
    "test rdx, rdx",
    "js 3f",
    "vmwrite rdx, qword ptr [rbx + 8]",
    "jbe 99f",
    "add rbx, 16",
    "jmp 2b",
    "3: xor eax, eax",
    "cpuid",
    "mov eax, dword ptr [r15 + 0x10]",
    "cmp eax, 1",
    "je 4f",
    "cmp eax, 2",
    "je 4f",
    "cmp eax, 3",
    "jne 3b",
    "out 0x10, al",
    // Spins for LENGTH cycles, and may then enter L2.
    "4: rdtsc",
    "mov ebx, eax",
    "5: pause",
    "rdtsc",
    "sub eax, ebx",
    "cmp eax, dword ptr [r15 + 0x18]",
    "jb 5b",
    "cmp dword ptr [r15 + 0x10], 2",
    "jne 9f",
    "mov edx, 0x681e", // guest RIP
    "lea rax, [rip + 8f]",
    "vmwrite rdx, rax",
    "jbe 99f",
    "cmp dword ptr [r15 + 0x2c], 0",
    "jne 7f",
    "mov dword ptr [r15 + 0x2c], 1",
    "vmlaunch",
    "jmp 99f",
    "7: vmresume",
    "jmp 99f",
    // L2: waits, without a PAUSE, until it is asked to leave.
    "8: inc dword ptr [r15 + 0x20]",
    "81: cmp dword ptr [r15 + 0x24], 0",
    "je 81b",
    "vmcall",
    "unspin_l1_exit:",
    "mov edx, 0x4402", // exit reason
    "vmread rax, rdx",
    "cmp eax, 18", // VMCALL
    "jne 98f",
    "9: mov dword ptr [r15 + 0x10], 0",
    "inc dword ptr [r15 + 0x14]",
    "jmp 3b",
    "98: mov dword ptr [r15 + 0x28], eax",
    "out 0x11, al",
    "99: mov edx, 0x4400", // instruction error
    "mov eax, -1",
    "vmread rax, rdx",
    "mov dword ptr [r15 + 0x28], eax",
    "out 0x12, al",
    "unspin_l1_end:",
    ".popsection",
);
extern "C" {
    static unspin_l1_begin: u8;
    static unspin_l1_exit: u8;
    static unspin_l1_end: u8;
}
const PORT_END: u16 = 0x10;

/// L1 continues here after an exit of L2.
fn l1_exit() -> u64 {
    // SAFETY: both are in one section.
    let offset = unsafe { (&raw const unspin_l1_exit).offset_from(&raw const unspin_l1_begin) };
    CODE as u64 + offset as u64
}

const CR0: u64 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 31; // PE, MP, ET, NE, PG
const CR4: u64 = 1 << 5 | 1 << 13; // PAE, VMXE
const RFLAGS: u64 = 1 << 1 | 1 << 9; // always set; interrupts on
const EFER: u64 = 1 << 8 | 1 << 10; // LME, LMA
const CS: u16 = 0x8;
const DS: u16 = 0x10;
const TR: u16 = 0x18;
const MSR_FEATURE_CONTROL: u32 = 0x3a;
const MSR_VMX_BASIC: u32 = 0x480;
const MSR_VMX_CONTROLS: [u32; 4] = [0x481, 0x482, 0x483, 0x484];
const MODE_64_BIT: u64 = 1 << 9;

/// The host's side of L1.
struct L1 {
    memory: Memory,
    exits: PauseExits,
    /// Number of times that its thread gave up or lost its CPU: a file of /proc.
    switches: String,
    /// Its thread has left KVM_RUN finally.
    ended: Arc<AtomicBool>,
}

impl L1 {
    fn wait(&self, what: &str, done: impl Fn() -> bool) -> Result<(), String> {
        wait(what, || done() || self.has_ended())?;
        if self.has_ended() {
            return Err(format!("L1 ended before {what}"));
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn does(&self, command: u32) -> Result<(), String> {
        let done = self.memory.word(DONE);
        let before = done.load(Ordering::SeqCst);
        self.memory.word(COMMAND).store(command, Ordering::SeqCst);
        if command == ENTER || command == END {
            return Ok(());
        }
        self.wait("L1's spin", || done.load(Ordering::SeqCst) != before)
    }

    /// Enters L2 right after a spin of `length` cycles. Repeats this once if L1 lost its CPU in
    /// between.
    fn spins_and_enters_l2(&self, length: u32) -> Result<(), String> {
        const TRIES: u32 = 20;
        for _ in 0..TRIES {
            let before = self.switches()?;
            self.spins_and_enters(length)?;
            if self.switches()? == before {
                return Ok(());
            }
            self.leaves_l2()?;
        }
        Err(format!("L1 lost its CPU on its way into L2 {TRIES} times"))
    }

    fn switches(&self) -> Result<String, String> {
        let status = std::fs::read_to_string(&self.switches).map_err(|e| e.to_string())?;
        Ok(status.lines().filter(|line| line.contains("ctxt_switches")).collect())
    }

    fn spins_and_enters(&self, length: u32) -> Result<(), String> {
        self.memory.word(LENGTH).store(length, Ordering::SeqCst);
        let entered = self.memory.word(ENTERED);
        let before = entered.load(Ordering::SeqCst);
        self.memory.word(LEAVE).store(0, Ordering::SeqCst);
        self.does(ENTER)?;
        self.wait("L2", || entered.load(Ordering::SeqCst) != before)
    }

    fn leaves_l2(&self) -> Result<(), String> {
        let done = self.memory.word(DONE);
        let before = done.load(Ordering::SeqCst);
        self.memory.word(LEAVE).store(1, Ordering::SeqCst);
        self.wait("the end of L2", || done.load(Ordering::SeqCst) != before)
    }

    /// Number of PAUSE exits in one spin of `length` cycles.
    fn exits_of(&self, length: u32) -> Result<u64, String> {
        self.memory.word(LENGTH).store(length, Ordering::SeqCst);
        let before = self.exits.count()?;
        self.does(SPIN)?;
        Ok(self.exits.count()? - before)
    }
}

/// The CPU of L1; the other threads use the other one.
const CPU: u32 = 1;
const OTHER_CPU: u32 = 0;

/// Takes L1's CPU for a moment, so that KVM's own window is reset.
fn take_cpu() -> Result<(), String> {
    let taken = std::thread::spawn(|| {
        pin(CPU)?;
        be_realtime()?;
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    });
    taken.join().map_err(|_| "a thread panicked".to_string())?
}

/// L1 spins past KVM's window, which grows, and loses its CPU in L2; then a shell runs `on`. L1
/// continues, and the same follows with `off`. Returns how many spins of 20,000 cycles exited:
/// before; at once after each command; and of ten, each after another loss of the CPU.
pub fn around(on: &str, off: &str) -> Result<String, String> {
    const SPINS: u64 = 10;
    const LONG: u32 = 20_000;
    // Only the intended thread may take L1's CPU.
    pin(OTHER_CPU)?;
    let memory = Memory::new(MEMORY)?;
    let (vcpu, _vm) = new(memory)?;
    let ended = Arc::new(AtomicBool::new(false));
    let its_end = ended.clone();
    let (say_tid, its_tid) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = say_tid.send(pin(CPU).map(|()| tid()));
        let result = run(vcpu, memory);
        its_end.store(true, Ordering::SeqCst);
        result
    });
    let tid = its_tid.recv().map_err(|e| e.to_string())??;
    let switches = format!("/proc/self/task/{tid}/status");
    let l1 = L1 { memory, exits: PauseExits::of(tid)?, switches, ended };
    let story = || -> Result<String, String> {
        let exits = || -> Result<bool, String> {
            take_cpu()?;
            Ok(l1.exits_of(LONG)? > 0)
        };
        // A tick of the host that begins early in a spin lasts until its end. So each spin has two tries.
        let spins = || -> Result<u64, String> {
            let mut exited = 0;
            for _ in 0..SPINS {
                exited += u64::from(exits()? || exits()?);
            }
            Ok(exited)
        };
        let in_l2 = |line: &str| -> Result<String, String> {
            l1.spins_and_enters_l2(LONG)?;
            take_cpu()?;
            shell(line)?;
            l1.leaves_l2()?;
            // Let L1 be entered several times, so that its window is checked before KVM has a
            // reason to change it.
            std::thread::sleep(Duration::from_millis(20));
            let at_once = u64::from(l1.exits_of(LONG)? > 0);
            Ok(format!("{at_once} at once and {} of {SPINS}", spins()?))
        };
        Ok(format!("{}, on {}, off {}", spins()?, in_l2(on)?, in_l2(off)?))
    };
    let told = story();
    if told.is_ok() {
        wait("L1's end", || {
            let _ = l1.does(END);
            l1.has_ended()
        })?;
    }
    if l1.has_ended() {
        thread.join().map_err(|_| "the vCPU's thread panicked".to_string())??;
    }
    told
}

fn run(mut vcpu: VcpuFd, memory: Memory) -> Result<(), String> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(PORT_END, _)) => return Ok(()),
            Ok(VcpuExit::IoOut(port, _)) => {
                let fault = memory.word(FAULT).load(Ordering::SeqCst);
                return Err(match port {
                    0x11 => format!("L2 left with exit reason {fault}"),
                    _ => format!("a VMX instruction failed with error {}", fault as i32),
                });
            }
            Ok(other) => return Err(format!("L1 left with {other:?}")),
            Err(e) if e.errno() == libc::EINTR => {}
            Err(e) => return Err(format!("KVM_RUN: {e}")),
        }
    }
}

fn new(memory: Memory) -> Result<(VcpuFd, kvm_ioctls::VmFd), String> {
    let vm = memory.vm()?;
    let vcpu = vm.create_vcpu(0).map_err(says("KVM_CREATE_VCPU"))?;
    let kvm = Kvm::new().map_err(says("/dev/kvm"))?;
    let cpuid: CpuId =
        kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(says("KVM_GET_SUPPORTED_CPUID"))?;
    let has_vmx = cpuid.as_slice().iter().any(|leaf| leaf.function == 1 && leaf.ecx & 1 << 5 != 0);
    if !has_vmx {
        return Err("KVM offers guests no VMX: is kvm_intel loaded with nested=0?".into());
    }
    vcpu.set_cpuid2(&cpuid).map_err(says("KVM_SET_CPUID2"))?;
    let enable = kvm_msr_entry { index: MSR_FEATURE_CONTROL, data: 0b101, ..Default::default() };
    let enable = Msrs::from_entries(&[enable]).map_err(|e| format!("{e:?}"))?;
    if vcpu.set_msrs(&enable).map_err(says("KVM_SET_MSRS"))? != 1 {
        return Err("KVM refuses IA32_FEATURE_CONTROL".into());
    }
    load(&vcpu, memory)?;
    Ok((vcpu, vm))
}

fn msr(vcpu: &VcpuFd, index: u32) -> Result<u64, String> {
    let entry = kvm_msr_entry { index, ..Default::default() };
    let mut msrs = Msrs::from_entries(&[entry]).map_err(|e| format!("{e:?}"))?;
    match vcpu.get_msrs(&mut msrs).map_err(says("KVM_GET_MSRS"))? {
        1 => Ok(msrs.as_slice()[0].data),
        _ => Err(format!("KVM has no MSR {index:#x}")),
    }
}

/// Memory and state from which L1 starts.
fn load(vcpu: &VcpuFd, memory: Memory) -> Result<(), String> {
    let quad = |at: usize, value: u64| memory.write(at, &value.to_le_bytes());
    quad(PML4, PDPT as u64 | 0b11);
    quad(PDPT, PD as u64 | 0b11);
    quad(PD, 0b1000_0011); // the first 2 MiB, one to one
                           // SAFETY: both labels are in one section, in this order.
    memory.write(CODE, unsafe { code_between(&unspin_l1_begin, &unspin_l1_end) });
    let revision = msr(vcpu, MSR_VMX_BASIC)? as u32 & 0x7fff_ffff;
    for region in [VMXON_REGION, VMCS_REGION] {
        memory.word(region).store(revision, Ordering::SeqCst);
    }
    quad(DATA, VMXON_REGION as u64);
    quad(DATA + 8, VMCS_REGION as u64);
    for (index, (field, value)) in fields(vcpu)?.into_iter().enumerate() {
        quad(FIELDS + index * 16, field);
        quad(FIELDS + index * 16 + 8, value);
    }

    let segment = |selector, type_, l, db, s| kvm_segment {
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        db,
        s,
        l,
        g: s,
        ..Default::default()
    };
    let mut sregs = vcpu.get_sregs().map_err(says("KVM_GET_SREGS"))?;
    sregs.cs = segment(CS, 11, 1, 0, 1);
    let data = segment(DS, 3, 0, 1, 1);
    [sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss] = [data; 5];
    sregs.tr = kvm_segment { limit: 0x67, ..segment(TR, 11, 0, 0, 0) };
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, PML4 as u64, CR4, EFER);
    vcpu.set_sregs(&sregs).map_err(says("KVM_SET_SREGS"))?;
    let regs = kvm_regs {
        rip: CODE as u64,
        rsp: L1_STACK,
        rflags: RFLAGS,
        r15: DATA as u64,
        ..Default::default()
    };
    vcpu.set_regs(&regs).map_err(says("KVM_SET_REGS"))
}

/// What L1 writes to its VMCS (SDM 3, appendix B): every control as KVM's own minimum, and L2 in
/// the same mode and memory as L1. Other fields stay 0.
fn fields(vcpu: &VcpuFd) -> Result<Vec<(u64, u64)>, String> {
    let [pin, cpu, exit, entry] = MSR_VMX_CONTROLS.map(|index| msr(vcpu, index));
    let must = |control: Result<u64, String>| control.map(|value| value & 0xffff_ffff);
    let mut all = vec![
        (0x4000, must(pin)?),
        (0x4002, must(cpu)?),
        (0x400c, must(exit)? | MODE_64_BIT),
        (0x4012, must(entry)? | MODE_64_BIT),
        (0x2800, u64::MAX), // no linked VMCS
        (0x681a, 0x400),    // DR7
        (0x681c, L2_STACK),
        (0x6820, RFLAGS),
        (0x6c14, L1_STACK),
        (0x6c16, l1_exit()),
    ];
    // Control registers of guest and host.
    for (at, value) in [(0, CR0), (2, PML4 as u64), (4, CR4)] {
        all.extend([(0x6800 + at, value), (0x6c00 + at, value)]);
    }
    // ES, CS, SS, DS, FS, GS: selectors of both, limits and rights of the guest.
    for index in 0..6 {
        let (selector, rights) = if index == 1 { (CS, 0xa09b) } else { (DS, 0xc093) };
        all.extend([
            (0x800 + index * 2, selector.into()),
            (0xc00 + index * 2, selector.into()),
            (0x4800 + index * 2, 0xffff_ffff),
            (0x4814 + index * 2, rights),
        ]);
    }
    // LDTR is unusable; TR.
    all.extend([(0x4820, 0x1_0000), (0x80e, TR.into()), (0xc0c, TR.into())]);
    all.extend([(0x480e, 0x67), (0x4822, 0x8b), (LAST_FIELD, 0)]);
    Ok(all)
}
