// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a VM's names from QEMU's command line.
//!
//! An option is `-word` or `--word`. Except for a few flags, the next argument is its value, whatever
//! it looks like. The value of `-name` is a list of `key=value` entries separated by commas; `,,`
//! stands for a comma in a value. The first entry may be the VM's name alone. `-id` is Proxmox VE's.

use crate::names::{Kind, Names};
use crate::socket;

/// A part of the path of the QEMU in Android's emulator.
const EMULATOR: &[u8] = b"emulator/qemu/";

/// A part of the file's name of an emulator of whole computers.
const SYSTEM: &[u8] = b"-system-";

/// The directory in which multipass keeps those of its instances.
const MULTIPASS: &[u8] = b"/vault/instances/";

/// Options without a value, in QEMU 0.12 to 10; disable-seccomp is of StratoVirt.
const FLAGS: &str =
    "S alt-grab async-teardown audio-help ctrl-grab curses daemonize disable-seccomp enable-fips \
     enable-hax enable-kvm enable-nesting enable-sync-profile full-screen h help jitdump \
     localtime mem-prealloc nodefaults nodefconfig nographic nouserconfig old-param \
     one-insn-per-tb only-migratable perfmap portrait preconfig rtc-td-hack s sdl semihosting \
     show-cursor singlestep snapshot std-vga tdf usb version virtfs_synth win2k-hack xen-attach \
     xen-create xen-domid-restrict";

/// Whether an option has no value. Every other option takes the next argument.
pub(crate) fn is_flag(option: &[u8]) -> bool {
    option.starts_with(b"no-") || FLAGS.split(' ').any(|flag| flag.as_bytes() == option)
}

/// Whether a program's path is that of QEMU's emulator in a known distribution.
pub fn is_qemu(path: &[u8]) -> bool {
    let file = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let names: [&[u8]; 4] = [b"qemu-kvm", b"kvm", b"kvm-spice", b"qemu"];
    // Kata's variants have a word in between: qemu-lite-system-x86_64.
    let is_system = || file.windows(SYSTEM.len()).any(|part| part == SYSTEM);
    (file.starts_with(b"qemu-") && is_system()) || names.contains(&file)
}

/// Whether a program is the QEMU of Android's emulator.
pub fn is_android(path: &[u8]) -> bool {
    path.windows(EMULATOR.len()).any(|part| part == EMULATOR)
}

/// Reads the arguments after the program's name. As in QEMU the last name and UUID win, and `-uuid` takes
/// precedence over `-smbios`. Without a name, its files tell it, as those of podman machine, minikube and multipass: its
/// monitor's socket, its disk, its pidfile, its configuration.
/// `-avd NAME` and `@NAME` are of Android's emulator. `has_more`: there are flags that QEMU lacks, so that no option
/// takes a name as its value.
pub fn names(args: &[&[u8]], has_more: bool) -> Names {
    let (mut name, mut id, mut uuid, mut smbios, mut incus) = (None, None, None, None, None);
    let (mut monitor, mut instance, mut pidfile, mut config) = (None, None, None, None);
    let (mut sockets, mut control) = (Vec::new(), None);
    for (option, value) in given(args, has_more) {
        match option {
            b"name" => name = entry(value, b"guest").or(name),
            b"id" => id = Some(value),
            b"avd" | b"@" => name = name.or_else(|| Some(value.to_vec())),
            b"uuid" => uuid = uuid_of(value),
            b"smbios" => smbios = of_smbios(value).or(smbios),
            b"readconfig" => (incus, config) = (of_incus(value), socket::name(value)),
            b"qmp" | b"qmp-pretty" | b"monitor" => monitor = of_monitor(value).or(monitor),
            b"chardev" => sockets.extend(of_chardev(value)),
            b"mon" => control = entry(value, b"chardev").or(control),
            b"blockdev" | b"cdrom" | b"drive" => instance = of_multipass(value).or(instance),
            b"pidfile" => pidfile = socket::name(value),
            _ => {}
        }
    }
    let mut names = Names::default();
    let of_files = || {
        let file = instance.or(pidfile).or(config).map(<[u8]>::to_vec);
        let of_control = sockets.into_iter().find(|(of, _)| control.as_ref() == Some(of));
        monitor.or(of_control.map(|(_, name)| name)).or(file).filter(|_| id.is_none())
    };
    names.add(Kind::Name, name.or_else(of_files).unwrap_or_default());
    names.add(Kind::Vmid, id.filter(|id| id.iter().all(u8::is_ascii_digit)).unwrap_or_default());
    names.add(Kind::Uuid, uuid.or(smbios).unwrap_or_default());
    names.add(Kind::Incus, incus.unwrap_or_default());
    names
}

