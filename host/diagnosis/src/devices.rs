// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices behind well-known ports, registers and addresses of x86 machines of QEMU.

use serde::Serialize;

/// How a guest reaches a device or a setting of its processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An I/O port (IN, OUT).
    Port,
    /// A model-specific register (RDMSR, WRMSR).
    Msr,
    /// Memory of a device.
    Mmio,
}

impl Kind {
    /// In the order of their numbers in the BPF programs, from 1 on.
    pub const ALL: [Kind; 3] = [Kind::Port, Kind::Msr, Kind::Mmio];
}

/// The purpose of a device, as far as advice depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The real-time clock, from which some guests get their ticks.
    Rtc,
    /// The timer of the original PC.
    Pit,
    /// A clock that guests read if they trust no better one.
    PmTimer,
    Hpet,
    /// The processor's timer, which most guests use for wake-ups.
    ApicTimer,
    /// The rest of the processor's interrupt controller.
    Apic,
    /// Timers of Hyper-V's interface, and the controller for their interrupts.
    HvTimer,
    /// The clock of Hyper-V's interface, read with an exit.
    HvClock,
    /// The interrupt controller in Hyper-V's interface.
    HvApic,
    /// Another part of Hyper-V's interface.
    Hv,
    Serial,
    Display,
    /// A disk or CD controller other than virtio.
    Disk,
    /// Performance counters.
    Counters,
    /// Power, temperature and frequency of the processor.
    Sensors,
    Other,
}

impl Role {
    /// Whether only a guest on Hyper-V's interface accesses it, mostly Windows.
    pub fn is_of_hyperv(self) -> bool {
        matches!(self, Role::HvTimer | Role::HvClock | Role::HvApic | Role::Hv)
    }
}

/// A known range of addresses.
#[derive(Debug, PartialEq, Eq)]
pub struct Device {
    first: u64,
    last: u64,
    pub role: Role,
    pub name: &'static str,
}

const fn of(first: u64, last: u64, role: Role, name: &'static str) -> Device {
    Device { first, last, role, name }
}

/// The device at an address; `None` if unknown.
pub fn at(kind: Kind, address: u64) -> Option<&'static Device> {
    let table = match kind {
        Kind::Port => PORTS,
        Kind::Msr => MSRS,
        Kind::Mmio => MEMORY,
    };
    let next = table.partition_point(|device| device.first <= address);
    table[..next].last().filter(|device| address <= device.last)
}

