// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU that a real-time thread keeps from its CPU, while its siblings spin and yield to each
//! other; a vCPU that moves from thread to thread; a vCPU that does nothing for a while.

use crate::exact::to_the_end;
use crate::machine::{be_realtime, code_between, pin, says, shell, wait, Memory};
use crate::spinner::{self, Spinner, Words, FOR_EVER};
use kvm_bindings::kvm_msi;
use kvm_ioctls::VmFd;
use std::arch::global_asm;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The two spinners share one CPU, so that each always has a vCPU to yield to. The victim has
/// another CPU.
const SPINNERS_CPU: u32 = 1;
const VICTIM_CPU: u32 = 2;
const CLOCK_CPU: u32 = 3;
const VICTIM: usize = 2;
/// Cycles of a spin.
const LENGTH: u32 = 20_000;
/// Time for which the victim sleeps before it is woken: longer than any vCPU may wait, or shorter.
const LONG_SLEEP: Duration = Duration::from_millis(1500);
const SHORT_SLEEP: Duration = Duration::from_millis(100);

const COUNT: usize = 0x1800;
const SLEEP: usize = 0x1880;
const HANDLER: usize = 0x18c0;
const IDT: usize = 0x3000;
const GDT: usize = 0x3800;
const NMI: usize = 2;

// 32-bit protected mode. ESI: the vCPU's words. Counts, either all the time or whenever it is woken.
global_asm!(
    ".pushsection .rodata.unspin_victims, \"a\"",
    ".globl unspin_count_begin, unspin_count_end, unspin_sleep_begin, unspin_sleep_end",
    ".code32",
    "unspin_count_begin:",
    "2: inc dword ptr [esi + 4]",
    "jmp 2b",
    "unspin_count_end:",
    "unspin_sleep_begin:",
    "3: hlt",
    "inc dword ptr [esi + 4]",
    "jmp 3b",
    "unspin_sleep_end:",
    ".code64",
    ".popsection",
);
extern "C" {
    static unspin_count_begin: u8;
    static unspin_count_end: u8;
    static unspin_sleep_begin: u8;
    static unspin_sleep_end: u8;
}

/// The victim's state when its CPU is taken.
#[derive(Clone, Copy, PartialEq)]
pub enum How {
    Preempted,
    /// Woken from a sleep just before.
    Woken,
    /// Woken from a long sleep.
    Slept,
}

impl How {
    pub fn parse(name: &str) -> Result<How, String> {
        match name {
            "preempted" => Ok(How::Preempted),
            "woken" => Ok(How::Woken),
            "slept" => Ok(How::Slept),
            _ => Err(format!("{name} is not preempted, woken or slept")),
        }
    }
}