/// Whether it has no machine, as when libvirt asks QEMU what it can do: it holds a VM that never runs.
pub fn is_without_machine(args: &[&[u8]]) -> bool {
    let machine = |(option, value): (&[u8], &[u8])| match option {
        b"machine" | b"M" => entry(value, b"type"),
        _ => None,
    };
    given(args, false).filter_map(machine).last().is_some_and(|machine| machine == b"none")
}

/// The options without hyphens, each with its value; `@` with the name after it. Flags are left out.
fn given<'a>(args: &'a [&'a [u8]], has_more: bool) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let mut args = args.iter().copied().peekable();
    let is_named = |arg: &[u8]| arg.starts_with(b"@") || arg == b"-name" || arg == b"-avd";
    std::iter::from_fn(move || loop {
        let arg = args.next()?;
        if let Some(avd) = arg.strip_prefix(b"@") {
            return Some((b"@".as_slice(), avd));
        }
        let Some(option) = arg.strip_prefix(b"-") else { continue };
        let option = option.strip_prefix(b"-").unwrap_or(option);
        if is_flag(option) || (has_more && args.peek().is_some_and(|next| is_named(next))) {
            continue;
        }
        return Some((option, args.next()?));
    })
}

/// The last entry of an option list with this key, which the first entry may lack.
fn entry(list: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    options(list, key).rfind(|(of, _)| of == key).map(|(_, value)| value)
}

/// The UUID in an `-smbios` entry of type 1 (system).
fn of_smbios(value: &[u8]) -> Option<String> {
    let mut entries = options(value, b"type");
    let is_system = entries.clone().any(|(key, value)| key == b"type" && number(&value) == Some(1));
    let (_, uuid) = entries.rfind(|(key, _)| key == b"uuid").filter(|_| is_system)?;
    uuid_of(&uuid)
}

/// A number as in C, also hexadecimal or octal.
fn number(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(hex), _) => u32::from_str_radix(hex, 16).ok(),
        (_, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// `project/instance` from the path of a configuration that Incus or LXD wrote:
/// `/run/incus/PROJECT_INSTANCE/qemu.conf`; the default project is left out.
fn of_incus(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    let (around, instance) = path.strip_suffix("/qemu.conf")?.rsplit_once('/')?;
    let is_theirs = around.split('/').any(|part| matches!(part, "incus" | "lxd"));
    // Instance names have no underscore.
    let (project, instance) = instance.rsplit_once('_').unwrap_or(("default", instance));
    (is_theirs && !instance.is_empty()).then(|| format!("{project}/{instance}"))
}

/// The name in `unix:/run/vms/web/qmp.sock,server=on`. A socket that was passed as a descriptor has no path.
fn of_monitor(value: &[u8]) -> Option<Vec<u8>> {
    let path = entry(value.strip_prefix(b"unix:")?, b"path")?;
    socket::name(&path).map(<[u8]>::to_vec)
}

/// The id of a socket, and the name in its path: `socket,id=mon0,path=/run/vms/web/monitor.sock,server=on`.
fn of_chardev(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    entry(value, b"backend").filter(|backend| backend == b"socket")?;
    let path = entry(value, b"path")?;
    Some((entry(value, b"id")?, socket::name(&path)?.to_vec()))
}

/// The instance in the path of a disk: `…/multipassd/vault/instances/INSTANCE/…`.
fn of_multipass(value: &[u8]) -> Option<&[u8]> {
    let at = value.windows(MULTIPASS.len()).position(|part| part == MULTIPASS)?;
    let mut parts = value[at + MULTIPASS.len()..].split(|byte| *byte == b'/');
    parts.next().filter(|name| !name.is_empty() && parts.next().is_some())
}

/// A UUID in lower case.
pub fn uuid_of(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?.to_ascii_lowercase();
    let is_hyphen = |i| matches!(i, 8 | 13 | 18 | 23);
    let fits = |(i, b): (usize, u8)| match is_hyphen(i) {
        true => b == b'-',
        false => b.is_ascii_hexdigit(),
    };
    (text.len() == 36 && text.bytes().enumerate().all(fits)).then_some(text)
}

/// The entries of an option list. If the first has no `=`, it is the value of `first`.
pub(crate) fn options(list: &[u8], first: &[u8]) -> std::vec::IntoIter<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| matches!(b, b'=' | b',')).unwrap_or(rest.len());
        if rest.get(end) == Some(&b'=') {
            let key = rest[..end].to_vec();
            let (value, after) = value(&rest[end + 1..]);
            entries.push((key, value));
            rest = after;
        } else if entries.is_empty() {
            let (value, after) = value(rest);
            entries.push((first.to_vec(), value));
            rest = after;
        } else {
            // A flag: on or off.
            entries.push((rest[..end].to_vec(), b"on".to_vec()));
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }
    entries.into_iter()
}

