// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malformed files and directories.

mod common;

use common::{fails, lab, made, said};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use unspin_scratch::Scratch;

/// A small scenario of `profile`, with these lines in its [[vm]].
fn scenario(profile: &str, vm: &str) -> String {
    format!(
        "title=\"t\"\n[host]\npcpus=4\n[[vm]]\nworkload=\"{profile}\"\n{vm}\n[measure]\nwarmup_ms=1\n\
         window_ms=20\nalone=false\n[[arm]]\nname=\"stock\"\n[[arm]]\nname=\"hvs\"\nyield_to=\"hvs\"\n"
    )
}

fn bench<'a>(file: &'a str, out: &'a str) -> Vec<&'a str> {
    vec!["bench", file, "--machine", "sim", "--kernel", "6.12", "-q", "--out", out]
}

#[test]
fn what_has_no_end_or_no_writer_is_refused_by_every_command() {
    let dir = Scratch::new();
    let fifo = dir.text("fifo");
    let c = CString::new(Path::new(&fifo).as_os_str().as_bytes()).unwrap();
    // SAFETY: it gets a string that ends.
    assert_eq!(unsafe { libc::mkfifo(c.as_ptr(), 0o600) }, 0);
    let large = dir.text("large");
    fs::File::create(&large).unwrap().set_len(1 << 42).unwrap();
    let out = dir.text("out");
    for (file, words) in [
        (fifo.as_str(), "it is a FIFO, not a regular file"),
        ("/dev/zero", "it is a device, not a regular file"),
        (&large, "it is larger than"),
    ] {
        fails(&["report", file], 2, words);
        fails(&["replay", file], 2, words);
        fails(&["agree", file], 2, words);
        fails(&["agree", "--known", file], 2, words);
        fails(&["model", file], 2, words);
        fails(&["generate", file, "--count", "1", "--out", &out], 2, words);
        let design = ["--design", file];
        fails(&[&bench("demo", &out)[..], &design].concat(), 2, words);
    }
    fails(&["plan", &large], 2, "it is larger than");
    for file in [fifo.as_str(), "/dev/zero"] {
        fails(&["plan", file], 2, "it is not a regular file");
        fails(&["bench", file], 2, "it is not a regular file");
    }
}

#[test]
fn names_and_titles_command_no_terminal() {
    let dir = Scratch::new();
    let evil = dir.file("na\nme\u{1b}[31m\u{202e}\u{85}\u{2028}.toml", "title = 5\n");
    for args in [
        vec!["plan", &evil],
        vec!["bench", &evil],
        vec!["model", &evil],
        vec!["report", &evil],
        vec!["replay", &evil],
        vec!["plan", "no\u{1b}[31msuch"],
        vec!["report", "/nonexistent/\u{1b}[31m\u{202e}"],
        vec!["bench", "demo", "--machine", "\u{1b}[31m"],
        vec!["\u{1b}[31m\u{202e}"],
    ] {
        let out = lab(&args);
        let said = said(&out) + &String::from_utf8_lossy(&out.stdout);
        assert!(!out.status.success(), "{said}");
        let commands = |c: char| "\u{1b}\u{202e}\u{85}\u{2028}".contains(c);
        assert!(!said.contains(commands), "{args:?}: {said:?}");
        assert!(!said.contains("na\nme"), "{args:?}: {said:?}");
    }
}

#[test]
fn nested_locks_ascend_also_in_a_plan() {
    let dir = Scratch::new();
    let step = |op: &str, more: &str| format!("[[step]]\nop = \"{op}\"\n{more}\n");
    let [one, zero] = ["lock = 1", "lock = 0"];
    let steps = [
        step("lock", one),
        step("lock", zero),
        step("critical", "iterations = 10"),
        step("unlock", zero),
        step("unlock", one),
    ];
    let head = "name = \"down\"\nspin_intensive = true\n";
    dir.file("profiles/down.toml", head.to_string() + &steps.concat());
    let file = dir.file("scenarios/order.toml", scenario("down", "vcpus=2"));
    for command in [vec!["plan", &file], bench(&file, &dir.text("out"))] {
        let said = fails(&command, 2, "`step[1]`: takes lock 0 while holding lock 1");
        assert!(said.contains("down.toml") && said.contains("ascending"), "{said}");
    }
    assert!(!Path::new(&dir.text("out")).exists());
}