/// Takes the victim's CPU for `hog_ms`. Returns after how many ms its VM was left to KVM, if it was, and
/// the longest time in ms for which a real-time thread on an idle CPU did not run, because an emulator's
/// clock may jump.
pub fn run(how: How, hog_ms: u64) -> Result<String, String> {
    let (ended, longest_gap_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clock = clock(ended.clone(), longest_gap_ms.clone());
    let found = beside_hog(how, hog_ms);
    ended.store(true, Ordering::SeqCst);
    clock.join().map_err(|_| "the clock's thread panicked".to_string())??;
    Ok(format!("{}, clock jumped {} ms", found?, longest_gap_ms.load(Ordering::SeqCst)))
}

fn beside_hog(how: How, hog_ms: u64) -> Result<String, String> {
    let memory = Memory::new(spinner::MEMORY)?;
    load(memory);
    let vm = memory.vm()?;
    vm.create_irq_chip().map_err(says("KVM_CREATE_IRQCHIP"))?;
    let spinners = [0, 1].map(|index| Spinner::new(&vm, memory, index, SPINNERS_CPU));
    for spinner in &spinners {
        let spinner = spinner.as_ref().map_err(Clone::clone)?;
        spinner.words.set_long(FOR_EVER, LENGTH);
        spinner.start(FOR_EVER)?;
    }
    let victim = start_victim(&vm, memory, how)?;
    let events = format!("/sys/module/unspin/vms/{}-0/fail_open_events", std::process::id());
    wait("the VM's directory", || fs::metadata(&events).is_ok())?;
    match how {
        How::Preempted => wait("the victim", || victim.made() > 0)?,
        How::Woken => sleeps(&vm, &victim, SHORT_SLEEP)?,
        How::Slept => sleeps(&vm, &victim, LONG_SLEEP)?,
    }
    let holds = Arc::new(AtomicBool::new(false));
    let hog = hog(Duration::from_millis(hog_ms), holds.clone());
    wait("the hog", || holds.load(Ordering::SeqCst))?;
    let (start, counted) = (Instant::now(), victim.made());
    if how != How::Preempted {
        wake(&vm)?;
    }
    let mut fell_back = None;
    while !hog.is_finished() {
        let text = fs::read_to_string(&events).map_err(|e| format!("{events}: {e}"))?;
        if text.trim() != "0" && fell_back.is_none() {
            fell_back = Some(start.elapsed().as_millis());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    hog.join().map_err(|_| "the hog panicked".to_string())??;
    wait("the victim, which has its CPU again", || victim.made() != counted)?;
    for spinner in spinners.into_iter().flatten() {
        spinner.stop()?;
    }
    match fell_back {
        Some(ms) => Ok(format!("fell back after {ms} ms")),
        None => Ok(format!("did not fall back in {hog_ms} ms")),
    }
}

/// Loads all programs, and the handler of an NMI.
fn load(memory: Memory) {
    const IRETD: u8 = 0xcf;
    spinner::load(memory);
    // SAFETY: each pair of labels is in one section, in this order.
    unsafe {
        memory.write(COUNT, code_between(&unspin_count_begin, &unspin_count_end));
        memory.write(SLEEP, code_between(&unspin_sleep_begin, &unspin_sleep_end));
    }
    memory.write(HANDLER, &[IRETD]);
    let gate = HANDLER as u64 | 0x8 << 16 | 0x8e00 << 32; // selector 8, a 32-bit interrupt gate
    memory.write(IDT + NMI * 8, &gate.to_le_bytes());
    for (index, descriptor) in
        [0, 0x00cf_9b00_0000_ffffu64, 0x00cf_9300_0000_ffff].iter().enumerate()
    {
        memory.write(GDT + index * 8, &descriptor.to_le_bytes());
    }
}

fn start_victim(vm: &VmFd, memory: Memory, how: How) -> Result<Words, String> {
    let (mut vcpu, words) = spinner::make(vm, memory, VICTIM)?;
    let mut regs = vcpu.get_regs().map_err(says("KVM_GET_REGS"))?;
    regs.rip = if how == How::Preempted { COUNT } else { SLEEP } as u64;
    vcpu.set_regs(&regs).map_err(says("KVM_SET_REGS"))?;
    let mut sregs = vcpu.get_sregs().map_err(says("KVM_GET_SREGS"))?;
    (sregs.idt.base, sregs.idt.limit) = (IDT as u64, 0xff);
    (sregs.gdt.base, sregs.gdt.limit) = (GDT as u64, 0x17);
    vcpu.set_sregs(&sregs).map_err(says("KVM_SET_SREGS"))?;
    // KVM updates the list of vCPUs that may receive interrupts only when the state of a local APIC
    // is set.
    let lapic = vcpu.get_lapic().map_err(says("KVM_GET_LAPIC"))?;
    vcpu.set_lapic(&lapic).map_err(says("KVM_SET_LAPIC"))?;
    // It runs until the process ends.
    std::thread::spawn(move || pin(VICTIM_CPU).and_then(|()| to_the_end(&mut vcpu)));
    Ok(words)
}

/// A real-time thread that wakes up every few milliseconds, and records the longest time between.
fn clock(
    ended: Arc<AtomicBool>,
    longest_gap_ms: Arc<AtomicU64>,
) -> std::thread::JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        pin(CLOCK_CPU)?;
        be_realtime()?;
        let mut before = Instant::now();
        while !ended.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            let now = Instant::now();
            let gap_ms = (now - before).as_millis() as u64;
            longest_gap_ms.fetch_max(gap_ms, Ordering::SeqCst);
            before = now;
        }
        Ok(())
    })
}

