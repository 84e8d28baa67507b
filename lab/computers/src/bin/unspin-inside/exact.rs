// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a few instructions, in 32-bit protected mode without paging. One only spins, with a
//! given number of PAUSEs and of instructions between them, at privilege level 0 or 3; the others
//! only exit, only compute, or only make one hypercall.

use crate::machine::{says, tsc, Memory};
use crate::watched;
use kvm_bindings::{kvm_regs, kvm_segment};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use std::time::{Duration, Instant};

const MEMORY: usize = 0x4000;
const ENTRY: u64 = 0x1000;
const STACK: u64 = 0x3000;
/// Loop passes between two spins: more than any gap takes.
const REST: u64 = 2000;
const RFLAGS: u64 = 1 << 1 | 1 << 9 | 3 << 12; // always set; interrupts on; I/O at every level
const CR0: u64 = 1 | 1 << 4 | 1 << 5; // PE, ET, NE
const END_PORT: u8 = 0x10;

pub struct Spin {
    pub spins: u32,
    /// PAUSEs per spin.
    pub pauses: u32,
    /// Instructions from one PAUSE to the next, at least 3.
    pub distance: u32,
    pub cpl: u8,
}

/// Makes the spins, and returns the number of PLE exits that the module saw.
pub fn run(spin: &Spin) -> Result<String, String> {
    if spin.distance < 3 || spin.distance as usize > MEMORY / 2 || !matches!(spin.cpl, 0 | 3) {
        return Err("a distance is 3 or more, a level 0 or 3".into());
    }
    let (_vm, mut vcpu) = guest(&program(spin.distance), spin.cpl, spin.pauses.into(), spin.spins)?;
    to_the_end(&mut vcpu)?;
    let file = format!("/sys/module/unspin/vms/{}-0/ple_exits", std::process::id());
    let exits = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    Ok(exits.trim().to_string())
}

/// A repeated hypercall.
pub struct Call {
    pub times: u32,
    pub number: u32,
    pub arguments: [u32; 2],
    pub cpl: u8,
}

/// Makes the calls. Returns how many of them the module accepted as reports, how many it ignored,
/// and whether the VM was HIGH soon after them and two seconds later.
pub fn calls(call: &Call) -> Result<String, String> {
    const SOON: Duration = Duration::from_millis(50);
    const LATER: Duration = Duration::from_secs(2);
    const KNOWN: Duration = Duration::from_secs(60);
    let dir = format!("/sys/module/unspin/vms/{}-0", std::process::id());
    let (_vm, mut vcpu) = guest(&hypercalls(call), call.cpl, 0, call.times)?;
    let made = Instant::now();
    while !std::path::Path::new(&dir).exists() {
        if made.elapsed() > KNOWN {
            return Err(format!("no {dir}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    to_the_end(&mut vcpu)?;
    let value = |file: &str| {
        let file = format!("{dir}/{file}");
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        Ok::<_, String>(text.trim().to_string())
    };
    std::thread::sleep(SOON);
    let soon = value("vcrd")?;
    std::thread::sleep(LATER);
    let (taken, ignored) = (value("guest_reports")?, value("guest_reports_ignored")?);
    Ok(format!("{taken} {ignored} {soon} {}", value("vcrd")?))
}

/// Program that makes hypercalls; ESI has their number.
fn hypercalls(call: &Call) -> Vec<u8> {
    const AMD: u32 = u32::from_le_bytes(*b"Auth");
    let is_amd = std::arch::x86_64::__cpuid(0).ebx == AMD;
    let [first, second] = call.arguments;
    let mut code = Vec::new();
    for (load, value) in [(0xb8, call.number), (0xbb, first), (0xb9, second)] {
        code.push(load); // again: mov eax, number; mov ebx, first; mov ecx, second
        code.extend(value.to_le_bytes());
    }
    code.extend([0x0f, 0x01, if is_amd { 0xd9 } else { 0xc1 }]); // vmmcall, or vmcall
    code.push(0x4e); // dec esi
    jump_if_not_zero(&mut code, 0);
    code.extend([0xe6, END_PORT]); // out END_PORT, al
    code
}

/// TSC cycles that one CPUID of the guest takes, in hundredths. The result is the cheapest of
/// `rounds` rounds, which has no timer tick. On one emulated CPU a cycle is an instruction. Each
/// round begins slightly later in the tick's period than the one before: otherwise, if creating a VM
/// takes exactly a period, all rounds could have a tick.
pub fn exit_cycles(rounds: u32) -> Result<u64, String> {
    const EXITS: u32 = 100;
    const LATER: Duration = Duration::from_micros(210);
    // Rounds take less time than this, if no other task wants the CPU.
    watched::begin(Duration::from_millis(50) * rounds)?;
    let mut least = u64::MAX;
    for round in 0..rounds {
        let (_vm, mut vcpu) = guest(&cpuids(), 0, 0, EXITS)?;
        let made = Instant::now();
        while made.elapsed() < LATER * round {}
        let begin = tsc();
        to_the_end(&mut vcpu)?;
        least = least.min(tsc() - begin);
    }
    Ok(least * 100 / u64::from(EXITS))
}

/// A vCPU that will make `turns` turns of two instructions, optionally with interrupts off.
pub fn computing(turns_interrupts_off: bool, turns: u32) -> Result<(VmFd, VcpuFd), String> {
    let mut code = if turns_interrupts_off { vec![0xfa] } else { Vec::new() }; // cli
    let again = code.len();
    code.push(0x4e); // again: dec esi
    jump_if_not_zero(&mut code, again);
    code.extend([0xe6, END_PORT]); // out END_PORT, al
    guest(&code, 0, 0, turns)
}

/// Program that executes CPUIDs; ESI has their number.
fn cpuids() -> Vec<u8> {
    let mut code = vec![0x0f, 0xa2, 0x4e]; // again: cpuid; dec esi
    jump_if_not_zero(&mut code, 0);
    code.extend([0xe6, END_PORT]); // out END_PORT, al
    code
}

/// A VM of one vCPU about to run `code`, with EDI and ESI as given.
fn guest(code: &[u8], cpl: u8, edi: u64, esi: u32) -> Result<(VmFd, VcpuFd), String> {
    let memory = Memory::new(MEMORY)?;
    memory.write(ENTRY as usize, code);
    let vm = memory.vm()?;
    let vcpu = vm.create_vcpu(0).map_err(says("KVM_CREATE_VCPU"))?;
    start_state(&vcpu, cpl, edi, esi).map_err(says("the vCPU's state"))?;
    Ok((vm, vcpu))
}

/// Runs until the guest reports that it has finished.
pub fn to_the_end(vcpu: &mut VcpuFd) -> Result<(), String> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(port, _)) if port == u16::from(END_PORT) => return Ok(()),
            Ok(other) => return Err(format!("the guest left with {other:?}")),
            Err(e) if e.errno() == libc::EINTR => {}
            Err(e) => return Err(format!("KVM_RUN: {e}")),
        }
    }
}

