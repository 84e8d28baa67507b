// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VMM of a VM, such as QEMU: the VM's name on its command line, and its vCPUs' threads.

use crate::names::{Kind, Names};
use crate::{qemu, socket};

/// The program that holds a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Monitor {
    Qemu,
    Firecracker,
    CloudHypervisor,
    Crosvm,
    /// The VMM inside Kata Containers' runtime.
    Dragonball,
    Kvmtool,
    Libkrun,
    StratoVirt,
    /// With KVM as its backend.
    VirtualBox,
    /// The VMM of this project's lab (lab/vmm).
    Unspin,
    Other,
}

/// The argument with which lab/vmm starts a VM's process.
const UNSPIN_VM_PROCESS: &[u8] = b"vm-process";

/// The text before and after the number in the names of vCPU threads.
type Around = (&'static str, &'static str);

const QEMU: Around = ("CPU ", "/KVM");
const FIRECRACKER: Around = ("fc_vcpu ", "");
const CLOUD_HYPERVISOR: Around = ("vcpu", "");
const VIRTUALBOX: Around = ("EMT-", "");

/// Patterns for unknown VMMs: those of all known VMMs, because many VMMs are derived from others.
const ANY: &[Around] = &[
    QEMU,
    FIRECRACKER,
    ("db_vcpu", ""),
    ("crosvm_vcpu", ""),
    ("kvm-vcpu-", ""),
    CLOUD_HYPERVISOR,
    // rust-vmm's reference and Alioth; Propolis and others; OpenVMM.
    ("vcpu_", ""),
    ("vcpu-", ""),
    ("vp-", ""),
    VIRTUALBOX,
];

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether it is the dynamic loader, which may start programs.
pub(crate) fn is_loader(path: &[u8]) -> bool {
    let file = String::from_utf8_lossy(file_name(path));
    file.starts_with("ld-linux") || (file.starts_with("ld-") && file.contains(".so"))
}