/// A real-time thread on the victim's CPU.
fn hog(length: Duration, holds: Arc<AtomicBool>) -> std::thread::JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        pin(VICTIM_CPU)?;
        be_realtime()?;
        holds.store(true, Ordering::SeqCst);
        let start = Instant::now();
        while start.elapsed() < length {
            std::hint::spin_loop();
        }
        Ok(())
    })
}

/// Waits until the victim has been halted for `length`. The victim counts an NMI that finds it
/// halted, and halts again at once.
fn sleeps(vm: &VmFd, victim: &Words, length: Duration) -> Result<(), String> {
    wait("a victim that halts", || {
        let woken = wake(vm).is_ok();
        std::thread::sleep(SHORT_SLEEP);
        woken && victim.made() > 0
    })?;
    std::thread::sleep(length);
    Ok(())
}

/// Sends the victim an NMI, which does not depend on its local APIC.
fn wake(vm: &VmFd) -> Result<(), String> {
    const DELIVERY_NMI: u32 = 4 << 8;
    let msi = kvm_msi {
        address_lo: 0xfee0_0000 | (VICTIM as u32) << 12,
        data: DELIVERY_NMI,
        ..Default::default()
    };
    match vm.signal_msi(msi).map_err(says("KVM_SIGNAL_MSI"))? {
        0 => Err("no vCPU took the NMI".into()),
        _ => Ok(()),
    }
}

/// A vCPU that `rounds` threads run one after the other, beside one that always spins on the same
/// CPU and yields to it.
pub fn hand_over(rounds: u32) -> Result<String, String> {
    const SPINS: u32 = 20;
    let memory = Memory::new(spinner::MEMORY)?;
    spinner::load(memory);
    let vm = memory.vm()?;
    let other = Spinner::new(&vm, memory, 0, SPINNERS_CPU)?;
    other.words.set_long(FOR_EVER, LENGTH);
    other.start(FOR_EVER)?;
    let (mut vcpu, words) = spinner::make(&vm, memory, 1)?;
    words.set_long(FOR_EVER, LENGTH);
    for _ in 0..rounds {
        words.set_left(SPINS);
        let thread = std::thread::spawn(move || {
            pin(SPINNERS_CPU)?;
            to_the_end(&mut vcpu).map(|()| vcpu)
        });
        vcpu = thread.join().map_err(|_| "a vCPU's thread panicked".to_string())??;
    }
    other.stop()?;
    let (made, wanted) = (words.made(), rounds * SPINS);
    if made != wanted {
        return Err(format!("{made} spins, not {wanted}"));
    }
    let file = |name| format!("/sys/module/unspin/vms/{}-0/{name}", std::process::id());
    let count = |name| {
        let text = fs::read_to_string(file(name)).map_err(|e| format!("{}: {e}", file(name)))?;
        text.trim().parse::<u64>().map_err(|e| format!("{}: {e}", file(name)))
    };
    let yields = ["yields_resource_waiter", "yields_lock_waiter", "yields_yielded"];
    let yields = yields.into_iter().map(count).sum::<Result<u64, String>>()?;
    Ok(format!("{yields} yields, {} of them ran next", count("picks_ran_next")?))
}

/// A VM whose vCPU has run pauses while a shell runs `line`. Afterwards it must run again.
pub fn beside(line: &str) -> Result<String, String> {
    const SPINS: u32 = 10;
    let memory = Memory::new(spinner::MEMORY)?;
    spinner::load(memory);
    let vm = memory.vm()?;
    let (mut vcpu, words) = spinner::make(&vm, memory, 0)?;
    let mut spin = || {
        words.set_left(SPINS);
        to_the_end(&mut vcpu)
    };
    spin()?;
    shell(line)?;
    spin()?;
    Ok(format!("{} spins", words.made()))
}
