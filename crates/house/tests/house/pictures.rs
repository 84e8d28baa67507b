// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the pictures are made from.

use crate::common::Small;
use unspin_house::{Exit, Rooms};

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

#[test]
fn functions_of_the_exit_are_looked_for() {
    let steps = |name: &str, function: &str| {
        let toml = format!(
            "arrow = []\n[[step]]\nid = \"a\"\nat = \"module\"\ntitle = \"A\"\ncode = [\"k/a.c: f(), {function}()\"]\n"
        );
        let root = Small::new(name)
            .file(
                "k/a.c",
                "void f(void)\n{\n}\nstatic int *h(int a)\n{\n\treturn 0;\n}\nint g(void);\n",
            )
            .file("docs/ple-exit.toml", &toml)
            .workspace()
            .root;
        Exit::read(&root).unwrap().unknown_functions(&root).unwrap()
    };
    assert_eq!(steps("exit_known", "h"), Vec::<String>::new());
    let found = steps("exit_unknown", "g");
    assert_eq!(found, ["docs/ple-exit.toml: step a: k/a.c defines no g()"], "only declared");
}
