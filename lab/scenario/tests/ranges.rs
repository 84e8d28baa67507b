// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that a file does not know: what they become, and what is wrong with some.

use proptest::prelude::*;
use unspin_scenario::{parse_profile, parse_scenario, Domain, Ranges, Unknown};

const TEXT: &str = r#"title = "t"
[host]
pcpus = 4
exit_cycles = @
[[vm]]
count = 2
vcpus = 4
workload = "ebizzy"
[sweep]
cgroups = ["flat"]
[[arm]]
name = "stock"
"#;

/// `TEXT` with that exit cost.
fn with(value: &str) -> String {
    TEXT.replace('@', value)
}

fn ranges(text: &str) -> Ranges {
    Ranges::read("x.toml", text).unwrap()
}

#[track_caller]
fn refused(value: &str, words: &str) {
    let problems = Ranges::read("x.toml", &with(value)).expect_err(words).to_string();
    assert!(problems.contains("x.toml:4") && problems.contains("host.exit_cycles"), "{problems}");
    assert!(problems.contains(words), "{problems}");
}

#[test]
fn what_is_wrong_is_named_with_what_to_write() {
    refused(r#"{ range = [33000, 1200], source = "s" }"#, "above the upper end");
    refused(r#"{ range = [33000, 1200], source = "s" }"#, "[1200, 33000]");
    refused(r#"{ range = [5, 5], source = "s" }"#, "a range of one value");
    refused(r#"{ range = [5], source = "s" }"#, "1 numbers");
    refused(r#"{ range = [0, 5], log = true, source = "s" }"#, "must start above 0");
    refused(r#"{ range = [0.0, inf], source = "s" }"#, "not a finite number");
    refused(r#"{ any = [], source = "s" }"#, "an empty choice");
    refused(r#"{ any = [1], source = "s" }"#, "a choice of one value");
    refused(r#"{ any = [1, 2, 1], source = "s" }"#, "is listed twice");
    refused(r#"{ any = [1, 2] }"#, "source");
    refused(r#"{ range = [1, 2], source = " " }"#, "is empty");
    refused(r#"{ range = [1, 2], usual = 3, source = "s" }"#, "not in the range");
    refused(r#"{ any = [1, 2], usual = 3, source = "s" }"#, "none of them");
    refused(r#"{ range = [1, 2], any = [1, 2], source = "s" }"#, "not allowed with range");
    refused(r#"{ any = [1, 2], log = true, source = "s" }"#, "for ranges");
    refused(r#"{ range = [1, 2], sauce = "s" }"#, "did you mean `source`");
    let table = with("1").replace("exit_cycles = 1", "[host.exit_cycles]\nrange = [1, 2]");
    let problem = Ranges::read("x.toml", &table).unwrap_err().to_string();
    assert!(problem.contains("in braces"), "{problem}");
}

#[test]
fn without_worlds_a_range_is_its_middle_and_a_choice_its_first() {
    let same = |value: &str, concrete: &str| {
        let read = |value| parse_scenario("x.toml", "x", &with(value)).unwrap();
        assert_eq!(read(value), read(concrete), "{value}");
    };
    same(r#"{ range = [1000, 3000], source = "s" }"#, "2000");
    same(r#"{ range = [1000, 4000], log = true, source = "s" }"#, "2000");
    same(r#"{ range = [1000, 4000], usual = 1500, source = "s" }"#, "1500");
    same(r#"{ any = [7, 8], source = "s" }"#, "7");
    same(r#"{ any = [7, 8], usual = 8, source = "s" }"#, "8");
}

#[test]
fn a_choice_of_what_is_swept_over_is_a_list_of_one() {
    let text = with("1").replace(
        r#"cgroups = ["flat"]"#,
        r#"cgroups = { any = ["flat", "vm", ["vcpu", "vm"]], source = "s" }"#,
    );
    let r = ranges(&text);
    assert_eq!(r.unknown[0].path, "sweep.cgroups");
    let at =
        |at: f64| parse_scenario("x.toml", "x", &r.at(&[Some(at)])).unwrap().sweep.cgroups.len();
    assert_eq!([0.1, 0.5, 0.9].map(at), [1, 1, 2]);
}

#[test]
fn what_follows_a_range_keeps_its_line() {
    let text = with("{ any = [1,\n 2], source = \"s\" }").replace("vcpus = 4", "vcpu = 4");
    let problems = parse_scenario("x.toml", "x", &text).unwrap_err().0;
    let unknown = problems.iter().find(|p| p.key == "vm[0].vcpu").unwrap();
    assert_eq!(unknown.line, 8);
}

#[test]
fn profiles_have_ranges_too() {
    let text = "name = \"a\"\nspin_intensive = true\n[[step]]\nop = \"compute\"\n\
                iterations = { uniform = [{ range = [10, 20], source = \"s\" }, 40] }\n";
    let r = ranges(text);
    assert_eq!(r.unknown[0].path, "step[0].iterations.uniform[0]");
    let (low, usual) =
        (parse_profile("a", "a", &r.at(&[Some(0.0)])), parse_profile("a", "a", text));
    let plain = |n: u32| {
        parse_profile(
            "a",
            "a",
            &text.replace("{ range = [10, 20], source = \"s\" }", &n.to_string()),
        )
    };
    assert_eq!((low.unwrap(), usual.unwrap()), (plain(10).unwrap(), plain(15).unwrap()));
}

fn unknown(domain: Domain) -> Unknown {
    Unknown { path: "a".into(), domain, source: "s".into(), usual: String::new() }
}

proptest! {
    /// Values are in the range, follow their places, and the ends are reached.
    #[test]
    fn values_are_in_their_range(least in 1u32..1000, room in 1u32..100_000, whole: bool, log: bool, a in 0.0..1.0f64, b in 0.0..1.0f64) {
        let (least, most) = (f64::from(least), f64::from(least + room));
        let u = unknown(Domain::Range { least, most, whole, log });
        let value = |at: f64| u.value(at).parse::<f64>().unwrap();
        let (low, high) = (value(a.min(b)), value(a.max(b)));
        prop_assert!(least <= low && low <= high && high <= most);
        prop_assert_eq!((value(0.0), value(1.0)), (least, most));
        prop_assert!(!whole || low.fract() == 0.0);
    }

    /// Each choice has as many places.
    #[test]
    fn choices_are_equally_likely(n in 2usize..9) {
        let u = unknown(Domain::Any((0..n).map(|i| i.to_string()).collect()));
        for i in 0..n {
            prop_assert_eq!(u.value((i as f64 + 0.5) / n as f64), i.to_string());
        }
    }

    /// In any world the file is one that could have been written, and reads alike with it.
    #[test]
    fn a_world_is_a_file_that_could_have_been_written(at in 0.0..1.0f64) {
        let r = ranges(&with(r#"{ range = [1200, 33000], log = true, source = "s" }"#));
        let value = r.unknown[0].value(at);
        prop_assert_eq!(r.at(&[Some(at)]), with(&value));
        let read = parse_scenario("x.toml", "x", &r.at(&[Some(at)])).unwrap();
        prop_assert_eq!(read.host.costs.exit_cycles.map(|c| c.to_string()), Some(value));
    }
}
