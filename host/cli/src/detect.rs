// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects whether this host has KVM with pause-loop exiting. The existence of /dev/kvm is not
//! enough: it may be an emulation without PLE.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use unspin_host::place::under;
use unspin_text::read_kernel_text;

/// IA32_VMX_PROCBASED_CTLS2 (Intel SDM, A.3.3). The upper half has the controls that may be 1.
const MSR_PROCBASED_CTLS2: u64 = 0x48b;
/// PAUSE-loop exiting, bit 10 of the secondary controls.
const PLE_ALLOWED: u64 = 1 << (32 + 10);

/// Why spinning vCPUs do not exit on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lacks {
    /// The processor does not support it.
    Processor(String),
    /// The processor may support it, but KVM is not loaded, has it off, or does not show it.
    Kvm(String),
}

impl Lacks {
    pub fn why(self) -> String {
        match self {
            Lacks::Processor(why) | Lacks::Kvm(why) => why,
        }
    }
}

/// Whether this process can use KVM on the host under `root`, with exits of spinning vCPUs; or why not.
pub fn kvm(root: &Path) -> Result<(), String> {
    let cpuinfo = cpuinfo(root).map_err(Lacks::why)?;
    may_open(&root.join("dev/kvm"))?;
    of_cpuinfo(root, &cpuinfo).map_err(Lacks::why)
}

/// Whether both processor and KVM of the host under `root` support exits of spinning vCPUs; or why not.
pub fn processor(root: &Path) -> Result<(), Lacks> {
    of_cpuinfo(root, &cpuinfo(root)?)
}

fn cpuinfo(root: &Path) -> Result<String, Lacks> {
    read_kernel_text(under(root, "proc/cpuinfo"))
        .map_err(|e| Lacks::Kvm(format!("/proc/cpuinfo cannot be read: {e}")))
}

fn of_cpuinfo(root: &Path, cpuinfo: &str) -> Result<(), Lacks> {
    let Some(flags) = field(cpuinfo, "flags") else {
        return Err(Lacks::Kvm("/proc/cpuinfo does not show what the CPU has".into()));
    };
    if has_word(flags, "vmx") {
        intel(root, cpuinfo)
    } else if has_word(flags, "svm") {
        amd(root, flags)
    } else {
        let emulated = match under(root, "dev/kvm").exists() {
            true => ", and /dev/kvm is an emulation without pause-loop exiting",
            false => "",
        };
        Err(Lacks::Processor(format!(
            "the kernel shows neither VT-x nor AMD-V: the CPU lacks it, or the firmware (or the \
             hypervisor below) has it off{emulated}"
        )))
    }
}

/// The option of KVM's module for the CPU of the host under `root`, if its vendor is known.
pub fn kvm_option(root: &Path) -> Option<&'static str> {
    let cpuinfo = cpuinfo(root).ok()?;
    let flags = field(&cpuinfo, "flags")?;
    let options = [("vmx", "CONFIG_KVM_INTEL"), ("svm", "CONFIG_KVM_AMD")];
    options.into_iter().find(|(flag, _)| has_word(flags, flag)).map(|(_, option)| option)
}

fn may_open(dev: &Path) -> Result<(), String> {
    match OpenOptions::new().read(true).write(true).open(dev) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err("no /dev/kvm: load kvm_intel or kvm_amd".to_string())
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            Err("no permission to open /dev/kvm: run as root, or join the group kvm".to_string())
        }
        Err(e) => Err(format!("/dev/kvm cannot be opened: {e}")),
    }
}

fn intel(root: &Path, cpuinfo: &str) -> Result<(), Lacks> {
    let has_ple = match field(cpuinfo, "vmx flags") {
        Some(flags) => has_word(flags, "ple"),
        // Kernels before 5.6 do not list these features.
        None => read_msr(&root.join("dev/cpu/0/msr"), MSR_PROCBASED_CTLS2)
            .map(|v| v & PLE_ALLOWED != 0)
            .map_err(|e| {
                Lacks::Kvm(format!(
                    "whether the CPU has PLE is unknown: /proc/cpuinfo has no vmx flags, and \
                     MSR 0x48b cannot be read ({e}; try modprobe msr)"
                ))
            })?,
    };
    if !has_ple {
        return Err(Lacks::Processor("the CPU's VT-x has no pause-loop exiting".into()));
    }
    match parameter(root, "kvm_intel", "ple_gap")? {
        0 => Err(Lacks::Kvm("PLE is off: kvm_intel was loaded with ple_gap=0".into())),
        _ => Ok(()),
    }
}