impl Monitor {
    /// Identifies the VMM by its program's path, and by its arguments if needed.
    pub fn of(path: &[u8], args: &[&[u8]]) -> Monitor {
        // /proc appends this to the path of a program that an update has replaced.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let file = file_name(path);
        // NixOS and Guix rename programs that their wrappers start.
        let ends: [&[u8]; 2] = [b"-wrapped", b"-real"];
        let hidden = file.strip_prefix(b".");
        let wrapped = hidden.and_then(|file| ends.iter().find_map(|end| file.strip_suffix(*end)));
        let file = wrapped.unwrap_or(file);
        // A version or a variant may follow, as in firecracker-v1.10.1-x86_64.
        let is = |name: &[u8]| {
            let rest = file.strip_prefix(name);
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'-' | b'_' | b'.')))
        };
        match file {
            _ if qemu::is_qemu(file) => Monitor::Qemu,
            _ if is(b"firecracker") => Monitor::Firecracker,
            _ if is(b"cloud-hypervisor") => Monitor::CloudHypervisor,
            _ if is(b"crosvm") => Monitor::Crosvm,
            // One of several runtime classes has its own name in between.
            _ if file.starts_with(b"containerd-shim-kata-") => Monitor::Dragonball,
            b"lkvm" | b"lkvm-static" | b"kvmtool" => Monitor::Kvmtool,
            b"krun" | b"krunvm" | b"muvm" => Monitor::Libkrun,
            b"stratovirt" => Monitor::StratoVirt,
            b"VBoxHeadless" | b"VBoxSDL" | b"VirtualBox" | b"VirtualBoxVM" => Monitor::VirtualBox,
            name if name.starts_with(b"unspin") && args.first() == Some(&UNSPIN_VM_PROCESS) => {
                Monitor::Unspin
            }
            _ => Monitor::Other,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Monitor::Qemu => "QEMU",
            Monitor::Firecracker => "Firecracker",
            Monitor::CloudHypervisor => "Cloud Hypervisor",
            Monitor::Crosvm => "crosvm",
            Monitor::Dragonball => "Dragonball",
            Monitor::Kvmtool => "kvmtool",
            Monitor::Libkrun => "libkrun",
            Monitor::StratoVirt => "StratoVirt",
            Monitor::VirtualBox => "VirtualBox",
            Monitor::Unspin => "unspin",
            Monitor::Other => "another VMM",
        }
    }

    /// Reads names from the program's path and the arguments after it.
    pub fn names(self, program: &[u8], args: &[&[u8]]) -> Names {
        let all = args;
        // What follows is the guest's. To QEMU it means nothing.
        let own = args.iter().take_while(|arg| **arg != b"--").count();
        let args = &all[..own];
        let of = |options: &[&[u8]]| options.iter().find_map(|option| value_of(args, option));
        let path = |options: &[&[u8]]| of(options).and_then(socket::name);
        let mut names = Names::default();
        let name = match self {
            Monitor::StratoVirt => return qemu::names(all, true),
            Monitor::Qemu => return qemu::names(all, qemu::is_android(program)),
            Monitor::Firecracker => {
                let sockets: [&[u8]; 2] = [b"--api-sock", b"--config-file"];
                of(&[b"--id"]).or_else(|| sockets.iter().find_map(|option| path(&[option])))
            }
            Monitor::CloudHypervisor => {
                let platform = value_of(args, b"--platform").unwrap_or_default();
                let mut entries = platform.split(|byte| *byte == b',');
                let uuid = entries.find_map(|entry| qemu::uuid_of(entry.strip_prefix(b"uuid=")?));
                names.add(Kind::Uuid, uuid.unwrap_or_default());
                api_socket(args)
            }
            Monitor::Crosvm => of(&[b"--name"]).or_else(|| path(&[b"--socket", b"-s"])),
            Monitor::Kvmtool => of(&[b"--name"]),
            Monitor::Dragonball => of(&[b"-id"]),
            // Other runtimes with an integrated VMM have containerd's options.
            Monitor::Other if args.contains(&b"-publish-binary".as_slice()) => of(&[b"-id"]),
            Monitor::Libkrun if is_krunvm(program) => of_krunvm(args),
            Monitor::VirtualBox => {
                let begun = of(&[b"--startvm", b"-startvm", b"-s"]);
                let uuid = begun.and_then(qemu::uuid_of);
                let name = of(&[b"--comment", b"-comment"]).or(begun.filter(|_| uuid.is_none()));
                names.add(Kind::Uuid, uuid.unwrap_or_default());
                name
            }
            Monitor::Libkrun | Monitor::Unspin | Monitor::Other => None,
        };
        names.with(Kind::Name, name.unwrap_or_default())
    }

    /// The number of the vCPU that a thread with this name runs.
    pub fn vcpu_index(self, comm: &[u8]) -> Option<u32> {
        let comm = std::str::from_utf8(comm).ok()?.trim_end_matches('\n');
        let of = |(before, after): &Around| {
            let number = comm.strip_prefix(before)?.strip_suffix(after)?;
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse().ok().filter(|_| is_number)
        };
        match self {
            Monitor::Qemu | Monitor::StratoVirt | Monitor::Unspin => of(&QEMU),
            Monitor::Firecracker => of(&FIRECRACKER),
            Monitor::CloudHypervisor => of(&CLOUD_HYPERVISOR),
            _ => ANY.iter().find_map(of),
        }
    }
}

/// The value of an option, as the next argument or after `=`. The last one wins; `None` if it is empty.
fn value_of<'a>(args: &[&'a [u8]], option: &[u8]) -> Option<&'a [u8]> {
    let attached = |arg: &'a [u8]| arg.strip_prefix(option)?.strip_prefix(b"=");
    let mut values = (0..args.len()).filter_map(|i| match args[i] == option {
        true => args.get(i + 1).copied(),
        false => attached(args[i]),
    });
    values.next_back().filter(|value| !value.is_empty())
}

/// Whether it is krunvm, also as a wrapper renames it; others with libkrun have no names for VMs.
fn is_krunvm(program: &[u8]) -> bool {
    let file = file_name(program);
    file.strip_prefix(b".").unwrap_or(file).starts_with(b"krunvm")
}

