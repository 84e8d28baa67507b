// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's command line as a list of options.

use crate::qemu::{is_flag, options};
use std::path::Path;
use unspin_text::read_kernel;

/// An option without its hyphens, and the entries of its value as `key=value`. If the first entry has
/// no key, its key is empty; a later entry without a value has the value `on`. Invalid UTF-8 is
/// replaced.
pub type QemuOption = (String, Vec<(String, String)>);

/// Limit of options that are read.
const OPTIONS_MAX: usize = 4096;

/// The options of the process with this directory in /proc; empty if it cannot be read.
pub fn qemu_options(dir: &Path) -> Vec<QemuOption> {
    let line = read_kernel(dir.join("cmdline")).unwrap_or_default();
    of_arguments(line.split(|b| *b == 0).skip(1))
}

fn of_arguments<'a>(args: impl Iterator<Item = &'a [u8]>) -> Vec<QemuOption> {
    let mut all = Vec::new();
    let mut args = args.take(OPTIONS_MAX);
    while let Some(arg) = args.next() {
        let Some(option) = arg.strip_prefix(b"-") else { continue };
        let option = option.strip_prefix(b"-").unwrap_or(option);
        let entries = match is_flag(option) {
            true => Vec::new(),
            false => args.next().map(entries).unwrap_or_default(),
        };
        all.push((text(option), entries));
    }
    all
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The entries of a value. Since QEMU 6, `-device` and others may have a JSON object instead.
fn entries(value: &[u8]) -> Vec<(String, String)> {
    if value.first() == Some(&b'{') {
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(value) {
            let text = |value: serde_json::Value| match value {
                serde_json::Value::String(text) => text,
                serde_json::Value::Bool(true) => "on".into(),
                serde_json::Value::Bool(false) => "off".into(),
                other => other.to_string(),
            };
            return object.into_iter().map(|(key, value)| (key, text(value))).collect();
        }
    }
    options(value, b"").map(|(key, value)| (text(&key), text(&value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(args: &[&[u8]]) -> Vec<QemuOption> {
        of_arguments(args.iter().copied())
    }

    fn option(name: &str, entries: &[(&str, &str)]) -> QemuOption {
        let entry = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        (name.into(), entries.iter().map(entry).collect())
    }

    #[test]
    fn options_have_their_entries() {
        let json = br#"{"driver":"usb-tablet","id":"input0","bus":"usb.0","port":1,"x":true}"#;
        let read = of(&[
            b"-enable-kvm",
            b"-cpu",
            b"host,hv_time,-hv_x,hv-spinlocks=0x1fff",
            b"--machine",
            b"type=q35,hpet=off",
            b"-device",
            json,
            b"-name",
            b"a,,b=c,debug-threads=on",
            b"-append",
            b"-cpu",
            b"-rtc",
            b"base=\xfflocal",
            b"disk.img",
            b"-id",
        ]);
        let device = [
            ("driver", "usb-tablet"),
            ("id", "input0"),
            ("bus", "usb.0"),
            ("port", "1"),
            ("x", "on"),
        ];
        let mut device = option("device", &device);
        device.1.sort();
        let mut read_sorted = read.clone();
        read_sorted[3].1.sort();
        let host = [("", "host"), ("hv_time", "on"), ("-hv_x", "on"), ("hv-spinlocks", "0x1fff")];
        let expected = [
            option("enable-kvm", &[]),
            option("cpu", &host),
            option("machine", &[("type", "q35"), ("hpet", "off")]),
            device,
            option("name", &[("", "a,b=c"), ("debug-threads", "on")]),
            option("append", &[("", "-cpu")]),
            option("rtc", &[("base", "\u{fffd}local")]),
            option("id", &[]),
        ];
        assert_eq!(read_sorted, expected);
    }

    #[test]
    fn hostile_values_are_values() {
        let long = "a".repeat(4096);
        let commas = ",".repeat(4097);
        let nested = "[".repeat(100_000);
        for value in
            [&long, &commas, "{", "{\"driver\":", &format!("{{\"a\":{nested}"), "=,=,=", ""]
        {
            let read = of(&[b"-device", value.as_bytes(), b"-cpu", b"host"]);
            assert_eq!(read.len(), 2);
            assert_eq!(read[1], option("cpu", &[("", "host")]));
        }
        assert_eq!(qemu_options(Path::new("/nonexistent")), []);
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic(args: Vec<Vec<u8>>) {
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            of(&args);
            of(&[&[b"-device".as_slice()], args.as_slice()].concat());
        }
    }
}