/// Ports of the IBM PC/AT are in Linux's arch/x86/kernel/setup.c (`standard_io_resources`) and in
/// QEMU's hw/i386/pc.c, hw/isa and hw/char. For others see the comments.
const PORTS: &[Device] = &[
    of(0x0, 0x1f, Role::Other, "DMA controller"),
    of(0x20, 0x21, Role::Other, "interrupt controller (8259)"),
    of(0x40, 0x43, Role::Pit, "timer (PIT)"),
    of(0x60, 0x60, Role::Other, "keyboard controller (i8042)"),
    of(0x61, 0x61, Role::Pit, "timer (PIT), gate of channel 2"),
    of(0x64, 0x64, Role::Other, "keyboard controller (i8042)"),
    of(0x70, 0x71, Role::Rtc, "real-time clock (RTC)"),
    of(0x80, 0x80, Role::Other, "delay (POST code)"),
    of(0x81, 0x8f, Role::Other, "DMA controller"),
    of(0x92, 0x92, Role::Other, "reset and A20 gate"),
    of(0xa0, 0xa1, Role::Other, "interrupt controller (8259)"),
    of(0xb2, 0xb3, Role::Other, "APM control, system management interrupts"),
    of(0xc0, 0xdf, Role::Other, "DMA controller"),
    of(0x170, 0x177, Role::Disk, "IDE controller"),
    // QEMU's include/hw/display/bochs-vbe.h: VBE_DISPI_IOPORT_INDEX, _DATA
    of(0x1ce, 0x1d0, Role::Display, "display (Bochs VBE)"),
    of(0x1f0, 0x1f7, Role::Disk, "IDE controller"),
    of(0x2e8, 0x2ef, Role::Serial, "serial line 4"),
    of(0x2f8, 0x2ff, Role::Serial, "serial line 2"),
    of(0x376, 0x376, Role::Disk, "IDE controller"),
    of(0x378, 0x37f, Role::Other, "parallel port"),
    of(0x3b0, 0x3df, Role::Display, "display (VGA)"),
    of(0x3e8, 0x3ef, Role::Serial, "serial line 3"),
    of(0x3f0, 0x3f5, Role::Disk, "floppy controller"),
    of(0x3f6, 0x3f6, Role::Disk, "IDE controller"),
    of(0x3f7, 0x3f7, Role::Disk, "floppy controller"),
    of(0x3f8, 0x3ff, Role::Serial, "serial line 1"),
    // OVMF's debug port, QEMU's docs/specs and hw/char/debugcon.c
    of(0x402, 0x402, Role::Serial, "debug console"),
    // QEMU's docs/specs/fw_cfg.rst
    of(0x510, 0x51b, Role::Other, "firmware configuration (fw_cfg)"),
    // ICH9's registers of power management, of machine q35: QEMU's include/hw/southbridge/ich9.h and
    // hw/acpi/ich9.c; the timer is at 8 (ACPI 6.5, 4.8.3.3)
    of(0x600, 0x607, Role::Other, "power management (ACPI, q35)"),
    of(0x608, 0x60b, Role::PmTimer, "ACPI PM timer (q35)"),
    of(0x60c, 0x67f, Role::Other, "power management (ACPI, q35)"),
    // PCI Local Bus 3.0, 3.2.2.3.2; 0xcf9 is reset
    of(0xcd8, 0xce3, Role::Other, "CPU hotplug (ACPI, q35)"),
    of(0xcf8, 0xcff, Role::Other, "PCI configuration"),
    // QEMU's hw/i386/vmport.c
    of(0x5658, 0x5659, Role::Other, "VMware's port (vmport, mouse)"),
    // QEMU's docs/specs/acpi_pci_hotplug.rst and acpi_cpu_hotplug.rst
    of(0xae00, 0xae17, Role::Other, "PCI hotplug (ACPI)"),
    of(0xaf00, 0xaf1f, Role::Other, "CPU hotplug (ACPI)"),
    of(0xafe0, 0xafe3, Role::Other, "general-purpose events (ACPI)"),
    // PIIX4's, of machine pc: QEMU's hw/acpi/piix4.c; SeaBIOS and OVMF put it there
    of(0xb000, 0xb007, Role::Other, "power management (ACPI, pc)"),
    of(0xb008, 0xb00b, Role::PmTimer, "ACPI PM timer (pc)"),
    of(0xb00c, 0xb03f, Role::Other, "power management (ACPI, pc)"),
];

