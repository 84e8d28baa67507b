// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which programs are chosen for other kernels, from their type information, and which kernels are
//! refused.

mod btf;

use btf::Types;
use unspin_probe::{Error, Exit, Extent, Plan, Throttling};
use unspin_scratch::Scratch;

/// A kernel, as the lines of each file of /sys/kernel/btf.
#[derive(Clone)]
struct Kernel {
    release: &'static str,
    vmlinux: String,
    /// `None`: modules have no types.
    modules: Option<[String; 3]>,
}

const SWITCH_OF_3: &str = "bool, struct task_struct *, struct task_struct *";
const SWITCH_OF_4: &str = "bool, struct task_struct *, struct task_struct *, unsigned int";
const EXIT_FOR: &str = "unsigned int, struct kvm_vcpu *, u32";
const EXIT: &str = "struct kvm_vcpu *, u32";

const NAMES: [&str; 3] = ["kvm", "kvm_intel", "kvm_amd"];

/// The types of a kernel with these fields and prototypes.
fn kernel(release: &'static str, [state, switch, clocks, exit, vmx]: [&str; 5]) -> Kernel {
    let vmlinux = format!(
        "struct cfs_rq {{ int runtime_enabled; {clocks} }}
         struct sched_entity {{ u64 vruntime; struct cfs_rq * cfs_rq; }}
         struct task_struct {{ {state}; int pid; int tgid; struct task_struct * group_leader; char comm[16]; struct sched_entity se; }}
         trace sched_switch({switch})
         trace sched_waking(struct task_struct *)
         trace sched_migrate_task(struct task_struct *, int)"
    );
    let kvm = format!(
        "struct kvm_vcpu_arch {{ unsigned long regs[17]; }}
         struct kvm_vcpu {{ struct kvm * kvm; struct kvm_vcpu_arch arch; }}
         trace kvm_entry(struct kvm_vcpu *)
         trace kvm_exit({exit})
         trace kvm_userspace_exit(u32, int)
         trace kvm_vcpu_wakeup(u64, bool, bool)
         trace kvm_apic_ipi(u32, u32)
         trace kvm_hypercall(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long)
         trace kvm_pio(unsigned int, unsigned int, unsigned int, unsigned int, void *)
         trace kvm_mmio(int, int, u64, void *)
         trace kvm_fast_mmio(u64)"
    );
    let amd = "struct vmcb_control_area { u32 exit_code; }
               struct vmcb { struct vmcb_control_area control; }
               struct vcpu_svm { struct vmcb * vmcb; }";
    Kernel { release, vmlinux, modules: Some([kvm, vmx.to_string(), amd.to_string()]) }
}

const VMX_U32: &str = "struct vcpu_vmx { u32 exit_reason; }";
const VMX_UNION: &str = "struct vmx_exit_reason { u32 full; }
                         struct vcpu_vmx { struct vmx_exit_reason exit_reason; }";
const VMX_VT: &str = "struct vmx_exit_reason { u32 full; }
                      struct vcpu_vt { struct vmx_exit_reason exit_reason; }
                      struct vcpu_vmx { struct vcpu_vt vt; }";

const STATE_OLD: &str = "volatile long state";
const STATE: &str = "unsigned int __state";
const CLOCK_TASK: &str = "u64 throttled_clock_task_time;";
const CLOCK_PELT: &str = "u64 throttled_clock_pelt_time;";
const CLOCK_SELF: &str = "u64 throttled_clock_pelt_time; u64 throttled_clock_self_time;";

fn el8() -> Kernel {
    kernel("4.18.0-553.el8.x86_64", [STATE_OLD, SWITCH_OF_3, CLOCK_TASK, EXIT_FOR, VMX_U32])
}
fn debian_11() -> Kernel {
    let release = "5.10.0-46-amd64";
    let with = kernel(release, [STATE_OLD, SWITCH_OF_3, CLOCK_TASK, EXIT_FOR, VMX_UNION]);
    Kernel { modules: None, ..with }
}
fn el9() -> Kernel {
    kernel("5.14.0-503.el9.x86_64", [STATE, SWITCH_OF_4, CLOCK_PELT, EXIT, VMX_UNION])
}
fn v5_14() -> Kernel {
    kernel("5.14.21", [STATE, SWITCH_OF_3, CLOCK_TASK, EXIT_FOR, VMX_UNION])
}
fn ubuntu_22() -> Kernel {
    kernel("5.15.0-91-generic", [STATE, SWITCH_OF_3, CLOCK_TASK, EXIT_FOR, VMX_UNION])
}
fn debian_12() -> Kernel {
    kernel("6.1.0-54-amd64", [STATE, SWITCH_OF_4, CLOCK_PELT, EXIT, VMX_UNION])
}
fn debian_13() -> Kernel {
    kernel("6.12.118+deb13-amd64", [STATE, SWITCH_OF_4, CLOCK_SELF, EXIT, VMX_UNION])
}
fn v7_3() -> Kernel {
    kernel("7.3.4+deb13-amd64", [STATE, SWITCH_OF_4, CLOCK_SELF, EXIT, VMX_VT])
}