#[test]
fn every_value_of_a_choice_is_judged_before_anything_runs() {
    let dir = Scratch::new();
    let cases = [
        ("vcpus={any=[4,\"z\"],source=\"x\"}", "`vm[0].vcpus` = \"z\""),
        ("vcpus=4\nlock={any=[\"ticket\",\"tickets\"],source=\"x\"}", "did you mean `ticket`?"),
        ("vcpus={range=[1,300],source=\"x\"}", "300 is out of range"),
        ("vcpus=4\ncpl={any=[0,2],source=\"x\"}", "no privilege level 2"),
    ];
    for (n, (vm, words)) in cases.iter().enumerate() {
        let file = dir.file(&format!("choice-{n}.toml"), scenario("ebizzy", vm));
        fails(&["plan", &file], 2, words);
        let out = dir.text("out");
        fails(&[&bench(&file, &out)[..], &["--worlds", "8"]].concat(), 2, words);
        assert!(!Path::new(&out).exists());
    }
    let host = scenario("ebizzy", "vcpus=4")
        .replace("pcpus=4", "pcpus=4\nexit_cycles={any=[3000,\"many\"],source=\"x\"}");
    fails(&["plan", &dir.file("host.toml", host)], 2, "`host.exit_cycles` = \"many\"");
    let named =
        scenario("{", "vcpus=4").replace("\"{\"", "{any=[\"ebizzy\",\"ebizy\"],source=\"x\"}");
    fails(&["plan", &dir.file("named.toml", named)], 2, "unknown profile \"ebizy\"");
}

#[test]
fn scenarios_of_one_name_do_not_replace_each_other() {
    let dir = Scratch::new();
    let files = ["a", "b"].map(|d| dir.file(&format!("{d}/x.toml"), scenario("ebizzy", "vcpus=2")));
    let out = dir.text("out");
    let mut both = bench(&files[0], &out);
    both.insert(2, &files[1]);
    let words = "2 scenarios are called \"x\", and both would write ";
    fails(&both, 2, words);
    assert!(!Path::new(&out).exists(), "something was made");
}

#[test]
fn results_that_cannot_be_written_are_told_before_anything_runs() {
    let dir = Scratch::new();
    let file = dir.file("first.toml", scenario("ebizzy", "vcpus=2"));
    for name in ["results.jsonl", "summary.json", "report.html"] {
        let out = dir.text(name);
        dir.dir(format!("{name}/{name}"));
        let said = fails(&bench(&file, &out), 2, "it is a directory");
        assert!(said.contains(&format!("{name}/{name}")) && said.contains("--out"), "{said}");
        assert!(!Path::new(&out).join("boots").exists(), "something was made");
    }
    let out = dir.file("out", "mine");
    for out in [format!("{out}/below"), out.clone()] {
        let said = fails(&bench(&file, &out), 2, "a file stands in place of this directory");
        assert!(said.contains(&out) && said.contains("--out"), "{said}");
    }
}

#[test]
fn a_bench_leaves_its_own_files_alone_and_no_others() {
    let dir = Scratch::new();
    let out = dir.text("out");
    let first = dir.file("first.toml", scenario("ebizzy", "vcpus=2"));
    assert!(lab(&bench(&first, &out)).status.success());
    let picture = |profile: &str| Path::new(&out).join(format!("waits-{profile}-1vm-flat.svg"));
    assert!(picture("ebizzy").is_file());
    dir.file("out/.summary.json.99999999.tmp", "half");
    dir.file("out/performance-mine.svg", "<svg/>");
    dir.file("out/notes.txt", "mine");
    let second = dir.file("first.toml", scenario("dbench", "vcpus=2"));
    assert!(lab(&bench(&second, &out)).status.success());
    assert!(picture("dbench").is_file() && !picture("ebizzy").exists());
    assert!(!Path::new(&dir.text("out/.summary.json.99999999.tmp")).exists());
    for mine in ["out/performance-mine.svg", "out/notes.txt"] {
        assert!(Path::new(&dir.text(mine)).is_file(), "{mine}");
    }
}

#[test]
fn a_report_of_nothing_fails_and_has_a_header() {
    let dir = Scratch::new();
    let out = dir.text("out");
    let file = dir.file("first.toml", scenario("ebizzy", "vcpus=2"));
    assert!(lab(&bench(&file, &out)).status.success());
    let results = fs::read_to_string(dir.text("out/results.jsonl")).unwrap();
    // Counts that cannot be.
    let wrong = results.replace("\"window_ns\":", "\"window_ns\":9999999999999");
    let wrong = dir.file("wrong.jsonl", wrong);
    fails(&["report", &wrong, "--out", &dir.text("report")], 1, "no run is left to report");
    let table = fs::read_to_string(dir.text("report/table.csv")).unwrap();
    assert!(table.starts_with("machine,kernel,scenario,profile,") && table.lines().count() == 1);
    let csv = lab(&["report", &wrong, "--csv"]);
    assert_eq!((csv.status.code(), csv.stdout), (Some(1), table.into_bytes()));
}

