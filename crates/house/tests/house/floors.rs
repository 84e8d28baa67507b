// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrows that run back up, and what is too long.

use crate::common::Small;

/// low <- left, right <- high
fn house(name: &str, low: &str, left: &str) -> Small {
    Small::new(name)
        .rooms("floors = [[\"low\"], [\"left\", \"right\"], [\"high\"]]")
        .rust("lib.rs", "mod high;\nmod left;\nmod low;\nmod right;\n")
        .rust("low.rs", low)
        .rust("left/mod.rs", "pub mod inner;\n")
        .rust("left/inner.rs", left)
        .rust("right.rs", "pub struct Right;\n")
        .rust("high.rs", "pub struct High(crate::left::inner::Left, crate::right::Right);\n")
}

const LEFT: &str = "pub struct Left;\n";

#[test]
fn arrows_lead_down() {
    let findings = house("down", "pub struct Low;\n", LEFT).findings();
    assert!(findings.is_clean(), "{findings}");
    let findings = house("up", "use crate::high::High;\n", LEFT).findings();
    assert_eq!(findings.up.len(), 1);
    let up = &findings.up[0];
    assert_eq!((up.from_room.as_str(), up.to_room.as_str(), up.arrow.line), ("low", "high", 1));
    let beside = format!("{LEFT}use crate::right::Right;\n");
    let findings = house("beside", "pub struct Low;\n", &beside).findings();
    assert_eq!(findings.up.len(), 1, "rooms of one floor do not know each other");
    let findings = house("root", "pub struct Low;\n", LEFT)
        .rust("lib.rs", "mod high;\nmod left;\nmod low;\nmod right;\npub struct Top;\n")
        .rust("right.rs", "pub struct Right(crate::Top);\n")
        .findings();
    assert_eq!(findings.up.len(), 1, "the root is above all floors");
}

#[test]
fn each_file_has_a_room_and_each_room_a_file() {
    let extra = house("no_room", "", LEFT)
        .rust("lib.rs", "mod high;\nmod left;\nmod low;\nmod right;\nmod shed;\n")
        .rust("shed.rs", "");
    let findings = extra.findings();
    assert_eq!(
        findings.misplaced,
        ["crates/one/src/shed.rs is in no room: add `shed` to the floors of crates/one/Cargo.toml"]
    );
    assert!(!findings.is_clean());
    let floors = "floors = [[\"low\"], [\"left\", \"right\", \"attic\"], [\"high\"]]";
    let findings = house("no_file", "", LEFT).rooms(floors).findings();
    assert_eq!(
        findings.misplaced,
        ["the floors of crates/one/Cargo.toml name `attic`, which has no file"]
    );
}

#[test]
fn floors_of_c_are_files_without_extension() {
    let tree = |name: &str, base: &str| {
        Small::new(name)
            .house("c = { k = \"C\" }\nfloors = { k = [[\"base\"], [\"user\"]] }\n")
            .file("k/base.h", base)
            .file("k/user.h", "")
            .file("k/user.c", "#include \"base.h\"\n#include \"user.h\"\n")
            .findings()
    };
    assert!(tree("c_down", "").is_clean());
    assert_eq!(tree("c_up", "#include \"user.h\"\n").up.len(), 1);
}

/// That many lines, of which all but two are its body.
fn function(head: &str, lines: usize) -> String {
    format!("{head} {{\n{}}}\n", "\t;\n".repeat(lines - 2))
}

#[test]
fn functions_have_70_lines_at_most_and_files_500() {
    let long = |name: &str, rust: usize, c: usize, file: usize| {
        let findings = Small::new(name)
            .house("c = { k = \"C\" }\n")
            .rust("lib.rs", &function("pub fn f()", rust))
            .file("k/a.c", &function("static int *g(int a)", c))
            .file("k/b.h", &"\n".repeat(file))
            .file("k/test/c.h", &"\n".repeat(1000))
            .file("crates/one/tests/d.rs", &function("fn h()", 1000))
            .findings();
        let name = |f: &unspin_house::Function| f.name.clone();
        findings
            .long
            .iter()
            .map(|l| (l.function.as_ref().map_or(l.file.clone(), name), l.lines))
            .collect::<Vec<_>>()
    };
    assert_eq!(long("short", 70, 70, 500), []);
    let found = long("long", 71, 72, 501);
    let wanted =
        [("f", 71), ("g", 72), ("k/b.h", 501)].map(|(name, lines)| (name.to_string(), lines));
    assert_eq!(found, wanted);
}