impl Kernel {
    /// The same kernel, with `of` replaced by `by` in its lines.
    fn with(mut self, of: &str, by: &str) -> Kernel {
        let was = (self.vmlinux.clone(), self.modules.clone());
        self.vmlinux = self.vmlinux.replace(of, by);
        self.modules = self.modules.map(|modules| modules.map(|lines| lines.replace(of, by)));
        assert_ne!(was, (self.vmlinux.clone(), self.modules.clone()), "{of}");
        self
    }

    /// The kernel on a host with processors of one vendor.
    fn plan_on(&self, vendor: &str, extent: Extent) -> Result<Plan, Error> {
        self.plan_with(vendor, "[none] integrity confidentiality", extent)
    }

    fn plan_with(&self, vendor: &str, lockdown: &str, extent: Extent) -> Result<Plan, Error> {
        let dir = Scratch::new();
        let (proc, sys) = (dir.join("proc"), dir.join("sys"));
        dir.line("sys/kernel/security/lockdown", lockdown);
        dir.line("proc/sys/kernel/osrelease", self.release);
        for module in ["kvm", vendor] {
            dir.dir(format!("sys/module/{module}"));
        }
        let types = Types::new(&self.vmlinux, None);
        types.write(&sys.join("kernel/btf/vmlinux"));
        for (name, lines) in NAMES.iter().zip(self.modules.iter().flatten()) {
            if ["kvm", vendor].contains(name) {
                Types::new(lines, Some(&types)).write(&sys.join("kernel/btf").join(name));
            }
        }
        Plan::of(&proc, &sys, extent)
    }

    fn plan(&self) -> Result<Plan, Error> {
        let [intel, amd] = ["kvm_intel", "kvm_amd"].map(|of| self.plan_on(of, Extent::Whole));
        assert_eq!(intel.as_ref().ok(), amd.as_ref().ok(), "{}", self.release);
        intel
    }

    /// The reason of a refusal, which must name this computer as the cause.
    fn why_not(&self) -> String {
        let error = self.plan().expect_err(self.release);
        assert!(error.is_of_this_computer(), "{error}");
        assert!(error.to_string().contains(self.release), "{error}");
        error.to_string()
    }
}

#[test]
fn each_kernel_has_its_programs() {
    for (kernel, exit) in [
        (el8(), Exit::Reason),
        (v5_14(), Exit::Reason),
        (el9().with(EXIT, EXIT_FOR), Exit::Reason),
        (el9(), Exit::Vcpu),
        (ubuntu_22(), Exit::Reason),
        (debian_12(), Exit::Vcpu),
        (debian_13(), Exit::Vcpu),
        (v7_3(), Exit::Vcpu),
    ] {
        let plan = kernel.plan().unwrap_or_else(|e| panic!("{}: {e}", kernel.release));
        assert_eq!(
            plan,
            Plan { exit, throttling: Throttling::Shown, accesses: true, reasons: true }
        );
    }
}

#[test]
fn kernels_without_types_of_kvm_are_refused() {
    for kernel in [debian_11(), Kernel { modules: None, ..el8() }] {
        assert!(kernel.why_not().contains("/sys/kernel/btf/kvm"), "{}", kernel.why_not());
        // Programs without tracepoints of KVM work there.
        assert!(kernel.plan_on("kvm_intel", Extent::Brief).is_ok());
    }
    // A kernel with built-in KVM has the types among its own.
    let mut builtin = debian_12();
    let modules = builtin.modules.take().unwrap();
    builtin.vmlinux = format!("{}\n{}", builtin.vmlinux, modules.join("\n"));
    assert_eq!(builtin.plan().unwrap().exit, Exit::Vcpu);
}

