// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a VM in the path of one of its files: a control socket, or its configuration.

/// Words that are common to such paths of any VM.
const GENERIC: &str =
    "api cfg ch clh cloud cmd conf config console control crosvm ctl ctrl data dev etc fc \
     fcconfig firecracker guest hmp home http hypervisor instance instances internal jailer json \
     kvm kvmtool lib lib64 libexec lkvm local machine main mnt mon monitor opt pid pidfile \
     private qemu qmp rest root run sandbox server share shm sock socket sockets socks srv state \
     tmp uds user usr var virtink vm vmconfig vmm vms";

/// The file's name without a suffix for sockets. If that name is generic, the name of the nearest
/// parent directory that is not, and that is no user's.
pub fn name(path: &[u8]) -> Option<&[u8]> {
    // The path of an abstract socket begins with @.
    let path = path.strip_prefix(b"@").unwrap_or(path);
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let (file, directories) = parts.split_last()?;
    // A path that ends with a slash is a directory and has no file name.
    if file.is_empty() {
        return None;
    }
    let is_users = |at: usize| match at.checked_sub(1).map(|at| directories[at]) {
        Some(b"home") => directories[..at - 1].iter().all(|part| matches!(*part, b"" | b"var")),
        Some(b"user") => directories[at].iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let others = (0..directories.len()).rev().filter(|at| !is_users(*at));
    let mut names = std::iter::once(without_type(file)).chain(others.map(|at| directories[at]));
    names.find(|part| !is_generic(part))
}

fn without_type(file: &[u8]) -> &[u8] {
    // libvirt has web-socket for Cloud Hypervisor.
    let types: [&[u8]; 10] = [
        b".sock", b".socket", b".json", b".toml", b".cfg", b".conf", b".ctl", b".pid", b".qmp",
        b"-socket",
    ];
    let file = types.iter().find_map(|of| file.strip_suffix(*of)).unwrap_or(file);
    // podman machine has qmp_NAME.sock, and others NAME-qmp.sock.
    let before = file.strip_prefix(b"qmp_").or(file.strip_prefix(b"qmp-"));
    let after = || file.strip_suffix(b"-qmp").or(file.strip_suffix(b"_qmp"));
    before.or_else(after).unwrap_or(file)
}

/// Whether it consists of generic words only, or is empty.
fn is_generic(part: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(part) else { return false };
    let text = text.to_ascii_lowercase();
    let words = text.split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.into_iter().all(|word| GENERIC.split(' ').any(|generic| generic == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_files_have_their_directorys_name() {
        for (path, found) in [
            ("/run/db1.sock", Some("db1")),
            ("db1.socket", Some("db1")),
            ("@db1", Some("db1")),
            ("/run/libvirt/ch/web1-socket", Some("web1")),
            ("/var/run/virtink/ch.sock", None),
            ("/run/api-web1.sock", Some("api-web1")),
            ("/run/vc/vm/aa11/clh-api.sock", Some("aa11")),
            ("/run/kata/bb22/root/ch-api.sock", Some("bb22")),
            ("/run/vc/firecracker/cc33/root/run/firecracker.socket", Some("cc33")),
            ("/run/vc/firecracker/cc33/root/fcConfig.json", Some("cc33")),
            ("/run/web/Cloud-Hypervisor.sock", Some("web")),
            ("/tmp/cf_avd_1000/cvd-2/internal/crosvm_control.sock", Some("cvd-2")),
            ("/var/lib/vms/api.sock", None),
            ("/opt/vmm/instances/web/state/control.sock", Some("web")),
            ("/run/web/api", Some("web")),
            ("/run/web/mon.sock", Some("web")),
            ("/run/web/qemu-hmp.sock", Some("web")),
            ("/run/user/1000/vmm.sock", None),
            ("/run/user/1000/acme/3/ch.sock", Some("3")),
            ("/var/lib/acme/12/api.sock", Some("12")),
            ("/srv/jailer/firecracker/551/root/run/firecracker.socket", Some("551")),
            ("/srv/jailer/firecracker/root/run/firecracker.socket", None),
            ("/home/alice/fc/machine_config.json", None),
            ("/home/alice/web/vm.sock", Some("web")),
            ("/srv/vms/home/web/ch.sock", Some("web")),
            ("/run//vm/api.sock", None),
            ("/tmp/firecracker.socket", None),
            ("/run/firecracker.socket", None),
            ("api.sock", None),
            ("/run/web/", None),
            ("/", None),
            ("", None),
            (".sock", None),
        ] {
            assert_eq!(name(path.as_bytes()), found.map(str::as_bytes), "{path}");
        }
    }
}