#[test]
fn errors_in_models_and_spaces_say_what_is_allowed() {
    let dir = Scratch::new();
    let model = "name = \"x\"\nunits = {}\nshare = 0.5\n[[phase]]\nthreads = 4\nms = 1.5\n";
    let model = dir.file("model.toml", model);
    let words =
        "model.toml:2:9: `units`: a table is not allowed here\n    allowed: an integer from 0";
    fails(&["model", &model], 2, words);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let space = fs::read_to_string(root.join("spaces/held-out.toml")).unwrap();
    let space = space.replacen("vcpus = [", "vcpus = [{}, ", 1);
    let space = dir.file("space.toml", space);
    let said = fails(
        &["generate", &space, "--count", "1", "--out", &dir.text("out")],
        2,
        "vcpus[0]`: a table is not allowed here",
    );
    assert!(
        said.contains("allowed: an integer from 0 to") && said.contains("space.toml:"),
        "{said}"
    );
}

/// Far too many arms or keys, and far too long ones: the error comes at once, and is short.
#[test]
fn large_files_are_judged_in_time_and_words_in_proportion() {
    let dir = Scratch::new();
    let arms: String = (0..100_000).map(|i| format!("[[arm]]\nname=\"a{i}\"\nwindo=1\n")).collect();
    let arms = dir.file("arms.toml", scenario("ebizzy", "vcpus=2") + &arms);
    let keys: String = (0..100_000).map(|i| format!("key{i} = 1\n")).collect();
    let keys = dir.file("keys.toml", keys + &scenario("ebizzy", "vcpus=2"));
    let long = "x".repeat(5 << 20);
    let long = dir.file("long.toml", format!("{long} = 1\n{}", scenario("ebizzy", "vcpus=2")));
    for (file, words) in [
        (arms, "100002 arms\n    allowed: at most 1000"),
        (keys, "… and 99980 more"),
        (long, "…`: unknown key"),
    ] {
        let said = fails(&["plan", &file], 2, words);
        assert!(said.len() < 20_000, "{} bytes", said.len());
    }
}

#[test]
fn a_trace_of_the_scheduler_is_repeated() {
    let dir = Scratch::new();
    let name = &dir.text("trace.jsonl");
    let begin = r#"{"trace":"unspin schedule","schema":1,"version":"0.1.0","kernel":"7.3.1","cpus":"0-3","turn_us":6000}"#;
    let next = r#"{"next":{"at_ns":5,"cpu":2,"before":null,"vnow":100,"of":[{"unit":[1,0],"vt":101},{"unit":[2,3],"vt":99}],"is":[2,3]}}"#;
    dir.write("trace.jsonl", format!("{begin}\n{next}\n{{\"lost\":7}}\n"));
    let out = made(&["replay", name]);
    let text =
        String::from_utf8_lossy(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["1 decisions", "1 alike, 0 differ", "; 7 are missing", "; traces that were broken off: 1"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    dir.write("trace.jsonl", format!("{begin}\n{}\n", next.replace("\"vt\":99", "\"vt\":102")));
    fails(
        &["replay", name],
        1,
        "line 2: next on CPU 2 at 5 ns: unit 3 of VM 2, here unit 0 of VM 1",
    );
    for (text, words) in [
        (format!("{begin}\n{}", &next[..60]), "line 2 is cut off"),
        (format!("{}\n", &begin[..60]), "line 1 is cut off"),
        (begin.replace("\"schema\":1", "\"schema\":2"), "line 1: schema 2, not 1"),
        (begin.replace("unspin schedule", "a"), "line 1: a trace of \"a\""),
        (
            format!("{begin}\n{}", next.replace("101", "\"x\"")),
            "line 2: invalid type: string \"x\"",
        ),
        (format!("{begin}\n{}", next.replace("next", "later")), "line 2: unknown variant `later`"),
        (
            format!("{begin}\n{next}\n{{\"end\":{{\"decisions\":2,\"lost\":0}}}}"),
            "line 3: the trace had 2 decisions",
        ),
        (begin.into(), "has no decisions"),
    ] {
        dir.write("trace.jsonl", text);
        fails(&["replay", name], 2, words);
    }
}
