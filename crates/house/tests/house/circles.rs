// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small trees with a circle known to be in them, and the same trees without.

use crate::common::{circles, Small};

const NONE: Vec<Vec<&str>> = Vec::new();

/// Two modules: the first knows the second by what is given, the second the first by `crate::a::A`.
fn two(name: &str, first: &str, second: &str) -> Small {
    Small::new(name).rust("lib.rs", "mod a;\nmod b;\n").rust("a.rs", first).rust("b.rs", second)
}

#[test]
fn use_of_crate_makes_an_arrow() {
    let first = "use crate::b::B;\npub struct A(B);\n";
    let one_way = two("one_way", first, "pub struct B;\n").findings();
    assert_eq!(circles(&one_way), NONE);
    let findings =
        two("crate_circle", first, "use crate::a::A;\npub struct B(Box<A>);\n").findings();
    assert_eq!(circles(&findings), [["a.rs", "b.rs"]]);
    let arrows: Vec<String> = findings.circles[0].arrows.iter().map(|a| a.to_string()).collect();
    assert_eq!(
        arrows,
        [
            "crates/one/src/a.rs:1 -> crates/one/src/b.rs (crate::b::B)",
            "crates/one/src/b.rs:1 -> crates/one/src/a.rs (crate::a::A)"
        ]
    );
}

#[test]
fn a_path_makes_an_arrow_wherever_it_stands() {
    let back = "use crate::a::A;\npub struct B(Box<A>);\npub fn f() -> u32 { 1 }\n";
    for (name, first) in [
        ("in_type", "pub struct A(Option<crate::b::B>);\n"),
        ("in_expression", "pub struct A;\nfn g() -> u32 { crate::b::f() }\n"),
        ("in_macro", "pub struct A;\nfn g() { println!(\"{}\", crate::b::f()); }\n"),
        ("in_function_use", "pub struct A;\nfn g() { use crate::b::f; f(); }\n"),
        ("by_module", "use crate::b;\npub struct A;\nfn g() -> u32 { b::f() }\n"),
        ("by_alias", "use crate::b as other;\npub struct A;\nfn g() -> u32 { other::f() }\n"),
        ("by_glob", "use crate::b::*;\npub struct A;\nfn g() -> u32 { f() }\n"),
        ("in_attribute", "#[serde(with = \"crate::b::f\")]\npub struct A;\n"),
    ] {
        assert_eq!(circles(&two(name, first, back).findings()), [["a.rs", "b.rs"]], "{name}");
    }
}

#[test]
fn a_module_that_uses_its_parent_is_a_circle_where_the_parent_uses_it() {
    let child = "use super::Item;\npub struct X(Item);\n";
    let tree = |name| Small::new(name).rust("lib.rs", "mod p;\n").rust("p/x.rs", child);
    let declared = tree("declared").rust("p/mod.rs", "mod x;\npub struct Item;\n").findings();
    assert_eq!(circles(&declared), NONE, "`mod x;` is no arrow");
    let parent = "mod x;\npub struct Item;\npub struct Both(x::X);\n";
    let used = tree("super_circle").rust("p/mod.rs", parent).findings();
    assert_eq!(circles(&used), [["p/mod.rs", "p/x.rs"]]);
    let parent = "mod x;\npub use x::X;\npub struct Item;\n";
    let shown = tree("super_reexport").rust("p/mod.rs", parent).findings();
    assert_eq!(circles(&shown), [["p/mod.rs", "p/x.rs"]], "a re-export is a use");
}

#[test]
fn arrows_go_through_re_exports_to_whoever_defines() {
    let findings = Small::new("reexport")
        .rust("lib.rs", "mod a;\nmod api;\nmod b;\n")
        .rust("api.rs", "pub use crate::b::B as Shown;\n")
        .rust("a.rs", "use crate::api::Shown;\npub struct A(Shown);\n")
        .rust("b.rs", "use crate::a::A;\npub struct B(Box<A>);\n")
        .findings();
    assert_eq!(circles(&findings), [["a.rs", "b.rs"]]);
}

#[test]
fn tests_make_no_arrows() {
    let first = "use crate::b::B;\npub struct A(B);\n";
    let second = "pub struct B;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n fn f(_: A) {}\n}\n\
                  #[cfg(test)]\nuse crate::a::A as Other;\n\
                  impl B {\n #[cfg(test)]\n fn of(_: crate::a::A) {}\n }\n";
    assert_eq!(circles(&two("for_tests", first, second).findings()), NONE);
    let second = second.replace("#[cfg(test)]\n fn of", "fn of");
    assert_eq!(circles(&two("not_for_tests", first, &second).findings()), [["a.rs", "b.rs"]]);
}

/// A directory of C with two files and their headers.
fn c(name: &str, a: &str, b: &str) -> Small {
    Small::new(name)
        .house("c = { k = \"C\" }\n")
        .file("k/a.h", "int a(void);\n")
        .file("k/b.h", "int b(void);\n")
        .file("k/a.c", a)
        .file("k/b.c", b)
}

#[test]
fn a_header_and_its_file_count_as_one() {
    let a = "#include \"a.h\"\n#include \"b.h\"\nint a(void) { return b(); }\n";
    let b = "#include \"b.h\"\nint b(void) { return 1; }\n";
    assert_eq!(circles(&c("c_one_way", a, b).findings()), NONE);
    let back = "#include \"b.h\"\n#include \"a.h\"\nint b(void) { return 1; }\n";
    let findings = c("c_circle", a, back).findings();
    assert_eq!(circles(&findings), [["k/a.c", "k/a.h", "k/b.c", "k/b.h"]]);
}

#[test]
fn a_circle_may_be_where_a_reason_stands() {
    let tree =
        |name: &str| two(name, "pub struct A(crate::b::B);\n", "pub struct B(Box<crate::a::A>);\n");
    let allow = |files: &str| format!("may_circle = [{{ files = [{files}], why = \"FFI\" }}]\n");
    let both = allow("\"crates/one/src/a.rs\", \"crates/one/src/b.rs\"");
    let allowed = tree("allowed").house(&both).findings();
    assert!(allowed.is_clean(), "{allowed}");
    let one = tree("allowed_one").house(&allow("\"crates/one/src/a.rs\"")).findings();
    assert_eq!((one.circles.len(), one.no_circles.len()), (1, 1));
    let gone = two("allowed_gone", "pub struct A;\n", "pub struct B;\n").house(&both).findings();
    assert!(!gone.is_clean(), "an entry for nothing");
}