/// Intel's registers are in volume 4 of its manual (SDM). Names are those of Linux's
/// arch/x86/include/asm/msr-index.h unless another file is named.
const MSRS: &[Device] = &[
    of(0x10, 0x10, Role::Other, "time stamp counter"),
    // arch/x86/include/uapi/asm/kvm_para.h
    of(0x11, 0x12, Role::Other, "KVM clock"),
    of(0x1b, 0x1b, Role::Apic, "place of the interrupt controller"),
    of(0x34, 0x34, Role::Sensors, "count of system management interrupts"),
    of(0x3b, 0x3b, Role::Other, "adjustment of the time stamp counter"),
    of(0x48, 0x49, Role::Other, "speculation control (SPEC_CTRL, PRED_CMD)"),
    of(0xc1, 0xc8, Role::Counters, "performance counters"),
    of(0xe1, 0xe1, Role::Other, "limits of UMWAIT"),
    of(0xe7, 0xe8, Role::Sensors, "frequency (MPERF, APERF)"),
    of(0x186, 0x18d, Role::Counters, "performance counters"),
    of(0x198, 0x199, Role::Sensors, "frequency (PERF_STATUS, PERF_CTL)"),
    of(0x19a, 0x19c, Role::Sensors, "temperature"),
    of(0x1a2, 0x1a2, Role::Sensors, "temperature"),
    of(0x1b1, 0x1b1, Role::Sensors, "temperature"),
    of(0x1d9, 0x1d9, Role::Counters, "debug control (DEBUGCTL)"),
    of(0x1fc, 0x1fc, Role::Sensors, "power control"),
    of(0x309, 0x30c, Role::Counters, "performance counters"),
    of(0x38d, 0x390, Role::Counters, "performance counters"),
    of(0x4c1, 0x4c8, Role::Counters, "performance counters"),
    of(0x600, 0x600, Role::Counters, "performance counters (DS_AREA)"),
    of(0x606, 0x641, Role::Sensors, "power (RAPL)"),
    of(0x6e0, 0x6e0, Role::ApicTimer, "timer of the processor (TSC deadline)"),
    // x2APIC: SDM, volume 3, table 11-6 (the offset of arch/x86/include/asm/apicdef.h >> 4)
    of(0x800, 0x807, Role::Apic, "interrupt controller (x2APIC)"),
    of(0x808, 0x808, Role::Apic, "interrupt controller (x2APIC): task priority (TPR)"),
    of(0x809, 0x80a, Role::Apic, "interrupt controller (x2APIC)"),
    of(0x80b, 0x80b, Role::Apic, "interrupt controller (x2APIC): end of interrupt (EOI)"),
    of(0x80c, 0x82f, Role::Apic, "interrupt controller (x2APIC)"),
    of(0x830, 0x830, Role::Apic, "interrupt controller (x2APIC): sends an interrupt (ICR)"),
    of(0x831, 0x831, Role::Apic, "interrupt controller (x2APIC)"),
    of(0x832, 0x832, Role::ApicTimer, "timer of the processor (x2APIC): mode"),
    of(0x833, 0x837, Role::Apic, "interrupt controller (x2APIC)"),
    of(0x838, 0x839, Role::ApicTimer, "timer of the processor (x2APIC): count"),
    of(0x83a, 0x83d, Role::Apic, "interrupt controller (x2APIC)"),
    of(0x83e, 0x83e, Role::ApicTimer, "timer of the processor (x2APIC): divider"),
    of(0x83f, 0x83f, Role::Apic, "interrupt controller (x2APIC): interrupts itself"),
    of(0x840, 0x8ff, Role::Apic, "interrupt controller (x2APIC)"),
    of(0xda0, 0xda0, Role::Other, "saved state (XSS)"),
    // Hyper-V's: arch/x86/include/asm/hyperv-tlfs.h, include/hyperv/hvgdk_mini.h from 6.14 on
    of(0x4000_0000, 0x4000_0000, Role::Hv, "Hyper-V: identity of the guest"),
    of(0x4000_0001, 0x4000_0001, Role::Hv, "Hyper-V: page for hypercalls"),
    of(0x4000_0002, 0x4000_0003, Role::Hv, "Hyper-V: number of the vCPU, reset"),
    of(0x4000_0010, 0x4000_0010, Role::Hv, "Hyper-V: run time of the vCPU"),
    of(0x4000_0020, 0x4000_0020, Role::HvClock, "Hyper-V: clock, read by an exit"),
    of(0x4000_0021, 0x4000_0021, Role::Hv, "Hyper-V: page of the clock"),
    of(0x4000_0022, 0x4000_0023, Role::Hv, "Hyper-V: frequencies"),
    of(0x4000_0070, 0x4000_0070, Role::HvApic, "Hyper-V: end of interrupt"),
    of(0x4000_0071, 0x4000_0071, Role::HvApic, "Hyper-V: sends an interrupt"),
    of(0x4000_0072, 0x4000_0072, Role::HvApic, "Hyper-V: task priority"),
    of(0x4000_0073, 0x4000_0073, Role::HvApic, "Hyper-V: page of the interrupt controller"),
    of(0x4000_0080, 0x4000_0083, Role::HvTimer, "Hyper-V: interrupt controller (SynIC)"),
    of(0x4000_0084, 0x4000_0084, Role::HvTimer, "Hyper-V: end of message (SynIC)"),
    of(0x4000_0090, 0x4000_009f, Role::HvTimer, "Hyper-V: interrupt controller (SynIC)"),
    of(0x4000_00b0, 0x4000_00b7, Role::HvTimer, "Hyper-V: timers (stimer)"),
    of(0x4000_00f0, 0x4000_00f0, Role::Hv, "Hyper-V: idle"),
    of(0x4000_0100, 0x4000_0105, Role::Hv, "Hyper-V: report of a crash"),
    of(0x4000_0106, 0x4000_0118, Role::Hv, "Hyper-V: frequency of the time stamp counter"),
    // KVM's: arch/x86/include/uapi/asm/kvm_para.h
    of(0x4b56_4d00, 0x4b56_4d01, Role::Other, "KVM clock"),
    of(0x4b56_4d02, 0x4b56_4d02, Role::Other, "KVM: page faults without waiting"),
    of(0x4b56_4d03, 0x4b56_4d03, Role::Other, "KVM: stolen time"),
    of(0x4b56_4d04, 0x4b56_4d04, Role::Other, "KVM: end of interrupt"),
    of(0x4b56_4d05, 0x4b56_4d05, Role::Other, "KVM: polling after HLT"),
    of(0x4b56_4d06, 0x4b56_4d07, Role::Other, "KVM: page faults without waiting"),
    of(0xc000_0080, 0xc000_0080, Role::Other, "modes of the processor (EFER)"),
    of(0xc000_0300, 0xc000_0302, Role::Counters, "performance counters"),
    // AMD's
    of(0xc001_0000, 0xc001_0007, Role::Counters, "performance counters"),
    of(0xc001_0062, 0xc001_0063, Role::Sensors, "frequency"),
    of(0xc001_011f, 0xc001_011f, Role::Other, "speculation control (VIRT_SPEC_CTRL)"),
    of(0xc001_0200, 0xc001_020b, Role::Counters, "performance counters"),
    of(0xc001_0299, 0xc001_029b, Role::Sensors, "power (RAPL)"),
];

