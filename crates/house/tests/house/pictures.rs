// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the pictures are made from.

use crate::common::Small;
use unspin_house::{rotten, Rooms, Steps};

#[test]
fn rooms_know_what_they_include_build_and_depend_on() {
    let workspace = Small::new("rooms")
        .house("c = { low = \"Types\", high = \"Code\" }\n")
        .file("low/a.h", "")
        .file("high/b.c", "#include \"../low/a.h\"\n")
        .file("high/test/t.c", "#include \"a.h\"\n")
        .rust("lib.rs", "const TEXT: &str = include_str!(\"../../../low/a.h\");\n")
        .file("crates/one/build.rs", "fn main() { cc(\"../../high\"); }\n")
        .file("crates/two/src/lib.rs", "")
        .file(
            "crates/two/Cargo.toml",
            "[package]\nname = \"two\"\ndescription = \"Two\"\n[dependencies]\none = { path = \"../one\" }\n",
        )
        .workspace();
    let rooms = Rooms::of(&workspace).unwrap();
    let knows: Vec<String> = rooms.knows.iter().map(|(from, to)| format!("{from} {to}")).collect();
    assert_eq!(knows, ["crates/one high", "crates/one low", "crates/two crates/one", "high low"]);
    assert!(rooms.tests_know.is_empty());
    let floors = rooms.floors().unwrap();
    assert_eq!(floors["low"], 0);
    assert_eq!(floors["crates/two"], 3);
}

#[test]
fn rooms_in_a_circle_are_refused() {
    let workspace = Small::new("rooms_circle")
        .house("c = { low = \"Types\", high = \"Code\" }\n")
        .file("low/a.h", "#include \"../high/b.h\"\n")
        .file("high/b.h", "#include \"../low/a.h\"\n")
        .workspace();
    let error = Rooms::of(&workspace).unwrap().floors().unwrap_err().to_string();
    assert!(error.contains("high") && error.contains("low"), "{error}");
}

/// A file of steps with one lane, `a`, and one step at a lane.
fn steps(at: &str, function: &str) -> String {
    format!(
        "name = \"N\"\ndescription = \"D\"\nnote = \"\"\nopen = \"\"\narrow = []\n\
         [[lane]]\nid = \"a\"\ncolour = \"blue\"\ntitle = \"A\"\n\
         [[step]]\nid = \"s\"\nat = \"{at}\"\ntitle = \"S\"\ncode = [\"k/a.c: f(), {function}()\"]\n"
    )
}

const CODE: &str = "void f(void)\n{\n}\nstatic int *h(int a)\n{\n\treturn 0;\n}\nint g(void);\n";

#[test]
fn functions_of_steps_are_looked_for() {
    let found = |name: &str, function: &str| {
        let toml = steps("a", function);
        let root =
            Small::new(name).file("k/a.c", CODE).file("docs/exit.toml", &toml).workspace().root;
        Steps::read(&root, "docs/exit.toml").unwrap().unknown_functions(&root).unwrap()
    };
    assert_eq!(found("steps_known", "h"), Vec::<String>::new());
    assert_eq!(found("steps_unknown", "g"), ["docs/exit.toml: step s: k/a.c defines no g()"]);
}

#[test]
fn every_file_of_steps_has_a_picture_of_it() {
    let workspace = Small::new("steps_all")
        .file("k/a.c", CODE)
        .file("docs/one.toml", &steps("a", "h"))
        .file("docs/two.toml", &steps("a", "g"))
        .workspace();
    let facts = Steps::read(&workspace.root, "docs/two.toml").unwrap().facts();
    let metadata = facts.replace('"', "&quot;");
    let svg = format!("<metadata>\n{metadata}</metadata>");
    std::fs::write(workspace.root.join("docs/two.svg"), svg).unwrap();
    let found = rotten(&workspace).unwrap();
    let begins = |start: &str| found.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(begins("docs/one.svg: "), 1, "{found:?}");
    assert_eq!(begins("docs/two.svg"), 0, "{found:?}");
    assert_eq!(begins("docs/two.toml: step s: k/a.c defines no g()"), 1, "{found:?}");
}

#[test]
fn steps_at_no_lane_are_refused() {
    let root = Small::new("steps_lane").file("docs/exit.toml", &steps("b", "h")).workspace().root;
    let error = Steps::read(&root, "docs/exit.toml").err().unwrap().to_string();
    assert_eq!(error, "docs/exit.toml: step s is at `b`, which is no lane");
}