/// A value up to the comma that ends it, and the rest after that comma.
fn value(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut value = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == b',' {
            if text.get(at + 1) != Some(&b',') {
                return (value, &text[at + 1..]);
            }
            at += 1;
        }
        value.push(byte);
        at += 1;
    }
    (value, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name_in(args: &[&[u8]]) -> Option<Vec<u8>> {
        Some(names(args, false).get(Kind::Name)?.as_bytes().to_vec())
    }

    #[test]
    fn names_are_read_as_qemu_reads_them() {
        for (value, name) in [
            ("web1", "web1"),
            ("guest=web1,debug-threads=on", "web1"),
            ("web1,process=kvm,debug-threads=on", "web1"),
            ("debug-threads=on,guest=a,,b", "a,b"),
            ("guest=a=b", "a=b"),
            ("a,,b=c", "a,b=c"),
            ("guest=a,guest=b", "b"),
            ("guest=a,,,debug-threads=on", "a,"),
            ("guest=-name", "-name"),
        ] {
            let read = name_in(&[b"-S", b"-name", value.as_bytes(), b"-m", b"1"]);
            assert_eq!(read.as_deref(), Some(name.as_bytes()), "{value}");
        }
        for nameless in ["", "guest=", "debug-threads=on", "process=x"] {
            assert_eq!(name_in(&[b"-name", nameless.as_bytes()]), None, "{nameless}");
        }
    }

    #[test]
    fn values_of_other_options_are_no_options() {
        assert_eq!(name_in(&[b"-append", b"-name", b"evil"]), None);
        assert_eq!(name_in(&[b"-append", b"-name", b"-name", b"good"]).unwrap(), b"good");
        assert_eq!(name_in(&[b"-nodefaults", b"--name", b"good", b"disk.img"]).unwrap(), b"good");
        assert_eq!(name_in(&[b"-nodefconfig", b"-name", b"old"]).unwrap(), b"old");
        for flag in [b"-one-insn-per-tb".as_slice(), b"-perfmap", b"-jitdump"] {
            assert_eq!(name_in(&[flag, b"-name", b"new"]).unwrap(), b"new");
        }
        assert_eq!(name_in(&[b"-name"]), None);
        assert_eq!(name_in(&[b"-no-window", b"-avd", b"Pixel_7"]).unwrap(), b"Pixel_7");
        assert_eq!(name_in(&[b"@Pixel_7", b"-no-audio"]).unwrap(), b"Pixel_7");
        assert_eq!(name_in(&[b"-drive", b"@x", b"-avd"]), None);
        assert_eq!(name_in(&[b"-disable-seccomp", b"-name", b"web"]).unwrap(), b"web");
        for args in [&[b"-verbose".as_slice(), b"-avd", b"X"][..], &[b"-wipe-data", b"@X"]] {
            assert_eq!(name_in(args), None);
            assert_eq!(names(args, true).best().unwrap().1.as_bytes(), b"X");
        }
        assert_eq!(name_in(&[b"-name", b"a", b"-name", b"b"]).unwrap(), b"b");
        assert_eq!(name_in(&[b"-name", b"a", b"-name", b"debug-threads=on"]).unwrap(), b"a");
    }

    #[test]
    fn uuids_are_uuids() {
        let read = |args: &[&str]| {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            names(&args, false).get(Kind::Uuid).map(ToString::to_string)
        };
        let of = |text: &str| read(&["-uuid", text]);
        let good = "C7A5FDB2-cdaf-9455-926a-d65c16db1809";
        assert_eq!(of(good), Some(good.to_lowercase()));
        for wrong in ["", "7", &good[1..], &good.replace('-', "0"), &good.replace('7', "g")] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        let smbios = format!("type=1,uuid={good},sku=a,,b");
        assert_eq!(read(&["-smbios", &smbios]), Some(good.to_lowercase()));
        assert_eq!(read(&["-smbios", &smbios, "-smbios", "type=2"]), Some(good.to_lowercase()));
        for (written, is_system) in [("0x1", true), ("01", true), ("0x10", false), ("2", false)] {
            let smbios = smbios.replace("type=1", &format!("type={written}"));
            assert_eq!(read(&["-smbios", &smbios]).is_some(), is_system, "{written}");
        }
        let other = good.replace('c', "0");
        assert_eq!(read(&["-smbios", &smbios, "-uuid", &other]), Some(other.to_lowercase()));
    }

    #[test]
    fn proxmox_and_incus_say_which_vm_it_is() {
        let read = |kind, args: &[&[u8]]| names(args, false).get(kind).map(ToString::to_string);
        assert_eq!(read(Kind::Vmid, &[b"-id", b"104", b"-name", b"web"]).as_deref(), Some("104"));
        assert_eq!(read(Kind::Vmid, &[b"-id", b"x"]), None);
        for (path, found) in [
            ("/run/incus/web/qemu.conf", Some("default/web")),
            ("/run/incus/my_team_web/qemu.conf", Some("my_team/web")),
            ("/var/snap/lxd/common/lxd/logs/p_db/qemu.conf", Some("p/db")),
            ("/etc/web/qemu.conf", None),
            ("/run/incus/qemu.conf", None),
        ] {
            let read = read(Kind::Incus, &[b"-readconfig", path.as_bytes()]);
            assert_eq!(read.as_deref(), found, "{path}");
        }
    }

    /// podman machine, minikube and multipass give QEMU no name; libvirt and Proxmox VE always do.
    #[test]
    fn without_a_name_the_files_tell_it() {
        let instance = "/var/snap/multipass/common/data/multipassd/vault/instances/primary";
        let json = format!(r#"{{"driver":"file","filename":"{instance}/x.img"}}"#);
        let console = ["-chardev", "socket,id=c,path=/run/vms/console-of-db,server=on"];
        let socket = ["-chardev", "socket,id=m,path=/run/vms/web/monitor.sock,server=on,wait=off"];
        let (image, seed) = (format!("file={instance}/x.img,if=none"), format!("{instance}/c.iso"));
        for (args, found) in [
            (
                &["-qmp", "unix:/run/user/1000/podman/qmp_fedora.sock,server=on,wait=off"][..],
                "fedora",
            ),
            (&["-pidfile", "/home/a/.minikube/machines/m1/qemu.pid"], "m1"),
            (&["-qmp", "unix:/home/a/.minikube/machines/m1/monitor,server,nowait"], "m1"),
            (&["-monitor", "unix:/run/web-qmp.sock", "-pidfile", "/run/vm.pid"], "web"),
            (&["-qmp", "unix:path=/run/a,,b.sock,server=on"], "a,b"),
            (&["-qmp", "unix:fd=5,server=on", "-pidfile", "/run/web/pidfile"], "web"),
            (&["-qmp", "stdio", "-drive", &image], "primary"),
            (&["-drive", "file=/usr/share/OVMF.fd", "-cdrom", &seed, "-qmp", "stdio"], "primary"),
            (&["-pidfile", "/run/db.pid", "-name", "web"], "web"),
            (&["-virtfs_synth", "-name", "web"], "web"),
            (&["-readconfig", "/etc/qemu/web.cfg"], "web"),
            (&["-readconfig", "/srv/web/vm.conf", "-pidfile", "/run/db.pid"], "db"),
            (&["-blockdev", &json], "primary"),
            (
                &[console[0], console[1], socket[0], socket[1], "-mon", "chardev=m,mode=control"],
                "web",
            ),
            (&[console[0], console[1], socket[0], socket[1], "-mon", "m"], "web"),
            (&[console[0], console[1], socket[0], socket[1]], ""),
            (&["-pidfile", "/run/qemu-server/104.pid", "-id", "104"], ""),
            (&["-pidfile", "/run/qemu.pid", "-monitor", "tcp:web:1", "-drive", "web.img"], ""),
            (&["-cdrom", "/vault/instances/", "-drive", "file=/vault/instances/x.img"], ""),
        ] {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            assert_eq!(name_in(&args).unwrap_or_default(), found.as_bytes(), "{found}");
        }
    }

    #[test]
    fn qemu_is_known_by_its_file() {
        for path in [
            "/usr/bin/qemu-system-x86_64",
            "/usr/bin/qemu-lite-system-x86_64",
            "/usr/libexec/qemu-kvm",
            "kvm",
            "kvm-spice",
        ] {
            assert!(is_qemu(path.as_bytes()), "{path}");
        }
        for path in ["/usr/bin/firecracker", "/usr/bin/qemu-img", "", "/qemu-kvm/x", "a-system-b"] {
            assert!(!is_qemu(path.as_bytes()), "{path}");
        }
    }

    fn doubled(text: &[u8]) -> Vec<u8> {
        let double = |b: &u8| if *b == b',' { vec![b','; 2] } else { vec![*b] };
        text.iter().flat_map(double).collect()
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        // Commas, equals signs and hyphens have a meaning in the syntax.
        let byte = prop_oneof![Just(b','), Just(b'='), Just(b'-'), 1..=255u8];
        proptest::collection::vec(byte, 1..40)
    }

    proptest! {
        #[test]
        fn every_name_survives_the_command_line(
            name in bytes(),
            before in proptest::collection::vec((0..3usize, bytes()), 0..4),
            debug_threads: bool,
        ) {
            let mut args: Vec<Vec<u8>> = Vec::new();
            for (option, value) in before {
                args.push(b"-device".to_vec());
                args.push(value);
                args.extend((0..option).map(|_| b"-nodefaults".to_vec()));
            }
            let mut value = [b"guest=", doubled(&name).as_slice()].concat();
            if debug_threads {
                value.extend(b",debug-threads=on");
            }
            args.extend([b"-name".to_vec(), value]);
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(name_in(&args), Some(name));
        }

        #[test]
        fn a_name_without_its_key_too(name in bytes()) {
            // QEMU takes the text before the first = as a key, unless a comma comes first.
            let text = doubled(&name);
            let first = text.iter().find(|b| matches!(b, b'=' | b','));
            prop_assume!(first != Some(&b'='));
            prop_assert_eq!(name_in(&[b"-name", &text]), Some(name));
        }

        #[test]
        fn no_command_line_makes_it_panic(args: Vec<Vec<u8>>) {
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            names(&args, false);
            for option in [b"-name".as_slice(), b"-smbios", b"-readconfig"] {
                names(&[&[option], args.as_slice()].concat(), true);
            }
        }
    }

    /// Asks the installed QEMU which of its options take a value: of two unknown options after one
    /// that does, its error names the second.
    #[test]
    fn the_flags_are_those_of_qemu() {
        use std::process::{Command, Stdio};
        let qemu = |args: &[&str]| {
            Command::new("qemu-system-x86_64").args(args).stdin(Stdio::null()).output()
        };
        let Ok(help) = qemu(&["-help"]) else {
            println!("SKIPPED: there is no qemu-system-x86_64 to ask");
            return;
        };
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let words = help.lines().filter_map(|line| line.strip_prefix('-')?.split(' ').next());
        let mut asked = 0;
        for option in words.map(|word| word.trim_matches(['-', ','])) {
            let out = qemu(&[&format!("-{option}"), "-first", "-second"]).unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            let is_flag = said.contains("-first: invalid option");
            if is_flag || said.contains("-second: invalid option") {
                assert_eq!(super::is_flag(option.as_bytes()), is_flag, "-{option}: {said}");
                asked += 1;
            }
        }
        assert!(asked > 60, "asked about {asked}: {help}");
    }
}
