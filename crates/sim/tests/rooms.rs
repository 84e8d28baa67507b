// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rooms of the simulator stand on each other in one order: no file names a room above its own, or
//! beside it. `src/lib.rs` has the map.

use std::path::{Path, PathBuf};

/// Each room, and the rooms its files may name. Whole-machine tests (`machine/tests`) are above all.
const ROOMS: [(&str, &[&str]); 10] = [
    ("engine", &[]),
    ("error", &[]),
    ("core", &["engine"]),
    ("host", &["engine", "core"]),
    ("kvm", &["engine", "core"]),
    ("guest", &["engine", "core"]),
    ("probe", &["engine", "core", "guest", "kvm"]),
    ("machine", &["engine", "core", "host", "kvm", "guest", "probe"]),
    ("setup", &["engine", "error", "core", "host", "kvm", "guest", "machine"]),
    ("run", &["error", "core", "host", "probe", "setup"]),
];
const FILE_LINES_MAX: usize = 500;
const MACHINE_LINES_MAX: usize = 300;

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every file of the rooms: its path from `src`, and its text.
fn files() -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![src()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(src()).unwrap().to_str().unwrap().to_string();
                found.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found.retain(|(name, _)| name != "lib.rs");
    assert!(found.len() > 50, "{} files", found.len());
    found
}

fn room_of(file: &str) -> &str {
    let first = file.split('/').next().unwrap();
    first.strip_suffix(".rs").unwrap_or(first)
}

fn is_code(line: &&str) -> bool {
    !line.trim_start().starts_with("//")
}

/// What `line` takes from the crate, each by the name that follows `crate::`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn no_room_names_one_above_or_beside_it() {
    for (file, text) in files().iter().filter(|(name, _)| !name.starts_with("machine/tests")) {
        let room = room_of(file);
        let (_, may) = ROOMS.iter().find(|(r, _)| *r == room).unwrap_or_else(|| {
            panic!("{file}: {room} is in no map; add it to ROOMS here and to src/lib.rs")
        });
        for line in text.lines().filter(is_code) {
            for name in named(line) {
                assert!(name == room || may.contains(&name), "{file} names {name}: {line}");
            }
        }
    }
}

/// `super` leads out of a room only from the file that is the room.
#[test]
fn no_room_is_left_by_super() {
    for (file, text) in files() {
        let text = text.split("mod tests {").next().unwrap();
        let inside = file.matches('/').count() - usize::from(file.ends_with("/mod.rs"));
        for line in text.lines().filter(is_code) {
            assert!(line.matches("super::").count() <= inside, "{file} leaves its room: {line}");
        }
    }
}

#[test]
fn the_map_has_every_room() {
    let map = std::fs::read_to_string(src().join("lib.rs")).unwrap();
    for (room, _) in ROOMS {
        let entry = format!("//! {room} ");
        assert!(
            map.lines().any(|l| l.starts_with(&entry)),
            "src/lib.rs does not say what {room} is"
        );
        assert!(map.contains(&format!("mod {room};")), "there is no {room}");
    }
}

#[test]
fn files_are_short() {
    for (file, text) in files() {
        let lines = text.lines().count();
        let max = if file == "machine.rs" { MACHINE_LINES_MAX } else { FILE_LINES_MAX };
        assert!(lines <= max, "{file} has {lines} lines, {max} at most");
    }
}

/// The machine hands its parts to nobody: all of `Sim` is private.
#[test]
fn the_machines_parts_are_its_own() {
    let machine = std::fs::read_to_string(src().join("machine.rs")).unwrap();
    let fields: Vec<&str> = (machine.split("pub struct Sim {").nth(1).unwrap().lines())
        .take_while(|l| *l != "}")
        .filter(|l| l.contains(':'))
        .collect();
    assert!(fields.len() > 3, "{fields:?}");
    assert!(fields.iter().all(|f| !f.trim_start().starts_with("pub")), "{fields:?}");
}