/// 32-bit protected mode without paging, at `ENTRY`.
pub fn start_state(vcpu: &VcpuFd, cpl: u8, edi: u64, esi: u32) -> Result<(), kvm_ioctls::Error> {
    let mut sregs = vcpu.get_sregs()?;
    let segment = |type_: u8, selector: u16| kvm_segment {
        limit: u32::MAX,
        selector: selector | u16::from(cpl),
        type_,
        present: 1,
        dpl: cpl,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    };
    sregs.cs = segment(11, 0x8);
    let data = segment(3, 0x10);
    [sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss] = [data; 5];
    sregs.cr0 = CR0;
    vcpu.set_sregs(&sregs)?;
    vcpu.set_regs(&kvm_regs {
        rip: ENTRY,
        rsp: STACK,
        rflags: RFLAGS,
        rdi: edi,
        rdx: REST,
        rsi: esi.into(),
        ..Default::default()
    })
}

/// Program that spins. EDI: PAUSEs per spin, EDX: passes of the rest, ESI: spins.
fn program(distance: u32) -> Vec<u8> {
    let mut code = vec![0x89, 0xf9]; // again: mov ecx, edi
                                     // Bochs without its debugger runs instructions in traces, and its clock
                                     // shows the start of the trace. So the first PAUSE must start a trace,
                                     // as the others do.
    code.extend([0xeb, 0x00]); // jmp spin
    let spin = code.len();
    code.extend([0xf3, 0x90]); // spin: pause
    code.extend(std::iter::repeat_n(0x90, distance as usize - 3)); // nop
    code.push(0x49); // dec ecx
    jump_if_not_zero(&mut code, spin);
    code.extend([0x89, 0xd1]); // mov ecx, edx
    let rest = code.len();
    code.push(0x49); // rest: dec ecx
    jump_if_not_zero(&mut code, rest);
    code.push(0x4e); // dec esi
    jump_if_not_zero(&mut code, 0);
    code.extend([0xe6, END_PORT]); // out END_PORT, al
    code
}

fn jump_if_not_zero(code: &mut Vec<u8>, target: usize) {
    code.extend([0x0f, 0x85]);
    let next = code.len() as i32 + 4;
    code.extend((target as i32 - next).to_le_bytes());
}