/// Memory of devices, in whole pages. The firmware chooses the addresses of PCI devices.
const MEMORY: &[Device] = &[
    of(0xa_0000, 0xb_ffff, Role::Display, "display (VGA)"),
    // include/hw/i386/ioapic.h of QEMU: IO_APIC_DEFAULT_ADDRESS
    of(0xfec0_0000, 0xfec0_0fff, Role::Other, "interrupt controller (I/O APIC)"),
    // include/hw/timer/hpet.h: HPET_BASE
    of(0xfed0_0000, 0xfed0_0fff, Role::Hpet, "HPET timer"),
    // include/hw/southbridge/ich9.h: ICH9_CC_ADDR
    of(0xfed1_c000, 0xfed1_ffff, Role::Other, "chipset (q35)"),
    // include/hw/acpi/tpm.h: TPM_TIS_ADDR_BASE
    of(0xfed4_0000, 0xfed4_4fff, Role::Other, "TPM"),
    // arch/x86/include/asm/apicdef.h: APIC_DEFAULT_PHYS_BASE
    of(0xfee0_0000, 0xfee0_0fff, Role::Apic, "interrupt controller (APIC)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_order_and_apart() {
        for (table, last) in [(PORTS, 0xffff), (MSRS, u64::from(u32::MAX)), (MEMORY, u64::MAX)] {
            assert!(table.iter().all(|of| of.first <= of.last && of.last <= last));
            for two in table.windows(2) {
                assert!(two[0].last < two[1].first, "{:x?}", two[1]);
            }
        }
        assert!(MEMORY.iter().all(|of| of.first % 0x1000 == 0 && of.last % 0x1000 == 0xfff));
    }

    #[test]
    fn well_known_places_are_known() {
        for (kind, address, role, words) in [
            (Kind::Port, 0x70, Role::Rtc, "RTC"),
            (Kind::Port, 0x71, Role::Rtc, "RTC"),
            (Kind::Port, 0x43, Role::Pit, "PIT"),
            (Kind::Port, 0x608, Role::PmTimer, "q35"),
            (Kind::Port, 0xb008, Role::PmTimer, "PM timer"),
            (Kind::Port, 0xb000, Role::Other, "ACPI"),
            (Kind::Port, 0x3fd, Role::Serial, "serial line 1"),
            (Kind::Port, 0xcf8, Role::Other, "PCI"),
            (Kind::Msr, 0x6e0, Role::ApicTimer, "TSC deadline"),
            (Kind::Msr, 0x830, Role::Apic, "ICR"),
            (Kind::Msr, 0x80b, Role::Apic, "EOI"),
            (Kind::Msr, 0x4000_0001, Role::Hv, "hypercalls"),
            (Kind::Msr, 0x4000_0020, Role::HvClock, "clock"),
            (Kind::Msr, 0x4000_0070, Role::HvApic, "end of interrupt"),
            (Kind::Msr, 0x4000_0084, Role::HvTimer, "SynIC"),
            (Kind::Msr, 0x4000_00b1, Role::HvTimer, "stimer"),
            (Kind::Msr, 0xc001_0201, Role::Counters, "performance"),
            (Kind::Mmio, 0xfed0_0000, Role::Hpet, "HPET"),
            (Kind::Mmio, 0xfee0_0000, Role::Apic, "APIC"),
        ] {
            let device = at(kind, address).unwrap_or_else(|| panic!("{kind:?} {address:#x}"));
            assert_eq!(device.role, role, "{kind:?} {address:#x}");
            assert!(device.name.contains(words), "{}", device.name);
        }
        for (kind, address) in [
            (Kind::Port, 0xc0a0),
            (Kind::Port, 0x72),
            (Kind::Msr, 0),
            (Kind::Msr, 0x900),
            (Kind::Msr, 0x7000_0000),
            (Kind::Mmio, 0xfe00_0000),
            (Kind::Mmio, u64::MAX),
        ] {
            assert_eq!(at(kind, address), None, "{kind:?} {address:#x}");
        }
        for of in MSRS {
            let is_hyperv = (0x4000_0000..0x4001_0000).contains(&of.first);
            assert_eq!(of.role.is_of_hyperv(), is_hyperv, "{of:x?}");
        }
    }
}