fn amd(root: &Path, flags: &str) -> Result<(), Lacks> {
    if !has_word(flags, "pausefilter") {
        return Err(Lacks::Processor("the CPU's AMD-V has no pause filter".into()));
    }
    match parameter(root, "kvm_amd", "pause_filter_count")? {
        0 => Err(Lacks::Kvm(
            "the pause filter is off: kvm_amd was loaded with pause_filter_count=0".into(),
        )),
        _ => Ok(()),
    }
}

fn parameter(root: &Path, module: &str, name: &str) -> Result<u64, Lacks> {
    let path = under(root, &format!("sys/module/{module}/parameters/{name}"));
    let lacks = |why| Lacks::Kvm(why);
    let text = read_kernel_text(&path).map_err(|_| {
        lacks(format!("{module} is not loaded (modprobe {module}) or has no parameter {name}"))
    })?;
    let wrong = || lacks(format!("{module}.{name} is {:?}, not a number", text.trim()));
    text.trim().parse().map_err(|_| wrong())
}

fn read_msr(dev: &Path, msr: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open(dev)?.read_exact_at(&mut bytes, msr)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A field of the first CPU.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|l| {
        let (key, value) = l.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use unspin_scratch::Scratch;

    /// A host in files.
    fn host(cpuinfo: &str) -> Scratch {
        Scratch::with(&[("proc/cpuinfo", cpuinfo), ("dev/kvm", "")])
    }

    fn why_not(host: &Scratch) -> String {
        kvm(host).unwrap_err()
    }

    const INTEL: &str =
        "processor\t: 0\nflags\t\t: fpu vmx sse\nvmx flags\t: vnmi ept ple shadow_vmcs\n";

    #[test]
    fn intel_needs_the_flag_and_a_gap() {
        let h = host(INTEL);
        assert!(why_not(&h).contains("kvm_intel is not loaded"));
        h.write("sys/module/kvm_intel/parameters/ple_gap", b"128\n");
        assert_eq!(kvm(&h), Ok(()));
        h.write("sys/module/kvm_intel/parameters/ple_gap", b"0\n");
        assert!(why_not(&h).contains("ple_gap=0"));
        h.write("proc/cpuinfo", INTEL.replace("ple ", "").as_bytes());
        assert!(why_not(&h).contains("no pause-loop exiting"));
    }

    #[test]
    fn without_the_flags_the_msr_decides() {
        let h = host("flags : vmx\n");
        h.write("sys/module/kvm_intel/parameters/ple_gap", b"128\n");
        assert!(why_not(&h).contains("0x48b"));
        let mut msrs = vec![0; 0x48b + 8];
        msrs[0x48b..].copy_from_slice(&(1u64 << 10).to_le_bytes());
        h.write("dev/cpu/0/msr", &msrs);
        assert!(why_not(&h).contains("no pause-loop exiting"), "the lower half is what must be 1");
        msrs[0x48b..].copy_from_slice(&(1u64 << 42).to_le_bytes());
        h.write("dev/cpu/0/msr", &msrs);
        assert_eq!(kvm(&h), Ok(()));
    }

    #[test]
    fn amd_needs_the_pause_filter() {
        let h = host("flags : svm npt pausefilter pfthreshold\n");
        h.write("sys/module/kvm_amd/parameters/pause_filter_count", b"3000\n");
        assert_eq!(kvm(&h), Ok(()));
        h.write("proc/cpuinfo", b"flags : svm npt\n");
        assert!(why_not(&h).contains("no pause filter"));
    }

    #[test]
    fn an_emulated_dev_kvm_is_refused() {
        let h = host("flags : fpu hypervisor\n");
        assert!(why_not(&h).contains("emulation"));
        fs::remove_file(h.join("dev/kvm")).unwrap();
        assert!(why_not(&h).contains("no /dev/kvm"));
        let why = processor(&h).unwrap_err().why();
        assert!(why.contains("or the firmware") && !why.contains("emulation"), "{why}");
        h.write("proc/cpuinfo", "");
        assert!(matches!(processor(&h), Err(Lacks::Kvm(_))), "it is unknown");
    }
}