/// `web` in `krunvm start --cpus 2 web`.
fn of_krunvm<'a>(args: &[&'a [u8]]) -> Option<&'a [u8]> {
    let mut args = args.iter().skip_while(|arg| **arg != b"start").skip(1);
    loop {
        let arg = args.next()?;
        match arg.starts_with(b"-") {
            true if arg.contains(&b'=') => {}
            // All options of `krunvm start` have a value.
            true => drop(args.next()),
            false => return Some(arg),
        }
    }
}

/// Cloud Hypervisor's VMs have no names; people identify them by their API sockets. A socket that was
/// passed as a descriptor has no path.
fn api_socket<'a>(args: &[&'a [u8]]) -> Option<&'a [u8]> {
    let socket = value_of(args, b"--api-socket")?;
    let path =
        socket.split(|byte| *byte == b',').find_map(|part| match part.strip_prefix(b"path=") {
            None if part.contains(&b'=') => None,
            None => Some(part),
            path => path,
        })?;
    socket::name(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn monitors_are_known_by_their_files() {
        for (path, args, monitor) in [
            ("/usr/bin/qemu-system-x86_64", &[][..], Monitor::Qemu),
            ("/usr/bin/qemu-system-x86_64 (deleted)", &[], Monitor::Qemu),
            ("/opt/firecracker", &[], Monitor::Firecracker),
            ("firecracker-v1.10.1-x86_64", &[], Monitor::Firecracker),
            ("/usr/bin/cloud-hypervisor", &[], Monitor::CloudHypervisor),
            ("/opt/cloud-hypervisor-v43.0", &[], Monitor::CloudHypervisor),
            ("/opt/kata/bin/cloud-hypervisor-glibc", &[], Monitor::CloudHypervisor),
            ("/opt/firecracker_1.7", &[], Monitor::Firecracker),
            ("/opt/firecrackers", &[], Monitor::Other),
            ("/nix/store/x/bin/.qemu-system-x86_64-wrapped", &[], Monitor::Qemu),
            ("/nix/store/x/bin/.crosvm-wrapped", &[], Monitor::Crosvm),
            ("/gnu/store/x/bin/.qemu-system-x86_64-real", &[], Monitor::Qemu),
            ("/opt/kata/bin/containerd-shim-kata-v2", &[], Monitor::Dragonball),
            ("/bin/containerd-shim-kata-dragonball-v2", &[], Monitor::Dragonball),
            ("/bin/unspin-agent", &["vm-process"], Monitor::Unspin),
            ("/bin/unspin-agent", &["plan"], Monitor::Other),
            ("/usr/bin/crosvm", &["vm-process"], Monitor::Crosvm),
            ("/usr/bin/lkvm", &["run"], Monitor::Kvmtool),
            ("/usr/bin/vmm", &[], Monitor::Other),
        ] {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            assert_eq!(Monitor::of(path.as_bytes(), &args), monitor, "{path}");
        }
    }

    #[test]
    fn names_are_those_that_people_give() {
        use Monitor::*;
        let uuid = "0a000000-0000-0000-0000-000000000001";
        let platform = format!("num_pci_segments=1,uuid={uuid}");
        for (monitor, args, found) in [
            (Firecracker, &["--id", "web1", "--no-api"][..], Some("web1")),
            (Firecracker, &["--id=web2"], Some("web2")),
            (Firecracker, &["--id="], None),
            (Firecracker, &["--id"], None),
            (Firecracker, &["--api-sock", "/run/fc/web3/api.sock"], Some("web3")),
            (Firecracker, &["--no-api", "--config-file", "/etc/fc/web4.json"], Some("web4")),
            (Firecracker, &["--api-sock", "/run/firecracker.socket"], None),
            (CloudHypervisor, &["--api-socket", "/run/db1.sock"], Some("db1")),
            (CloudHypervisor, &["--api-socket", "path=/run/db1.socket,x=y"], Some("db1")),
            (CloudHypervisor, &["--api-socket", "fd=3"], None),
            (CloudHypervisor, &["--api-socket", "/run/"], None),
            (CloudHypervisor, &["--platform", &platform], None),
            (Crosvm, &["run", "--name", "phone"], Some("phone")),
            (Crosvm, &["run", "-s", "/run/crosvm/phone2.sock"], Some("phone2")),
            (Crosvm, &["run", "-s=/run/cvd-1/internal/crosvm_control.sock"], Some("cvd-1")),
            (Kvmtool, &["run", "--name", "arm1"], Some("arm1")),
            (Kvmtool, &["run", "-n", "mode=tap,tapif=tap0", "--name=arm2"], Some("arm2")),
            (Kvmtool, &["run", "-n", "mode=none"], None),
            (Kvmtool, &["run", "--name", "real", "--", "/init", "--name", "fake"], Some("real")),
            (Crosvm, &["run", "--", "--name", "fake"], None),
            (Firecracker, &["--id", "real", "--", "--id", "fake"], Some("real")),
            (Qemu, &["-append", "--", "-name", "real"], Some("real")),
            (Libkrun, &["start", "fedora"], Some("fedora")),
            (Libkrun, &["-v", "3", "start", "--cpus", "2", "--mem=512", "f2", "sh"], Some("f2")),
            (Libkrun, &["start", "--cpus"], None),
            (Libkrun, &["bash"], None),
            (
                VirtualBox,
                &["--comment", "my web", "--startvm", uuid, "--vrde", "on"],
                Some("my web"),
            ),
            (VirtualBox, &["-s", "db"], Some("db")),
            (VirtualBox, &["--startvm", uuid], None),
            (Dragonball, &["-namespace", "k8s.io", "-id", "aa11"], Some("aa11")),
            (Other, &["-publish-binary", "/bin/containerd", "-id", "bb22"], Some("bb22")),
            (Other, &["-id", "bb22"], None),
            (Other, &["-name", "web"], None),
        ] {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            let names = monitor.names(b"/usr/bin/krunvm", &args);
            assert_eq!(
                names.get(Kind::Name).map(ToString::to_string).as_deref(),
                found,
                "{args:?}"
            );
        }
        for (program, is_named) in [("krunvm", true), ("/x/.krunvm-wrapped", true), ("muvm", false)]
        {
            let names = Libkrun.names(program.as_bytes(), &[b"start", b"sshd"]);
            assert_eq!(names.get(Kind::Name).is_some(), is_named, "{program}");
        }
        let args: [&[u8]; 2] = [b"--platform", platform.as_bytes()];
        assert!(VirtualBox.names(b"", &[b"-startvm", uuid.as_bytes()]).has(uuid.as_bytes()));
        assert!(CloudHypervisor.names(b"", &args).has_of(Kind::Uuid, uuid.as_bytes()));
    }

    /// The other names are those of the matrix in tests/hosts.
    #[test]
    fn vcpu_threads_are_known_by_their_names() {
        use Monitor::{CloudHypervisor, Other, Qemu};
        for (monitor, comm, index) in [
            (Other, &b"CPU 1234/KVM\n"[..], Some(1234)),
            (Other, b"vp-3\n", Some(3)),
            (Other, b"vcpu-3-timer\n", None),
            (CloudHypervisor, b"vcpu\n", None),
            (Qemu, b"vcpu12\n", None),
            (Qemu, b"CPU 0/TCG\n", None),
            (Qemu, b"CPU /KVM", None),
            (Qemu, b"CPU +1/KVM", None),
            (Qemu, b"IO mon_iothread", None),
            (Qemu, b"\xff", None),
        ] {
            assert_eq!(monitor.vcpu_index(comm), index, "{comm:?}");
        }
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic(args: Vec<Vec<u8>>) {
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            for (monitor, option) in [
                (Monitor::Firecracker, b"--api-sock".as_slice()),
                (Monitor::CloudHypervisor, b"--api-socket"),
                (Monitor::CloudHypervisor, b"--platform"),
                (Monitor::Crosvm, b"--socket"),
            ] {
                monitor.names(b"", &args);
                monitor.names(b"", &[&[option], args.as_slice()].concat());
            }
        }
    }
}
