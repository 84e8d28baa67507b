// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monitor (VMM) of a VM, and its name for the VM, from its command line.

use crate::identity::Identity;
use crate::qemu;

/// The program that holds a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Monitor {
    Qemu,
    Firecracker,
    CloudHypervisor,
    /// The VMM of this project's benchmarks (lab/vmm).
    Unspin,
    Other,
}

/// The argument after which lab/vmm is a VM's process.
const UNSPIN_VM_PROCESS: &[u8] = b"vm-process";

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

impl Monitor {
    /// By a program's path, and by its arguments where they tell more.
    pub fn of(path: &[u8], args: &[&[u8]]) -> Monitor {
        // A file that was replaced by an update has this behind its name in /proc.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        match file_name(path) {
            _ if qemu::is_qemu(path) => Monitor::Qemu,
            b"firecracker" => Monitor::Firecracker,
            b"cloud-hypervisor" => Monitor::CloudHypervisor,
            name if name.starts_with(b"firecracker-v") => Monitor::Firecracker,
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
            Monitor::Unspin => "unspin",
            Monitor::Other => "another VMM",
        }
    }

    /// Reads the arguments after the program's name.
    pub fn identity(self, args: &[&[u8]]) -> Identity {
        let named = |name: Option<&[u8]>| Identity { name: name.map(<[u8]>::to_vec), uuid: None };
        match self {
            Monitor::Qemu => qemu::identity(args),
            Monitor::Firecracker => named(value_of(args, b"--id")),
            Monitor::CloudHypervisor => named(socket_name(args)),
            Monitor::Unspin | Monitor::Other => Identity::default(),
        }
    }

    /// The number of the vCPU that a thread of this name runs.
    pub fn vcpu_index(self, comm: &[u8]) -> Option<u32> {
        let comm = std::str::from_utf8(comm).ok()?.trim_end_matches('\n');
        let number = match self {
            Monitor::Firecracker => comm.strip_prefix("fc_vcpu ")?,
            Monitor::CloudHypervisor => comm.strip_prefix("vcpu")?,
            _ => comm.strip_prefix("CPU ")?.strip_suffix("/KVM")?,
        };
        number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// What follows an option, as the next argument or after `=`. The last one wins; none where it is empty.
fn value_of<'a>(args: &[&'a [u8]], option: &[u8]) -> Option<&'a [u8]> {
    let attached = |arg: &'a [u8]| arg.strip_prefix(option)?.strip_prefix(b"=");
    let mut values = (0..args.len()).filter_map(|i| match args[i] == option {
        true => args.get(i + 1).copied(),
        false => attached(args[i]),
    });
    values.next_back().filter(|value| !value.is_empty())
}

/// Cloud Hypervisor's VMs have no names; people tell them by the sockets that they are controlled by.
fn socket_name<'a>(args: &[&'a [u8]]) -> Option<&'a [u8]> {
    let socket = value_of(args, b"--api-socket")?;
    let path =
        socket.split(|byte| *byte == b',').find_map(|part| match part.strip_prefix(b"path=") {
            None if part.contains(&b'=') => None,
            None => Some(part),
            path => path,
        })?;
    let name = file_name(path);
    let name = name.strip_suffix(b".sock").or(name.strip_suffix(b".socket")).unwrap_or(name);
    Some(name).filter(|name| !name.is_empty())
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
            ("/bin/unspin-agent", &["vm-process"], Monitor::Unspin),
            ("/bin/unspin-agent", &["plan"], Monitor::Other),
            ("/usr/bin/crosvm", &["vm-process"], Monitor::Other),
        ] {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            assert_eq!(Monitor::of(path.as_bytes(), &args), monitor, "{path}");
        }
    }

    #[test]
    fn names_are_those_that_people_give() {
        let name = |monitor: Monitor, args: &[&str]| {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            monitor.identity(&args).name.map(|name| String::from_utf8(name).unwrap())
        };
        let fire = Monitor::Firecracker;
        assert_eq!(name(fire, &["--id", "web1", "--no-api"]).as_deref(), Some("web1"));
        assert_eq!(name(fire, &["--id=web2"]).as_deref(), Some("web2"));
        assert_eq!(name(fire, &["--id="]), None);
        assert_eq!(name(fire, &["--id"]), None);
        let cloud = Monitor::CloudHypervisor;
        for (socket, found) in [
            ("/run/db1.sock", Some("db1")),
            ("path=/run/db1.socket,x=y", Some("db1")),
            ("fd=3", None),
            ("/run/", None),
        ] {
            assert_eq!(name(cloud, &["--api-socket", socket]).as_deref(), found, "{socket}");
        }
        assert_eq!(name(Monitor::Other, &["-name", "web"]), None);
    }

    #[test]
    fn vcpu_threads_are_known_by_their_names() {
        use Monitor::{CloudHypervisor, Firecracker, Other, Qemu};
        for (monitor, comm, index) in [
            (Qemu, &b"CPU 0/KVM\n"[..], Some(0)),
            (Other, b"CPU 1234/KVM\n", Some(1234)),
            (Firecracker, b"fc_vcpu 3\n", Some(3)),
            (CloudHypervisor, b"vcpu12\n", Some(12)),
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
            for monitor in [Monitor::Firecracker, Monitor::CloudHypervisor] {
                monitor.identity(&args);
                monitor.identity(&[&[b"--api-socket".as_slice()], args.as_slice()].concat());
            }
        }
    }
}
