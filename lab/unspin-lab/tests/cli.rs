// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command as its users meet it: what it prints, how it exits.

mod common;

use common::{fails, lab, made};
use std::path::Path;
use std::process::{Command, Stdio};
use unspin_scratch::Scratch;

fn begin_record() -> String {
    "{\"record\":\"begin\",\"schema\":1,\"scenario\":\"s\",\"scenario_hash\":\"\",\"kernel\":\"6.12\",\
     \"cpu_model\":\"\",\"pcpus\":1,\"tsc_khz\":1,\"module\":null,\"window_control\":null,\
     \"settings\":{}}\n"
        .to_string()
}

#[test]
fn a_cause_is_said_once() {
    let said = lab(&["report", "/dev/null/x"]).stderr;
    let said = String::from_utf8_lossy(&said);
    assert_eq!(said.matches("Not a directory").count(), 1, "{said}");
    let dir = Scratch::new();
    let file = dir.file("begin.jsonl", begin_record());
    let said = lab(&["report", &file, "--out", "/dev/null/x"]).stderr;
    let said = String::from_utf8_lossy(&said);
    assert_eq!(said.matches("os error").count(), 1, "{said}");
}

#[test]
fn usage_errors_are_2() {
    fails(&["bench"], 2, "SCENARIO");
    fails(&["bench", "nosuch"], 2, "components, demo");
    fails(&["bench", "/dev/null"], 2, "no scenario /dev/null: it is not a regular file");
    fails(&["bench", "demo", "--arm", "aples"], 2, "did you mean \"apples\"?");
    fails(&["bench", "demo", "--vms", "9"], 2, "no number of VMs \"9\"");
    fails(&["bench", "demo", "--profile", "ebizy"], 2, "did you mean \"ebizzy\"?");
    fails(&["report", "/nonexistent"], 2, "/nonexistent");
    fails(&["figures", "apples_fig6"], 2, "did you mean \"apples_fig6_ebizzy\"?");
    fails(&["figures", "apples_params"], 2, "definitions have no values to compare");
    fails(&["frobnicate"], 2, "unrecognized subcommand");
    fails(&["agent"], 2, "usage: agent");
}

#[test]
fn wrong_files_are_2_and_placed() {
    let dir = Scratch::new();
    let refused = |text: &[u8], words: &str| {
        fails(&["bench", &dir.file("wrong.toml", text)], 2, words);
    };
    let key = b"title = \"t\"\nsed = 1\n";
    refused(key, "wrong.toml:2:1: `sed`: unknown key");
    refused(key, "did you mean `seed`?");
    refused(&[0xff, 0xfe], "not a text file");
    let text =
        b"title=\"t\"\n[host]\npcpus=1\n[[vm]]\nvcpus=1\nworkload=\"nosuch\"\n[[arm]]\nname=\"a\"\n";
    refused(text, "unknown profile \"nosuch\"");
}

#[test]
fn what_no_machine_has_is_said_before_anything_is_made() {
    let dir = Scratch::new();
    let none = dir.join("none");
    let text = |head: &str, pcpus: u32| {
        format!(
            "title=\"t\"\n{head}\n[host]\npcpus={pcpus}\n[[vm]]\nvcpus=1\nworkload=\"ebizzy\"\n\
             [[arm]]\nname=\"stock\"\n"
        )
    };
    let mut cases = vec![
        ("sim", text("kernel=\"9.9\"", 4), "checks.toml:2:8: `kernel`: machine sim does not model"),
        ("sim", text("kernel=[]", 4), "checks.toml:2:8: `kernel`: empty"),
    ];
    if unspin_computers::missing_tools(unspin_computers::BOCHS_TOOLS).is_empty() {
        let of_12 = ["lab", "boot", "--kernel", "7.3", "--debian", "12"];
        fails(&of_12, 2, "Debian \"12\" has no package of kernel 7.3; allowed: 13");
        fails(&["lab", "build", "--flavour", "rt"], 2, "allowed: cloud-amd64, amd64");
        cases.push((
            "emulated",
            text("kernel=\"9.9\"", 4),
            "`kernel`: emulated computers cannot run kernel",
        ));
        let wanted = "checks.toml:4:7: `host.pcpus`: no emulated computer can have 64 pCPUs";
        cases.push(("emulated", text("", 64), wanted));
        let large = text("", 4).replace("vcpus=1", "vcpus=129");
        cases.push(("emulated", large, "`vm`: a VM of machine emulated cannot have 129 vCPUs"));
        let linux = |keys: &str| {
            let vm = format!("vcpus=2\nguest=\"linux\"\n{keys}\nworkload=\"hackbench\"");
            text("", 4).replace("vcpus=1\nworkload=\"ebizzy\"", &vm)
        };
        let old = linux("guest_kernel=\"5.4\"");
        cases.push(("emulated", old, "`vm`: Linux guests cannot run kernel \"5.4\""));
        let large = linux("memory_mib=2000");
        cases.push(("emulated", large, "`vm`: the Linux guests of a run need 2000 MiB"));
    } else {
        println!("SKIPPED: machine emulated: its tools are not installed");
    }
    for (machine, text, words) in cases {
        let (file, out, lab) =
            (dir.file("checks.toml", text), dir.text("none/out"), dir.text("none/lab"));
        fails(&["bench", &file, "--machine", machine, "--out", &out, "--lab-dir", &lab], 2, words);
        assert!(!none.exists(), "{machine}: something was made");
    }
}