/// A tracepoint passes any other arguments, or does not exist.
#[test]
fn a_tracepoint_of_another_kind_is_named() {
    for (of, name) in [
        (format!("kvm_exit({EXIT})"), "kvm_exit"),
        (format!("sched_switch({SWITCH_OF_4})"), "sched_switch"),
        ("sched_waking(struct task_struct *)".into(), "sched_waking"),
        ("sched_migrate_task(struct task_struct *, int)".into(), "sched_migrate_task"),
        ("kvm_vcpu_wakeup(u64, bool, bool)".into(), "kvm_vcpu_wakeup"),
        ("kvm_hypercall(unsigned long,".into(), "kvm_hypercall"),
    ] {
        for passed in ["u16, u16, u16, u16", "struct other *, u32", "void *, u32, u32", ""] {
            let by = match of.ends_with(',') {
                true => format!("{name}({passed}{}", if passed.is_empty() { "" } else { "," }),
                false => format!("{name}({passed})"),
            };
            // What remains of a longer list still has the needed arguments.
            if by == "kvm_hypercall(" {
                continue;
            }
            let why = v7_3().with(&of, &by).why_not();
            assert!(why.contains(&format!("the tracepoint {name} passes (")), "{by}: {why}");
        }
        let gone = v7_3().with(&format!("trace {name}("), &format!("trace {name}_2("));
        assert!(gone.why_not().contains(&format!("no tracepoint {name}")), "{}", gone.why_not());
    }
    // The arguments in the first release of 5.18.
    let first = "bool, unsigned int, struct task_struct *, struct task_struct *";
    let why = debian_12().with(SWITCH_OF_4, first).why_not();
    let passed =
        "sched_switch passes (bool, unsigned int, struct task_struct *, struct task_struct *)";
    assert!(why.contains(passed), "{why}");
    for name in ["kvm_entry", "kvm_userspace_exit", "kvm_apic_ipi"] {
        let why = v7_3().with(&format!("trace {name}("), "trace other(").why_not();
        assert!(why.contains(&format!("no tracepoint {name}")), "{why}");
    }
}

#[test]
fn a_field_that_is_missing_is_named() {
    for (of, by, why) in [
        (STATE, "unsigned int states", "struct task_struct has no field __state or state"),
        ("int pid", "int number", "struct task_struct has no field pid"),
        ("regs[17]", "registers[17]", "struct kvm_vcpu has no field arch.regs"),
    ] {
        let said = debian_13().with(of, by).why_not();
        assert!(said.contains(why), "{said}");
    }
    // A vendor's structures matter only if the vendor's module is loaded.
    let of_intel =
        debian_13().with("vcpu_vmx { struct vmx_exit_reason exit_reason", "vcpu_vmx { u32 other");
    let of_amd = debian_13().with("u32 exit_code", "u32 code");
    for (kernel, vendor, other, why) in [
        (&of_intel, "kvm_intel", "kvm_amd", "struct vcpu_vmx has no field exit_reason"),
        (&of_amd, "kvm_amd", "kvm_intel", "struct vmcb has no field control.exit_code"),
    ] {
        let said = kernel.plan_on(vendor, Extent::Whole).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
        assert!(kernel.plan_on(other, Extent::Whole).is_ok());
    }
    // A tracepoint that passes the reason makes them unnecessary.
    let before = of_intel.with(EXIT, EXIT_FOR);
    assert_eq!(before.plan_on("kvm_intel", Extent::Whole).unwrap().exit, Exit::Reason);
}

/// What commands find when they start must be known before that, too.
#[test]
fn a_kernel_that_is_locked_down_or_has_no_kvm_is_refused() {
    let plan = |vendor: &str, lockdown: &str| {
        debian_13().plan_with(vendor, lockdown, Extent::Whole).map(drop)
    };
    let locked = "none integrity [confidentiality]";
    assert!(matches!(plan("kvm_intel", locked), Err(Error::LockedDown)));
    assert!(matches!(plan("", locked), Err(Error::NoKvm)));
    assert!(matches!(plan("", "[none]"), Err(Error::NoKvm)));
    assert!(plan("kvm_intel", "none [integrity] confidentiality").is_ok());
}

#[test]
fn what_cannot_be_told_is_unknown() {
    let unknown = debian_13().with(CLOCK_SELF, "u64 throttled_by_another_clock;");
    assert_eq!(unknown.plan().unwrap().throttling, Throttling::Unknown);
    let never = unknown.with("int runtime_enabled", "int nr_running");
    assert_eq!(never.plan().unwrap().throttling, Throttling::Never);
    let unseen = debian_13().with("trace kvm_pio(unsigned int", "trace kvm_pio(struct kvm_vcpu *");
    assert!(!unseen.plan().unwrap().accesses);
    // KVM for another kind of processor.
    assert!(!v7_3().plan_on("kvm_other", Extent::Whole).unwrap().reasons);
}

#[test]
fn types_that_are_none_are_an_error_of_this_computer() {
    let dir = Scratch::new();
    let plan = || Plan::of(&dir, &dir, Extent::Whole).unwrap_err();
    assert!(matches!(plan(), Error::NoTypes(_)));
    for bytes in
        [&b""[..], b"\x7fELF", b"\x9f\xeb\x01\x00\x18\x00\x00\x00\xff\xff\xff\xff", &[0xff; 100]]
    {
        dir.write("kernel/btf/vmlinux", bytes);
        let error = plan();
        assert!(matches!(error, Error::UnreadableTypes { .. }), "{error}");
        assert!(
            error.is_of_this_computer() && error.to_string().contains("btf/vmlinux"),
            "{error}"
        );
    }
    std::fs::remove_file(dir.join("kernel/btf/vmlinux")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(dir.join("kernel/btf/vmlinux")).status();
    assert!(fifo.unwrap().success());
    assert!(plan().to_string().contains("it is not a regular file"), "{}", plan());
}