#[test]
fn results_and_traces_without_content_are_2() {
    let dir = Scratch::new();
    fails(&["replay", &dir.text("")], 2, "it is a directory, not a regular file");
    fails(&["replay", "/nonexistent"], 2, "/nonexistent");
    fails(&["lab", "build", "--kernel", "9"], 2, "allowed: 6.1, 6.12, 7.3");
    let name = &dir.text("empty.jsonl");
    let other_schema = begin_record().replace("\"schema\":1", "\"schema\":9");
    for (text, words) in [
        ("", "no records"),
        ("\u{7f}ELF\0\n", "not a record"),
        ("{\"record\":", "records before it: 0"),
        (&other_schema, "schema 9"),
    ] {
        dir.write("empty.jsonl", text);
        fails(&["report", name], 2, words);
        fails(&["report", name], 2, "no results to report");
        fails(&["replay", name], 2, "has no decisions");
    }
    dir.write("empty.jsonl", "unspin_pick: vm=\u{1b}[2J count=x\n");
    fails(&["replay", name], 2, "count=x is not a valid number");
    let said = lab(&["replay", name]).stderr;
    assert!(!said.contains(&0x1b), "{}", String::from_utf8_lossy(&said));
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

#[test]
fn plans_completions_and_manuals_are_printed() {
    let out = made(&["plan", "demo"]);
    assert!(out.stdout.starts_with(b"{\"schema\":1,\"scenario\":\"demo\""));
    for shell in ["bash", "zsh", "fish"] {
        assert!(lab(&["completions", shell]).stdout.len() > 1000, "{shell}");
    }
    assert!(String::from_utf8_lossy(&lab(&["man"]).stdout).contains("unspin-lab"));
}

#[test]
fn a_scenario_is_simulated_alike_by_any_number_of_threads() {
    let dir = Scratch::new();
    let text = "title=\"t\"\nrepeats=2\n[host]\npcpus=16\nmodel=\"server\"\n[[vm]]\nvcpus=16\n\
                pin=\"one-per-pcpu\"\nworkload=\"ebizzy\"\n[sweep]\nvms=[2]\n[measure]\n\
                warmup_ms=10\nwindow_ms=20\n[[arm]]\nname=\"stock\"\n[[arm]]\nname=\"hvs\"\n\
                yield_to=\"hvs\"\n";
    let file = dir.file("sim.toml", text);
    let results = |jobs: &str| {
        let args = ["bench", &file, "--machine", "sim", "--kernel", "3.19", "--json", "--jobs"];
        let ran = made(&[&args[..], &[jobs, "--out", &dir.text(jobs)]].concat());
        let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(json["machine"], "sim");
        assert_eq!(json["arms"][0]["arm"], "stock");
        dir.read(format!("{jobs}/results.jsonl"))
    };
    let one = results("1");
    assert_eq!(one, results("3"));
    let run = one.lines().find(|l| l.contains("\"record\":\"run\"")).unwrap();
    let run: serde_json::Value = serde_json::from_str(run).unwrap();
    let spent = run["vm"][0]["attribution"].as_object().unwrap();
    // The classes; the factors are parts of them.
    let classes = spent.iter().filter(|(name, _)| *name != "factors");
    let sum: u64 = classes.map(|(_, ns)| ns.as_u64().unwrap()).sum();
    assert_eq!(sum, run["vm"][0]["cpu_ns"].as_array().unwrap().len() as u64 * 20_000_000);
    let agree = ["agree", "--seeds", "1", &dir.text("1/results.jsonl")];
    fails(&agree, 2, "machine sim does not measure");
    // As if it had been measured.
    let measured = one.replace("\"machine\":\"sim\"", "\"machine\":\"emulated\"");
    dir.line("1/results.jsonl", &measured);
    let agreed = made(&agree);
    assert!(String::from_utf8_lossy(&agreed.stdout).contains("| `ebizzy` | 2 × 16 | flat | hvs |"));
    fails(&["bench", "demo", "--machine", "sim", "--kernel", "2.6"], 2, "allowed: 2012, 3.19, 6.1");
}

#[test]
fn outside_a_checkout_scenarios_are_known_or_their_place_is() {
    let dir = Scratch::new();
    let program = dir.join("bin/unspin-lab");
    dir.dir("bin");
    // By another process: a file this one has open for writing is in the children that other tests start,
    // and cannot be run.
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_unspin-lab")).arg(&program).status().unwrap();
    assert!(copied.success());
    let said = |root: Option<&Path>| {
        let mut command = Command::new(&program);
        command.args(["bench", "nosuch"]).current_dir(&dir).stdin(Stdio::null());
        if let Some(root) = root {
            command.env("UNSPIN_ROOT", root);
        }
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let known = said(None);
    assert!(known.contains("components, demo"), "{known}");
    assert_eq!(said(Some(Path::new(""))), known, "an empty value counts as unset");
    let none = said(Some(Path::new("/nonexistent")));
    assert!(none.contains("/usr/share/unspin/scenarios: name a file"), "{none}");
    let pages = dir.join("a/b");
    let write = ["man", pages.to_str().unwrap()];
    fails(&write, 2, "no such directory");
    std::fs::create_dir_all(&pages).unwrap();
    made(&write);
    assert!(pages.join("unspin-lab.1").is_file() && !pages.join("unspin-lab-agent.1").exists());
    let page = std::fs::read_to_string(pages.join("unspin-lab-bench.1")).unwrap();
    assert!(page.contains("EXIT STATUS") && page.contains("\\fB77"), "{page}");
}

#[test]
fn a_bench_does_not_write_where_another_does() {
    let out = Scratch::new();
    let held = unspin_text::Lock::take(&out.join("boots")).unwrap();
    let args = ["bench", "smoke", "--machine", "sim", "--out", out.to_str().unwrap()];
    fails(&args, 1, &format!("another unspin (process {})", std::process::id()));
    drop(held);
    assert!(!out.join("results.jsonl").exists());
}

/// A scenario of two VMs on one CPU, with more of its own.
fn locks_scenario(arms: &str) -> String {
    format!(
        "title = \"t\"\nrepeats = 1\n[host]\npcpus = 1\n[[vm]]\nvcpus = 1\npin = \"one-per-pcpu\"\n\
         [sweep]\nprofiles = [\"dbench\"]\nvms = [2]\n\
         [measure]\nwarmup_ms = 1\nwindow_ms = 30\nstagger_ms = 1\n{arms}"
    )
}

#[test]
fn locks_are_compared_on_threads() {
    let arms = "[[arm]]\nname = \"ticket\"\n[[arm]]\nname = \"ours\"\nlock = { preemptable = { tau_ns = 500 } }\n";
    let dir = Scratch::new();
    let file = dir.file("threads.toml", locks_scenario(arms));
    let args = ["bench", &file, "--profile-dir", "profiles", "--machine", "threads", "--json"];
    let made = made(&[&args[..], &["--out", &dir.text("out")]].concat());
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(summary["machine"], "threads");
    assert_eq!(summary["provenance"]["complete"], true);
    let records = dir.read("out/results.jsonl");
    let records: Vec<serde_json::Value> =
        records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(records[0]["cpu_model"].as_str().is_some_and(|model| !model.is_empty()));
    let runs: Vec<_> = records.iter().filter(|r| r["record"] == "run").collect();
    let locks: Vec<_> = runs.iter().map(|r| r["run"]["lock"].as_str().unwrap()).collect();
    assert_eq!(locks, ["ticket", "ticket", "preemptable"], "alone, and both arms");
    assert!(runs.iter().all(|r| r["vm"][0]["sched"]["involuntary_switches"].is_array()));
}

#[test]
fn the_emulated_amd_processor_refuses_linux_guests() {
    let scenario = "scenarios/linux-smoke.toml";
    let args = ["bench", scenario, "--machine", "emulated", "--emulator", "qemu-amd"];
    fails(&args, 2, "`vm`: Linux guests, which do not boot on the emulated AMD processor");
    fails(&args, 2, "allowed: the bench guest, or --emulator bochs");
}

#[test]
fn threads_refuse_what_needs_a_hypervisor() {
    let dir = Scratch::new();
    let arm = |keys: &str| locks_scenario(&format!("[[arm]]\nname = \"a\"\n{keys}\n"));
    let refused = |text: &str, code: i32, words: &str| {
        let file = dir.file("refused.toml", text);
        let args = ["bench", &file, "--profile-dir", "profiles", "--machine", "threads"];
        fails(&args, code, words)
    };
    for keys in ["window = \"aple\"", "window = \"off\"", "yield_to = \"hvs\""] {
        let key = keys.split(' ').next().unwrap();
        let words = format!("`arm[0].{key}`: machine threads does not support this: ");
        let said = refused(&arm(keys), 2, &words);
        assert!(said.contains("allowed: left out, or --machine kvm, emulated or sim"), "{said}");
    }
    let text = arm("");
    let slice = format!("slice_ns = 1000000\n{text}");
    refused(&slice, 2, "`slice_ns`: machine threads does not support this: slice to set");
    let large = text.replace("pcpus = 1", "pcpus = 1024");
    refused(&large, 77, "needs 1024 CPUs, and this process may run on");
    fails(&["threads-run"], 2, "only unspin-lab bench starts this command");
}

#[test]
fn a_slowdown_is_split_among_five_factors() {
    let scenario =
        "title = \"t\"\nrepeats = 1\n[host]\npcpus = 2\nmodel = \"server\"\n[[vm]]\ncount = 2\n\
                    vcpus = 2\npin = \"one-per-pcpu\"\nworkload = \"hackbench\"\n[measure]\n\
                    window_ms = 20\nwarmup_ms = 5\nalone = false\n[[arm]]\nname = \"stock\"\n";
    let dir = Scratch::new();
    let path = &dir.file("attribute.toml", scenario);
    let bench = ["bench", path, "--machine", "sim", "--quiet", "--out", &dir.text("out")];
    let made = made(&[&bench[..], &["--attribute", "--json"]].concat());
    assert!(made.stderr.is_empty(), "nothing but the result: {made:?}");
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let rows = summary["arms"].as_array().unwrap();
    let whole: Vec<&serde_json::Value> = rows.iter().filter(|r| r["vm_index"].is_null()).collect();
    assert_eq!(whole.len(), 1, "the scenario's arm alone");
    let cost = whole[0]["cost"].as_object().unwrap();
    let sum: u64 = cost.values().map(|ns| ns.as_u64().unwrap()).sum();
    assert_eq!(sum, 4 * 20_000_000, "to the nanosecond: {cost:?}");
    let split = &summary["slowdowns"][0];
    assert!(split["slowdown"].is_f64() && split["arm"] == "stock", "{split}");
    let factor = |name: &str| {
        let all = split["factors"].as_array().unwrap();
        all.iter().find(|f| f["factor"] == name).unwrap().clone()
    };
    for (name, ns) in [("idle-switch", "idle_switch_ns"), ("ipi", "ipi_ns")] {
        let share = cost[ns].as_u64().unwrap() as f64 / sum as f64;
        assert!(share > 0.0 && (factor(name)["share"].as_f64().unwrap() - share).abs() < 1e-5);
    }
    assert!(factor("ipi")["regained"].as_f64().unwrap() > 0.0, "{split}");
    let page = dir.read("out/report.html");
    assert!(page.contains("Slowdown by factor") && !page.contains("stock-no-ipi"));
    fails(&["bench", path, "--machine", "threads", "--attribute"], 2, "allowed: --machine sim");
}

/// Time lost to caches is named, and returns where all pCPUs share one cache.
#[test]
fn caches_that_siblings_do_not_share_are_named() {
    let dir = Scratch::new();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/diagnosis-cache.toml");
    let bench = ["bench", scenario, "--machine", "sim", "--attribute", "--json", "--quiet"];
    let made = made(&[&bench[..], &["--out", &dir.text("out")]].concat());
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let named: Vec<(&str, u64, Option<&str>)> = summary["slowdowns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            (r["profile"].as_str().unwrap(), r["vms"].as_u64().unwrap(), r["dominant"].as_str())
        })
        .collect();
    for (profile, alone) in [
        ("shares-300-lines", Some("cache")),
        ("shares-3000-lines", Some("cache")),
        ("compute", None),
        ("hackbench", None),
    ] {
        assert!(named.contains(&(profile, 1, alone)), "{profile}: {named:?}");
        assert!(named.contains(&(profile, 2, Some("contention"))), "{profile}: {named:?}");
    }
    for row in summary["slowdowns"].as_array().unwrap().iter().filter(|r| r["dominant"] == "cache")
    {
        let cache =
            row["factors"].as_array().unwrap().iter().find(|f| f["factor"] == "cache").unwrap();
        let [share, regained] = ["share", "regained"].map(|key| cache[key].as_f64().unwrap());
        let foretold = 1.0 / (1.0 - share) - 1.0;
        assert!((regained / foretold - 1.0).abs() < 0.05, "{share} {regained}");
    }
}

#[test]
fn a_model_is_worked_out_or_its_profile_is_refused() {
    let profile =
        "name = \"x\"\nunits = 4\nshare = 0.5\nperiod_ms = 12\nswitch_us = 0\n[[phase]]\n\
                   threads = 1\nms = 2\n[[phase]]\nthreads = 4\nms = 1\n";
    let dir = Scratch::new();
    let speedup = |text: &str, more: &[&str]| {
        let out = made(&[&["model", "--json", &dir.file("model.toml", text)], more].concat());
        let line: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        line["speedup_vm"].as_f64().unwrap().round() as u32
    };
    assert_eq!(speedup(profile, &[]), 2);
    assert_eq!(speedup(profile, &["--matched"]), 4);
    let rotating = profile.replace("switch_us", "sequential = \"rotating\"\nswitch_us");
    assert_eq!(speedup(&rotating, &[]), 4);
    let bad = dir.file("bad.toml", profile.replace("share = 0.5", "share = 5"));
    fails(&["model", &bad], 2, "share = 5; it is from 0.001 to 1");
    fails(&["model", "/nonexistent.toml"], 2, "no file /nonexistent.toml");
    fails(&["model"], 2, "PROFILE");
    fails(&["model", "--for", "3", "x.toml"], 2, "cannot be used with");
    fails(&["model", "--record", "web1", "x.toml"], 2, "cannot be used with");
    fails(&["model", "--record", "web1", "--for", "0"], 2, "allowed: 0.1 to 3600");
}

#[test]
fn the_papers_scenarios_are_found_by_name() {
    for (scenario, profile) in
        [("pmtlock", "pmtlock-ebizzy"), ("beyond-oticket-ple", "oticket-lkc")]
    {
        let out = made(&["plan", scenario, "--list"]);
        let listed = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(listed.contains(profile), "{listed}");
    }
    // One of another paper's programs, from another directory.
    let text = "title = \"t\"\n[host]\npcpus = 16\n[[vm]]\nvcpus = 16\n\
                workload = \"dissertation-asym-matmul\"\n[[arm]]\nname = \"stock\"\n";
    made(&["plan", &Scratch::new().file("matmul.toml", text)]);
    fails(&["bench", "nosuch"], 2, "pmtlock, pmtlock-hackbench");
}

#[test]
fn the_pictures_of_a_matrix_go_where_they_are_told() {
    let dir = Scratch::new();
    let path = |name: &str| dir.text(name);
    let bench = ["bench", "matrix", "--machine", "sim", "--quiet", "--out"];
    let few = ["--profile", "ebizzy", "--arm", "stock", "--lock", "ticket,mcs", "--vms", "2"];
    made(&[&bench[..], &[&path("out"), "--repeats", "1"], &few].concat());
    dir.dir("results");
    for (page, pictures, at) in
        [("docs/m.md", Some("../results"), "results"), ("beside/m.md", None, "beside")]
    {
        let page = dir.join(page);
        std::fs::create_dir_all(page.parent().unwrap()).unwrap();
        let (results, file) = (path("out"), page.display().to_string());
        let mut args = vec!["report", &results, "--matrix", &file];
        args.extend(pictures.iter().flat_map(|dir| ["--pictures", dir]));
        made(&args);
        let text = std::fs::read_to_string(&page).unwrap();
        let files = std::fs::read_dir(dir.join(at)).unwrap().map(|f| f.unwrap().file_name());
        let files = files.map(|f| f.into_string().unwrap()).filter(|f| f.ends_with(".svg"));
        let files: Vec<String> = files.collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let link = pictures.map(|dir| format!("{dir}/")).unwrap_or_default() + &files[0];
        assert!(text.contains(&format!("]({link})")), "{link}: {text}");
    }
}

#[test]
fn what_is_drawn_goes_where_nothing_else_is() {
    let dir = Scratch::new();
    let out = dir.to_str().unwrap();
    let draw = |count, seed| {
        ["generate", "spaces/held-out.toml", "--count", count, "--seed", seed, "--out", out]
    };
    made(&draw("3", "5"));
    let first = dir.read("held-out-01.toml");
    made(&draw("4", "5"));
    assert_eq!(first, dir.read("held-out-01.toml"), "the first of more are the same");
    made(&draw("4", "6"));
    assert_ne!(first, dir.read("held-out-01.toml"));
    fails(
        &draw("3", "6"),
        2,
        "its file held-out-04.toml is not one of these scenarios; use an empty directory",
    );
    fails(&draw("0", "6"), 2, "0 is not in 1..=1000");
    let spaces = Scratch::new();
    let file = spaces.file("space.toml", "title = 3\n");
    let wrong = ["generate", &file, "--count", "1", "--out", out];
    fails(&wrong, 2, "space.toml:1:9: `title`: the integer 3 is not allowed here");
    fails(&["generate", "/nonexistent", "--count", "1", "--out", out], 2, "no file /nonexistent");
}

#[test]
fn wrong_known_ratios_are_2_and_placed() {
    let right = r#"{"scenario":"components","kernel":"6.12","profile":"dbench","vms":2,"cgroup":"flat","arm":"hvs","performance":1.1}"#;
    let cases = [
        (right.replace("1.1}", "0}"), ":1: `performance` must be a number above 0"),
        (
            right.replace("hvs", "cch"),
            ":1: scenario components does not have this arm at this point",
        ),
        (right.replace("6.12", "9.9"), "machine sim does not model kernel 9.9"),
        (right.replace("components", "nosuch"), "no scenario nosuch"),
        (right.replace("\"vms\"", "\"vmz\""), ":1: unknown field `vmz`"),
    ];
    let dir = Scratch::new();
    for (text, words) in cases {
        fails(&["agree", "--known", &dir.file("known.jsonl", text)], 2, words);
    }
    fails(&["agree"], 2, "required");
}

/// Before anything is measured.
#[test]
fn a_vm_to_record_is_there_and_one() {
    let host = Scratch::new();
    for (pid, name) in [(41, "web1"), (42, "twin"), (43, "twin")] {
        host.vm(pid, &["/usr/bin/qemu-system-x86_64", "-name", name]);
    }
    for (name, code, words) in [
        ("web2", 1, "no VM \"web2\"; VMs: 41 (web1), 42 (twin)"),
        ("twin", 2, "42 (twin), 43 (twin)"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin-lab"));
        command.args(["model", "--record", name]).env("UNSPIN_PROC", host.join("proc"));
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.contains(words)), (Some(code), true), "{said}");
    }
}
