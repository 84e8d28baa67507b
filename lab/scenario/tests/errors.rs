// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way a file can be wrong is named with its line, its key, and what is allowed.

use unspin_scenario::plan::{CoschedulingMechanism, GuestIdle};
use unspin_scenario::{parse_profile, parse_scenario, problem_at, Problem, Scenario};

const GOOD: &str = r#"title = "t"
[host]
pcpus = 4
[[vm]]
count = 2
vcpus = 4
workload = "ebizzy"
[[arm]]
name = "stock"
"#;

fn problems(text: &str) -> Vec<Problem> {
    parse_scenario("x.toml", "x", text).expect_err("the scenario is wrong").0
}

/// The one problem of `GOOD` with `from` replaced.
fn problem(from: &str, to: &str) -> Problem {
    assert!(GOOD.contains(from), "{from}");
    let mut all = problems(&GOOD.replace(from, to));
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[track_caller]
fn check(from: &str, to: &str, key: &str, words: &str) {
    let p = problem(from, to);
    assert_eq!(p.key, key, "{p}");
    assert!(p.to_string().contains(words), "{p}");
}

#[test]
fn the_good_one_is_good() {
    let s = parse_scenario("x.toml", "x", GOOD).unwrap();
    assert_eq!((s.repeats, s.seed, s.sweep.vms.as_slice()), (3, 1, &[2][..]));
}

#[test]
fn unknown_keys_are_placed_and_guessed() {
    let p = problem("pcpus = 4", "pcpus = 4\npcpu = 3");
    assert_eq!((p.line, p.column, p.key.as_str()), (4, 1, "host.pcpu"));
    assert_eq!(p.suggestion.as_deref(), Some("pcpus"));
    assert_eq!(
        p.to_string(),
        "x.toml:4:1: `host.pcpu`: unknown key\n    allowed: pcpus, model, lock_clock_mhz, scheduler, period_ms, loop_detection, llc_pcpus, threads_per_core, thread_speed_percent, skew_tick, group_load_lags, housekeeping_ppm, exit_cycles, yield_cycles, queue_lock_cycles, switch_cycles, tick_cycles, interrupt_cycles, ipi_cycles, kick_cycles, halt_cycles, wake_cycles, handoff_cycles, guest_switch_cycles, migration_cycles\n    did you mean `pcpus`?"
    );
    let p = problem("title", "repeat = 3\ntitle");
    assert_eq!(p.suggestion.as_deref(), Some("repeats"));
    let p = problem("count = 2", "colour = 2");
    assert_eq!((p.key.as_str(), p.suggestion), ("vm[0].colour", None));
}

#[test]
fn types_units_and_ranges() {
    check("title = \"t\"", "title = 3", "title", "the integer 3 is not allowed here");
    check("title = \"t\"", "title = \" \"", "title", "empty");
    check("pcpus = 4", "pcpus = \"4\"", "host.pcpus", "the string \"4\"");
    check("pcpus = 4", "pcpus = 4.5", "host.pcpus", "the fraction 4.5");
    check("pcpus = 4", "pcpus = -4", "host.pcpus", "-4 is out of range");
    check("title", "seed = 99999999999999999999\ntitle", "seed", "out of range");
    check("title", "repeats = 0\ntitle", "repeats", "0 is out of range");
    check("title", "slice_ns = 3\ntitle", "slice_ns", "nanoseconds");
    check("title", "kernel = \"6\"\ntitle", "kernel", "not a kernel series");
    check("[host]", "[measure]\nwindow_ms = 0\n[host]", "measure.window_ms", "milliseconds");
    check("[host]", "[measure]\nwindow_ms = \"300ms\"\n[host]", "measure.window_ms", "300ms");
    check("[host]", "[measure]\nwindow_us = 5\n[host]", "measure.window_us", "`window_ms`?");
    check("[host]", "[trace]\nepochs = 1\n[host]", "trace.epochs", "true or false");
}

#[test]
fn impossible_topologies() {
    check("count = 2", "count = 0", "vm[0].count", "0 is out of range");
    check("vcpus = 4", "vcpus = 0", "vm[0].vcpus", "1 to 256");
    check("vcpus = 4", "vcpus = 257", "vm[0].vcpus", "1 to 256");
    check("vcpus = 4", "vcpus = 4\npin = [0, 1, 2]", "vm[0].pin", "pins 3 vCPUs, but the VM has 4");
    check("vcpus = 4", "vcpus = 4\npin = [0, 1, 2, 4]", "vm[0].pin[3]", "4 is out of range");
    check(
        "vcpus = 4",
        "vcpus = 5\npin = \"one-per-pcpu\"",
        "vm[0].pin",
        "5 vCPUs cannot have one of 4",
    );
    check("vcpus = 4", "vcpus = 4\npin = \"one-per-cpu\"", "vm[0].pin", "`one-per-pcpu`?");
    check("vcpus = 4", "vcpus = 4\npin = 3", "vm[0].pin", "not a way to pin");
    check("vcpus = 4", "vcpus = 4\ncpl = 2", "vm[0].cpl", "0 (PLE sees it) or 3");
    check("vcpus = 4", "vcpus = 4\nlock = \"tiket\"", "vm[0].lock", "`ticket`?");
    check("vcpus = 4", "vcpus = 4\nweight = 0", "vm[0].weight", "cpu.weight");
    check("count = 2", "count = 65", "vm[0].count", "out of range");
    check(
        "[[arm]]",
        "[[vm]]\nvcpus = 4\ncount = 63\nworkload = \"ebizzy\"\n[[arm]]",
        "vm",
        "65 VMs",
    );
    check("vcpus = 4", "vcpus = 4\nmode = \"of\"", "vm[0].mode", "`off`?");
    check("vcpus = 4", "vcpus = 4\nmode = \"off\"", "vm", "arms would have no effect");
    check("vcpus = 4", "vcpus = 4\nname = \"A b\"", "vm[0].name", "cannot be a name");
    let named = "[[vm]]\nname = \"a\"\nvcpus = 4\nworkload = \"ebizzy\"\n";
    check("[[arm]]", &format!("{named}{named}[[arm]]"), "vm", "is listed twice");
}

#[test]
fn a_quota_acts_or_is_refused() {
    let with = |quota: &str, sweep: &str| {
        let vm = format!("name = \"a\"\ncount = 2\nquota = {quota}");
        GOOD.replace("[host]", &format!("[sweep]\n{sweep}\n[host]")).replace("count = 2", &vm)
    };
    let layout = "cgroups = [\"vm\", \"libvirt\"]";
    let good = parse_scenario("x.toml", "x", &with("0.2", layout)).unwrap();
    assert_eq!(good.vms[0].quota_ppm, Some(200_000));
    let whole = parse_scenario("x.toml", "x", &with("1", layout)).unwrap();
    assert_eq!(whole.vms[0].quota_ppm, Some(1_000_000));
    let one = |text: &str, key: &str, words: &str| {
        let all = problems(text);
        assert_eq!(all.len(), 1, "{all:#?}");
        assert_eq!(all[0].key, key, "{}", all[0]);
        assert!(all[0].to_string().contains(words), "{}", all[0]);
    };
    for quota in ["0", "-0.2", "1.01", "20", "0.001"] {
        one(&with(quota, layout), "vm[0].quota", "a share from 0.01 to 1");
    }
    one(&with("\"20 %\"", layout), "vm[0].quota", "a share from 0.01 to 1");
    one(&with("0.2", "cgroups = [\"vm\", \"flat\"]"), "vm", "in the layout flat it has none");
    one(&GOOD.replace("count = 2", "count = 2\nquota = 0.2"), "vm", "in the layout flat");
    let capped = "pcpus = 4\nscheduler = \"fair-capped\"";
    one(&with("0.2", layout).replace("pcpus = 4", capped), "vm", "caps by itself");
    let by_scx = "name = \"stock\"\ncoscheduling_mechanism = \"sched-ext\"";
    one(&with("0.2", layout).replace("name = \"stock\"", by_scx), "vm", "does not support cpu.max");
    let on =
        |names: &str, more: &str| with("0.2", &format!("{layout}\nquota_on = [{names}]\n{more}"));
    parse_scenario("x.toml", "x", &on("\"a\"", "")).unwrap();
    one(&on("\"b\"", ""), "sweep", "no [[vm]] with that name has a quota");
    let twice = on("\"a\"", "vms = [2]").replace("count = 2\n", "");
    one(&twice, "sweep", "already sets the points");
}

#[test]
fn sweeps_do_not_say_twice() {
    check("[host]", "[sweep]\nvms = [1, 2]\n[host]", "vm[0].count", "already sets the number");
    check(
        "[host]",
        "[sweep]\nprofiles = [\"a\"]\n[host]",
        "vm[0].workload",
        "already sets the workload",
    );
    check("[host]", "[sweep]\ncgroups = [\"flat\", \"flat\"]\n[host]", "sweep.cgroups", "twice");
    check("[host]", "[sweep]\ncgroups = []\n[host]", "sweep.cgroups", "empty");
    check("[host]", "[sweep]\ncgroups = [\"vcpus\"]\n[host]", "sweep.cgroups[0]", "`vcpu`?");
    let none =
        problems(&GOOD.replace("count = 2\n", "").replace("[host]", "[sweep]\nvms = [0]\n[host]"));
    assert_eq!(none[0].key, "sweep.vms[0]");
}

#[test]
fn locks() {
    let lock = |value: &str, key: &str, words: &str| {
        check("vcpus = 4", &format!("vcpus = 4\nlock = {value}"), key, words);
    };
    lock("\"pv_ticket\"", "vm[0].lock", "`pv-ticket`?");
    lock("{}", "vm[0].lock", "empty");
    lock("{ ticket = { tau_ns = 5 } }", "vm[0].lock.ticket", "unknown key");
    lock("{ preemptable = {} }", "vm[0].lock.preemptable.tau_ns", "missing");
    lock("{ preemptable = { tau_ns = -1 } }", "vm[0].lock.preemptable.tau_ns", "out of range");
    lock("{ preemptable = { tau_ns = 1, tau = 1 } }", "vm[0].lock.preemptable.tau", "unknown key");
    lock("{ pv-ticket = {} }", "vm[0].lock.pv-ticket.spin_ns", "missing");
    lock("{ pv-ticket = { spin_ns = 1, x = 1 } }", "vm[0].lock.pv-ticket.x", "unknown key");
    lock("\"pv-ticket\"\ncpl = 3", "vm", "CPL 3 has no HLT");
    let sweep = "[sweep]\nlocks = [\"ticket\", \"mcs\"]\n[host]";
    check("[host]", &sweep.replace("mcs", "ticket"), "sweep.locks", "twice");
    check("[host]", "[sweep]\nlocks = []\n[host]", "sweep.locks", "empty");
    let both = |from: &str, to: &str| problems(&GOOD.replace("[host]", sweep).replace(from, to));
    let said = both("vcpus = 4", "vcpus = 4\nlock = \"tas\"");
    assert!(said[0].message.contains("already lists"), "{said:?}");
    let said = both("name = \"stock\"", "name = \"stock\"\nlock = \"tas\"");
    assert!(said[0].message.contains("arms set locks"), "{said:?}");
    check("pcpus = 4", "pcpus = 4\nlock_clock_mhz = 0", "host.lock_clock_mhz", "MHz");
}

#[test]
fn arms() {
    let arm = |keys: &str, key: &str, words: &str| {
        check("name = \"stock\"", &format!("name = \"a\"\n{keys}"), key, words);
    };
    arm("window = \"stok\"", "arm[0].window", "`stock`?");
    arm("lock = \"tickt\"", "arm[0].lock", "`ticket`?");
    arm("window = 4096", "arm[0].window", "{ fixed_cycles = N }");
    arm("without = [\"ipis\"]", "arm[0].without[0]", "`ipi`?");
    arm("physical = 1", "arm[0].physical", "true or false");
    arm("window = {}", "arm[0].window", "empty");
    arm("window = { fixed = 512 }", "arm[0].window.fixed", "unknown key");
    arm("window = { fixed_cycles = 64 }", "arm[0].window.fixed_cycles", "128");
    arm("window = { fixed_cycles = 4294967296 }", "arm[0].window.fixed_cycles", "out of range");
    arm("window = { fixed_cycles = 512, aple = {} }", "arm[0].window", "both fixed");
    arm(
        "window = { aple = { delta_cycles = 0 } }",
        "arm[0].window.aple.delta_cycles",
        "fixed_cycles",
    );
    arm("window = { aple = { delta_cycles = 32769 } }", "arm[0].window.aple", "out of range");
    arm("window = { aple = { delta_max_cycles = 32769 } }", "arm[0].window.aple", "out of range");
    arm(
        "window = { aple = { window_init_cycles = 512 } }",
        "arm[0].window.aple",
        "from 4096 to 32768",
    );
    arm(
        "window = { aple = { window_min_cycles = 40000 } }",
        "arm[0].window.aple",
        "above window_max_cycles",
    );
    arm(
        "window = { aple = { epoch_ple_exits = 0 } }",
        "arm[0].window.aple.epoch_ple_exits",
        "PLE exits",
    );
    arm("yield_to = \"hsv\"", "arm[0].yield_to", "`hvs`?");
    arm("yield_to = \"none\"", "arm[0].yield_to", "window = \"off\"");
    let none = problem("name = \"stock\"", "name = \"a\"\nyield_to = \"none\"").to_string();
    for variant in unspin_uapi::Variant::ALL {
        assert!(none.contains(&format!("{:?}", variant.name())), "{none}");
    }
    arm("epoch_ple_exits = 9", "arm[0].epoch_ple_exits", "unknown key");
    arm(
        "window = { aple = { epoch_ple_exits = 16777217 } }",
        "arm[0].window.aple.epoch_ple_exits",
        "16777216",
    );
    arm("window = \"off\"\nyield_to = \"hvs\"", "arm[0]", "there are no yields");
    arm("window = \"aple\"\nobserve = false", "arm[0].observe", "counts whenever");
    arm("baseline = false", "arm", "no arm has baseline = true");
    check("name = \"stock\"", "name = \"ideal\"", "arm[0].name", "reserved for the report");
    check("name = \"stock\"", "name = \"A b\"", "arm[0].name", "cannot be a name");
    check("name = \"stock\"", "window = \"stock\"", "arm[0].name", "missing");
    let second = |keys: &str| format!("name = \"stock\"\nbaseline = true\n[[arm]]\n{keys}");
    check("name = \"stock\"", &second("name = \"stock\""), "arm[1].name", "a second arm named");
    check(
        "name = \"stock\"",
        &second("name = \"b\"\nbaseline = true"),
        "arm[1].baseline",
        "a second",
    );
}

#[test]
fn what_is_missing_is_named() {
    let all = problems("");
    let keys: Vec<&str> = all.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["title", "host", "vm", "arm"]);
    check("pcpus = 4\n", "", "host.pcpus", "missing");
    check("vcpus = 4\n", "", "vm[0].vcpus", "missing");
    check("workload = \"ebizzy\"\n", "", "vm[0].workload", "missing");
    assert_eq!(
        problems(&format!("arm = []\n{}", GOOD.replace("[[arm]]\nname = \"stock\"\n", "")))[0].key,
        "arm"
    );
}

#[test]
fn all_problems_come_in_one_pass_in_the_order_of_the_file() {
    let text = GOOD
        .replace("title", "titel")
        .replace("pcpus = 4", "pcpus = 0")
        .replace("vcpus = 4", "vcpus = 999")
        .replace("\"stock\"", "\"stock\"\nyield_to = \"nobody\"");
    let all = problems(&text);
    let lines: Vec<usize> = all.iter().map(|p| p.line).collect();
    assert_eq!(lines.len(), 5, "{all:#?}");
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn what_is_not_toml_is_placed() {
    let all = problems("title = \"t\nseed = 1\n[host\n");
    assert!(all.iter().all(|p| p.message.starts_with("not TOML")), "{all:#?}");
    assert_eq!(all[0].line, 1);
    assert!(problems("title = \"a\"\ntitle = \"b\"\n")[0].message.contains("duplicate key"));
}

fn profile_problems(steps: &str) -> Vec<Problem> {
    let text = format!("name = \"p\"\nspin_intensive = true\n{steps}");
    parse_profile("p.toml", "p", &text).expect_err("the profile is wrong").0
}

fn steps(list: &[&str]) -> String {
    list.iter().map(|s| format!("[[step]]\n{}\n", s.replace("; ", "\n"))).collect()
}

#[track_caller]
fn wrong_program(list: &[&str], key: &str, words: &str) {
    let all = profile_problems(&steps(list));
    assert!(all.iter().any(|p| p.key == key && p.to_string().contains(words)), "{all:#?}");
}

const LOCK: &str = "op = \"lock\"";
const UNLOCK: &str = "op = \"unlock\"";
const HOLD: &str = "op = \"critical\"; iterations = 10";

#[test]
fn programs_pair_and_nest_their_locks() {
    wrong_program(&[LOCK, HOLD], "step[0]", "never released");
    wrong_program(&[HOLD, UNLOCK], "step[1]", "not held");
    wrong_program(&[HOLD], "step[0]", "outside any lock");
    wrong_program(&[LOCK, LOCK, UNLOCK, UNLOCK], "step[1]", "waits for itself");
    let l1 = "op = \"lock\"; lock = 1";
    let u1 = "op = \"unlock\"; lock = 1";
    wrong_program(&[LOCK, l1, UNLOCK, u1], "step[2]", "taken last");
    wrong_program(&[l1, LOCK, UNLOCK, u1], "step[1]", "takes lock 0 while holding lock 1");
    wrong_program(&[l1, LOCK, UNLOCK, u1], "step[1]", "ascending order");
    wrong_program(&[LOCK, l1, u1, UNLOCK, l1, LOCK, UNLOCK, u1], "step[5]", "ascending order");
    wrong_program(&[LOCK, "op = \"barrier\"", UNLOCK], "step[1]", "while holding a lock");
    wrong_program(&[LOCK, "op = \"block\"; iterations = 5", UNLOCK], "step[1]", "while holding");
    let take = "op = \"mutex\"";
    let give = "op = \"mutex-unlock\"";
    wrong_program(&[take], "step[0]", "never released");
    wrong_program(&[give], "step[0]", "not held");
    wrong_program(&[take, take, give], "step[1]", "one mutex at a time");
    wrong_program(&[take, "op = \"barrier\"", give], "step[1]", "while holding a mutex");
    wrong_program(&[LOCK, take, give, UNLOCK], "step[1]", "while holding a lock");
    let (wait, room) = ("op = \"socket-wait\"; iterations = 5", "op = \"socket-wait\"");
    let (open, close) = ("op = \"socket-lock\"", "op = \"socket-unlock\"");
    let right =
        format!("name = \"p\"\nspin_intensive = true\n{}", steps(&[wait, open, HOLD, close]));
    assert!(parse_profile("p.toml", "p", &right).is_ok());
    let all_of = |other| [wait, open, HOLD, close, other];
    wrong_program(&all_of("op = \"barrier\""), "step[4]", "with messages");
    wrong_program(&all_of("op = \"serial-first\"; iterations = 5"), "step[4]", "with messages");
    let drawn = "op = \"socket-wait\"; iterations = { uniform = [1, 5] }";
    wrong_program(&[drawn, open, HOLD, close], "step[0]", "is random, or missing");
    let seldom = "op = \"socket-wait\"; iterations = 5; chance = 0.5";
    wrong_program(&[seldom, open, HOLD, close], "step[0].chance", "always waited for");
    wrong_program(&[take, wait, give, open, HOLD, close], "step[1]", "waits for other threads");
    wrong_program(
        &[take, "op = \"serial-rotating\"; iterations = 5", give],
        "step[1]",
        "waits for other",
    );
    let lazy = "op = \"shootdown-lazy\"";
    wrong_program(
        &["op = \"lock\"; lock = 0", lazy, "op = \"unlock\"; lock = 0"],
        "step[1]",
        "waits while",
    );
    wrong_program(&[wait, open, HOLD], "step[1]", "the socket's lock is never released");
    wrong_program(
        &[wait, LOCK, open, UNLOCK, close],
        "step[3]",
        "unlocks lock 0, but the socket's",
    );
    wrong_program(&[LOCK, wait, UNLOCK, open, close], "step[1]", "while holding a lock");
    wrong_program(&[open, HOLD, close], "step[0]", "wait for it first");
    wrong_program(&[wait, open, close, open, close], "step[0]", "exactly one message");
    wrong_program(&[room, open, close], "step[0].iterations", "missing");
    wrong_program(&["op = \"barrier\"; chance = 0.5"], "step[0].chance", "wait forever");
    wrong_program(&[LOCK, "op = \"unlock\"; chance = 0.5"], "step[1].chance", "goes with its lock");
    wrong_program(&["op = \"lock\"; lock = 16", UNLOCK], "step[0].lock", "0 to 15");
    wrong_program(&["op = \"compute\"; iterations = 5; lock = 0"], "step[0].lock", "takes no lock");
}

#[test]
fn lengths_are_one_distribution() {
    let length = |l: &str, key: &str, words: &str| {
        wrong_program(&[&format!("op = \"compute\"; iterations = {l}")], key, words);
    };
    length("0", "step[0].iterations", "1 to");
    length("\"5us\"", "step[0].iterations", "{ exp_mean = N }");
    length("{ uniform = [5, 1] }", "step[0].iterations.uniform", "5 is more than 1");
    length("{ uniform = [5] }", "step[0].iterations.uniform", "1 numbers");
    length("{ uniform = [1, 2], max = 5 }", "step[0].iterations", "not one distribution");
    length("{ exp_mean = 100, max = 50 }", "step[0].iterations.max", "the mean, or more");
    length("{ mean = 100 }", "step[0].iterations.mean", "unknown key");
    wrong_program(&["op = \"compute\""], "step[0].iterations", "missing");
    wrong_program(&["op = \"wake\"; iterations = 3"], "step[0].iterations", "has no length");
    wrong_program(&["op = \"compte\"; iterations = 3"], "step[0].op", "`compute`?");
    for chance in ["0", "1.5", "0.0005", "\"half\""] {
        let step = format!("op = \"compute\"; iterations = 1; chance = {chance}");
        wrong_program(&[&step], "step[0].chance", "steps of 0.001");
    }
}

#[test]
fn profiles_have_1_to_32_steps_and_their_files_name() {
    let step = "[[step]]\nop = \"compute\"\niterations = 1\n";
    assert!(profile_problems(&step.repeat(33))[0].message.contains("33 steps"));
    assert!(profile_problems("step = []")[0].message.contains("0 steps"));
    let text = format!("name = \"q\"\nspin_intensive = true\n{step}");
    assert!(parse_profile("p.toml", "p", &text).unwrap_err().0[0].message.contains("file's name"));
}

#[test]
fn a_key_given_twice_is_named() {
    let p = problem("pcpus = 4", "pcpus = 4\npcpus = 3");
    assert_eq!((p.line, p.message.as_str()), (4, "not TOML: duplicate key \"pcpus\""));
    let p = problem("title = \"t\"", "title = \"t\"\n\"title\" = 3");
    assert!(p.message.contains("\"title\""), "{p}");
}

#[test]
fn a_long_list_of_problems_ends() {
    let nested = format!("x = {}", "{a=".repeat(100_000));
    let said = parse_scenario("x.toml", "x", &nested).unwrap_err().to_string();
    assert!(said.lines().count() <= 21 && said.len() < 10_000, "{said:.2000}");
    let keys: String = (0..25).map(|n| format!("k{n} = 1\n")).collect();
    let problems = parse_scenario("x.toml", "x", &(keys + GOOD)).unwrap_err();
    assert_eq!(problems.0.len(), 25);
    let said = problems.to_string();
    assert!(said.contains("`k19`") && !said.contains("`k20`"), "{said}");
    assert!(said.ends_with("\n… and 5 more"), "{said}");
}

#[test]
fn each_way_of_scheduling_needs_its_scheduler() {
    let arm = "name = \"stock\"\n";
    for turns in ["con", "vcrd", "vcrd-ple", "vcrd-user", "vcrd-both"] {
        let fair = GOOD.replace(arm, &format!("name = \"a\"\ncoscheduling = \"{turns}\"\n"));
        parse_scenario("x.toml", "x", &fair).unwrap();
    }
    check(arm, "name = \"a\"\ncoscheduling = \"gang\"\n", "arm[0].coscheduling", "\"vcrd-ple\"");
    let alone = "name = \"a\"\nturn_us = 6000\n";
    check(arm, alone, "arm[0].turn_us", "allowed: turn_us with coscheduling");
    let ext =
        |turns: &str| format!("name = \"a\"\n{turns}coscheduling_mechanism = \"sched-ext\"\n");
    let con = GOOD.replace(arm, &ext("coscheduling = \"con\"\n"));
    let s = parse_scenario("x.toml", "x", &con).unwrap();
    assert_eq!(s.arms[0].coscheduling_mechanism, CoschedulingMechanism::SchedExt);
    for machine in ["sim", "threads"] {
        let key = refused(&s, machine).unwrap();
        assert_eq!(key == "arm[0].coscheduling_mechanism", machine == "sim", "{key}");
    }
    let by_name = con.replace("\"sched-ext\"", "\"cgroup-freeze\"");
    assert!(problems(&by_name)[0].to_string().contains("\"sched-ext\" or \"scheduler\""));
    for turns in ["vcrd-ple", "vcrd-user", "vcrd-both"] {
        let (at, fix) = ("arm[0].coscheduling_mechanism", "\"con\" or \"vcrd\"");
        check(arm, &ext(&format!("coscheduling = \"{turns}\"\n")), at, fix);
    }
    for turns in
        ["", "coscheduling = \"none\"\n", "coscheduling = \"con\"\n", "coscheduling = \"vcrd\"\n"]
    {
        let s = parse_scenario("x.toml", "x", &GOOD.replace(arm, &ext(turns))).unwrap();
        assert!(refused(&s, "sim").is_some());
        assert_eq!([refused(&s, "kvm"), refused(&s, "emulated")], [None, None]);
    }
    let scheduler = |turns: &str| ext(turns).replace("\"sched-ext\"", "\"scheduler\"");
    for turns in ["vcrd", "vcrd-user"] {
        let (at, fix) = ("arm[0].coscheduling_mechanism", "\"vcrd-ple\" or \"vcrd-both\"");
        check(arm, &scheduler(&format!("coscheduling = \"{turns}\"\n")), at, fix);
    }
    for turns in ["none", "con", "vcrd-ple", "vcrd-both"] {
        let by_it = scheduler(&format!("coscheduling = \"{turns}\"\n"));
        let s = parse_scenario("x.toml", "x", &GOOD.replace(arm, &by_it)).unwrap();
        assert!(refused(&s, "sim").is_some());
        assert_eq!(refused(&s, "emulated"), None);
    }
}

/// Only the Credit that sched_ext has as well has slots whose length an arm sets.
#[test]
fn slots_are_those_of_the_credit_of_sched_ext() {
    let of = |scheduler: &str| {
        let host = format!("pcpus = 4\nscheduler = \"{scheduler}\"\n");
        let arm = "name = \"a\"\nturn_us = 30000\n";
        GOOD.replace("pcpus = 4\n", &host).replace("name = \"stock\"\n", arm)
    };
    for scheduler in ["credit", "credit-capped"] {
        parse_scenario("x.toml", "x", &of(scheduler)).unwrap();
    }
    for scheduler in ["fair", "xen-credit", "xen-credit-capped"] {
        let said = problems(&of(scheduler))[0].to_string();
        assert!(said.contains("turn_us with coscheduling"), "{scheduler}: {said}");
    }
}

#[test]
fn keys_of_hosts_and_of_asymmetric_vcpus_are_checked() {
    let arm = "name = \"stock\"\n";
    check("vcpus = 4\n", "vcpus = 4\ngang = \"yes\"\n", "vm[0].gang", "true or false");
    check(arm, "name = \"a\"\nasym = { times = true }\n", "arm[0].asym.times", "time");
    check("pcpus = 4\n", "pcpus = 4\nscheduler = \"xen\"\n", "host.scheduler", "credit-capped");
    check(
        "pcpus = 4\n",
        "pcpus = 4\nloop_detection = \"amd\"\n",
        "host.loop_detection",
        "pause-filter",
    );
    check("pcpus = 4\n", "pcpus = 4\nperiod_ms = 0\n", "host.period_ms", "1");
    check("pcpus = 4\n", "pcpus = 4\nskew_tick = 1\n", "host.skew_tick", "true or false");
    let odd = "pcpus = 5\nthreads_per_core = 2\n";
    check("pcpus = 4\n", odd, "host.threads_per_core", "an even number of pcpus");
    let alone = "pcpus = 4\nthread_speed_percent = 60\n";
    check("pcpus = 4\n", alone, "host.thread_speed_percent", "threads_per_core = 2");
    for scheduler in ["credit", "xen-credit"] {
        let tasks = format!("pcpus = 4\nscheduler = \"{scheduler}\"\nhousekeeping_ppm = 9\n");
        check("pcpus = 4\n", &tasks, "host.housekeeping_ppm", "beside Credit are not modelled");
    }
    check(arm, "name = \"a\"\nasym = { period_ms = 0 }\n", "arm[0].asym.period_ms", "1");
    let credit = GOOD.replace("pcpus = 4\n", "pcpus = 4\nscheduler = \"credit\"\n");
    let all = problems(&credit.replace(arm, "name = \"a\"\nasym = { time = true }\n"));
    assert!(all[0].to_string().contains("scheduler = \"fair\""), "{}", all[0]);
    let gangs = credit.replace(arm, "name = \"a\"\ncoscheduling = \"vcrd\"\n");
    let capped = gangs.replace("\"credit\"", "\"credit-capped\"");
    parse_scenario("x.toml", "x", &capped).unwrap();
    let s = parse_scenario("x.toml", "x", &gangs).unwrap();
    assert_eq!(refused(&s, "threads"), Some("host.scheduler".to_string()));
    assert_eq!(refused(&s, "sim"), None);
    assert_eq!(refused(&parse_scenario("x.toml", "x", GOOD).unwrap(), "kvm"), None);
}

/// Where the key stands that asks for what `machine` has not, in an arm that is run.
fn refused(s: &Scenario, machine: &str) -> Option<String> {
    s.refused_by(machine, |arm| arm.name != "idle").map(|refused| refused.path)
}

/// What machines have not is refused where it stands, and its usual value is not.
#[test]
fn machines_refuse_what_they_have_not() {
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        parse_scenario("x.toml", "x", &GOOD.replace(from, to)).unwrap()
    };
    let host = |key: &str| with("pcpus = 4", &format!("pcpus = 4\n{key}"));
    let vm = |key: &str| with("vcpus = 4", &format!("vcpus = 4\n{key}"));
    let in_cgroups = |keys: &str| {
        let second = format!("[[vm]]\n{keys} = 4\nworkload = \"ebizzy\"\n[[arm]]");
        let sweep = "[sweep]\ncgroups = [\"vm\"]\n[host]";
        let text = GOOD.replace("[[arm]]", &second).replace("[host]", sweep);
        parse_scenario("x.toml", "x", &text).unwrap()
    };
    let arm = |key: &str| with("name = \"stock\"", &format!("name = \"a\"\n{key}"));
    let measure = |key: &str| with("[[arm]]", &format!("[measure]\n{key}\n[[arm]]"));
    let trace = |key: &str| with("[[arm]]", &format!("[trace]\n{key}\n[[arm]]"));
    for (machines, path, asked, usual) in [
        ("sim", "host.period_ms", host("period_ms = 30"), host("")),
        (
            "sim",
            "host.loop_detection",
            host("loop_detection = \"pause-filter\""),
            host("loop_detection = \"ple\""),
        ),
        ("sim", "host.llc_pcpus", host("llc_pcpus = 2"), host("")),
        ("sim", "host.threads_per_core", host("threads_per_core = 2"), host("")),
        ("sim", "host.skew_tick", host("skew_tick = false"), host("skew_tick = true")),
        (
            "sim",
            "host.group_load_lags",
            host("group_load_lags = true"),
            host("group_load_lags = false"),
        ),
        ("sim", "host.housekeeping_ppm", host("housekeeping_ppm = 0"), host("")),
        ("sim", "vm[0].threads", vm("threads = 8"), vm("")),
        ("sim", "vm[0].tick_hz", vm("tick_hz = 250"), vm("tick_hz = 0")),
        ("kvm emulated sim", "vm[1].quota", in_cgroups("quota = 0.2\nvcpus"), in_cgroups("vcpus")),
        ("sim", "arm[0].queue_aware", arm("queue_aware = true"), arm("queue_aware = false")),
        ("kvm emulated sim", "arm[0].asym", arm("asym = { period_ms = 3 }"), arm("asym = {}")),
        ("kvm emulated sim", "vm[0].role", vm("role = \"hog\""), vm("role = \"shaped\"")),
        ("sim", "arm[0].physical", arm("physical = true"), arm("physical = false")),
        ("sim", "arm[0].apicv", arm("apicv = true"), arm("apicv = false")),
        ("sim", "arm[0].halt_poll_us", arm("halt_poll_us = 1"), arm("halt_poll_us = 0")),
        ("sim", "arm[0].without", arm("without = [\"ipi\"]"), arm("")),
        ("kvm emulated sim", "trace.stalls", trace("stalls = true"), trace("stalls = false")),
        ("kvm emulated", "measure.wakeups_hz", measure("wakeups_hz = 1000"), measure("")),
        ("kvm emulated", "measure.hogs", measure("hogs = 1"), measure("hogs = 0")),
        ("kvm emulated sim", "slice_ns", with("title", "slice_ns = 3000000\ntitle"), arm("")),
        ("kvm emulated sim", "arm[0].window", arm("window = \"off\""), arm("window = \"stock\"")),
        (
            "kvm emulated sim",
            "arm[0].yield_to",
            arm("yield_to = \"hvs\""),
            arm("yield_to = \"stock\""),
        ),
    ] {
        for machine in ["kvm", "emulated", "sim", "threads"] {
            let has = machines.split(' ').any(|m| m == machine);
            let expected = (!has).then(|| path.to_string());
            assert_eq!(refused(&asked, machine), expected, "{machine}");
            assert_eq!(refused(&usual, machine), None, "{path} {machine}");
        }
    }
    let idle = with("name = \"stock\"", "name = \"a\"\n[[arm]]\nname = \"idle\"\napicv = true");
    assert_eq!(refused(&idle, "kvm"), None, "an arm that is not run");
}

#[test]
fn who_stands_beside_whom_is_clear() {
    let text = include_str!("../../../scenarios/asymmetric.toml");
    assert!(parse_scenario("x.toml", "x", text).is_ok());
    let refused = |from: &str, to: &str, why: &str| {
        assert!(text.contains(from), "{from}");
        let said = parse_scenario("x.toml", "x", &text.replace(from, to)).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    refused("count = 3", "count = 1", "a count of 2 or more");
    refused("role = \"hog\"", "role = \"neighbour\"", "two [[vm]]");
    refused("role = \"shaped\"", "role = \"shaped\", count = 2", "two [[vm]]");
    refused("[sweep]", "[sweep]\nvms = [4]", "no vms in [sweep]");
    refused("\"none\"]", "\"nobody\"]", "hogs");
}

#[test]
fn what_is_refused_is_placed() {
    let text = GOOD
        .replace("name = \"stock\"", "name = \"a\"\n[[arm]]\nname = \"b\"\nasym = { time = true }");
    for (key, line) in [("host.pcpus", 3), ("arm[1].asym", 12), ("arm[1].asym.time", 12)] {
        let at = &problem_at("x.toml", &text, key, "no", "yes").0;
        assert_eq!((at.len(), at[0].line, at[0].key.as_str()), (1, line, key));
    }
    for key in ["arm[2]", "arm[x]", "arm.asym", "host[0]", "host.pcpus.x"] {
        let at = &problem_at("x.toml", &text, key, "no", "yes").0;
        assert_eq!((at.len(), at[0].line, at[0].key.as_str()), (1, 1, key), "{at:?}");
    }
}

const LINUX: &str = "title = \"x\"\n[host]\npcpus = 4\n[[vm]]\nguest = \"linux\"\nvcpus = 4\n\
    workload = \"hackbench\"\n[[arm]]\nname = \"stock\"\nbaseline = true\n";

#[test]
fn keys_of_one_kind_of_guest_are_refused_of_the_other() {
    assert_eq!(
        parse_scenario("x.toml", "x", LINUX).unwrap().vms[0].linux.as_ref().unwrap().kernel,
        "6.12"
    );
    let refused = |from: &str, to: &str, why: &str| {
        assert!(LINUX.contains(from), "{from}");
        let said = parse_scenario("x.toml", "x", &LINUX.replace(from, to)).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    let with = |more: &str| format!("vcpus = 4\n{more}\n");
    for bench in ["lock = \"ticket\"", "cpl = 3", "threads = 4", "tick_hz = 250"] {
        refused("vcpus = 4\n", &with(bench), "a Linux guest has its own");
    }
    refused("guest = \"linux\"\n", "memory_mib = 128\n", "no Linux guest");
    refused("guest = \"linux\"\n", "idle = \"poll\"\n", "no Linux guest");
    refused("vcpus = 4\n", &with("guest_kernel = \"new\""), "is not a kernel series");
    refused("vcpus = 4\n", &with("guest_lock = \"mcs\""), "guest_lock");
    refused("vcpus = 4\n", &with("memory_mib = 1"), "memory_mib");
    refused("vcpus = 4\n", &with("extra_cmdline = \"\\u0007\""), "printable");
    let swept = |text: &str| format!("[sweep]\n{text}\n[host]\n");
    refused("[host]\n", &swept("locks = [\"ticket\"]"), "sweep.guest_locks");
    refused("baseline = true\n", "baseline = true\nlock = \"mcs\"\n", "sweep.guest_locks");
    let both = LINUX.replace("vcpus = 4\n", &with("guest_lock = \"pv\""));
    let both = both.replace("[host]\n", &swept("guest_locks = [\"pv\"]"));
    let said = parse_scenario("x.toml", "x", &both).unwrap_err().to_string();
    assert!(said.contains("no guest_lock in [[vm]]"), "{said}");
    let bench = LINUX.replace("guest = \"linux\"\n", "");
    let said =
        parse_scenario("x.toml", "x", &bench.replace("[host]\n", &swept("guest_locks = [\"pv\"]")));
    assert!(said.unwrap_err().to_string().contains("no [[vm]] has guest = \"linux\""));
    let polls = |text: &str| {
        let text = text.replace("baseline = true\n", "baseline = true\nidle = \"poll\"\n");
        parse_scenario("x.toml", "x", &text)
    };
    assert_eq!(polls(LINUX).unwrap().arms[0].idle, Some(GuestIdle::Poll));
    assert!(polls(&bench).unwrap_err().to_string().contains("no [[vm]] is a Linux guest"));
}

#[track_caller]
fn refused_of_linux(from: &str, to: &str, key: &str, words: &[&str]) {
    assert!(LINUX.contains(from), "{from}");
    let all = problems(&LINUX.replace(from, to));
    let [p] = &all[..] else { panic!("{all:#?}") };
    assert_eq!(p.key, key, "{p}");
    for words in words {
        assert!(p.to_string().contains(words), "{words}: {p}");
    }
}

#[test]
fn linux_and_bench_guests_do_not_mix() {
    let other = "[[vm]]\nvcpus = 4\nworkload = \"ebizzy\"\n[[arm]]\n";
    let words = ["another is Linux", "in every [[vm]], or in none"];
    refused_of_linux("[[arm]]\n", other, "vm[1]", &words);
    let said = other.replace("vcpus = 4\n", "vcpus = 4\nguest = \"bench\"\n");
    refused_of_linux("[[arm]]\n", &said, "vm[1].guest", &words);
    let two = other.replace("vcpus = 4\n", "vcpus = 4\nguest = \"linux\"\n");
    parse_scenario("x.toml", "x", &LINUX.replace("[[arm]]\n", &two)).unwrap();
}

#[test]
fn what_only_the_bench_guest_does_is_refused_of_linux_guests() {
    let trace = |text: &str| format!("[trace]\n{text}\n[host]\n");
    refused_of_linux("[host]\n", &trace("stalls = true"), "trace.stalls", &["long waits"]);
    parse_scenario("x.toml", "x", &LINUX.replace("[host]\n", &trace("stalls = false"))).unwrap();
    parse_scenario("x.toml", "x", &LINUX.replace("[host]\n", &trace("epochs = true"))).unwrap();
    let clock = "pcpus = 4\nlock_clock_mhz = 800\n";
    refused_of_linux("pcpus = 4\n", clock, "host.lock_clock_mhz", &["does not apply to locks"]);
}

#[test]
fn one_vcpu_has_no_pv_locks() {
    let one = |more: &str| format!("vcpus = 1\n{more}");
    let words = ["1 vCPU does not use", "2 vCPUs or more"];
    refused_of_linux("vcpus = 4\n", &one(""), "vm[0].vcpus", &words);
    refused_of_linux("vcpus = 4\n", &one("guest_lock = \"pv\"\n"), "vm[0].vcpus", &words);
    let good = LINUX.replace("vcpus = 4\n", &one("guest_lock = \"queued\"\n"));
    parse_scenario("x.toml", "x", &good).unwrap();
    let swept = |locks: &str| {
        let text = LINUX.replace("[host]\n", &format!("[sweep]\nguest_locks = {locks}\n[host]\n"));
        parse_scenario("x.toml", "x", &text.replace("vcpus = 4\n", &one("")))
    };
    assert!(swept("[\"queued\", \"pv\"]").unwrap_err().to_string().contains(words[0]));
    swept("[\"queued\", \"test-and-set\"]").unwrap();
}

#[test]
fn the_papers_locks_bring_their_kernel() {
    let kernels = |text: &str| -> Vec<String> {
        let s = parse_scenario("x.toml", "x", text).unwrap_or_else(|e| panic!("{e}"));
        s.vms.iter().map(|g| g.linux.as_ref().unwrap().kernel.clone()).collect()
    };
    let with = |more: &str| format!("vcpus = 4\n{more}\n");
    for lock in ["preemptable", "pv-preemptable", "oticket", "ticket"] {
        let text = LINUX.replace("vcpus = 4\n", &with(&format!("guest_lock = \"{lock}\"")));
        assert_eq!(kernels(&text), ["6.12-unspin"]);
    }
    let swept = |locks: &str| format!("[sweep]\nguest_locks = [{locks}]\n[host]\n");
    let compared = LINUX.replace("[host]\n", &swept("\"pv\", \"queued\", \"ticket\""));
    assert_eq!(kernels(&compared), ["6.12-unspin"]);
    let debians = LINUX.replace("[host]\n", &swept("\"pv\", \"queued\""));
    assert_eq!(kernels(&debians), ["6.12"]);
    let old = with("guest_lock = \"oticket\"\nguest_kernel = \"6.1\"");
    let words = ["6.1 has no lock oticket", "guest_kernel = \"6.12\""];
    refused_of_linux("vcpus = 4\n", &old, "vm[0].guest_kernel", &words);
    let module = with("guest_lock = \"ticket\"\nguest_module = true");
    let words = ["cannot watch the lock ticket", "guest_module = false"];
    refused_of_linux("vcpus = 4\n", &module, "vm[0].guest_module", &words);
}

#[test]
fn words_for_the_guests_kernel_do_not_undo_the_scenario() {
    let with = |words: &str| format!("vcpus = 4\nextra_cmdline = '{words}'\n");
    for (word, instead) in [
        ("nopvspin", "guest_lock"),
        ("spinlock=ticket", "guest_lock"),
        ("idle=poll", "idle"),
        ("maxcpus=2", "vcpus"),
        ("nr_cpus=2", "vcpus"),
        ("nr-cpus=2", "vcpus"),
        ("nosmp", "vcpus"),
        ("mem=64M", "memory_mib"),
        ("memmap=1M$2M", "reads counts"),
        ("init=/bin/sh", "runner"),
        ("rdinit=/bin/sh", "runner"),
        ("console=ttyS1", "console"),
        ("panic=0", "panics"),
        ("\"idle=poll\"", "idle"),
    ] {
        let shown = format!("{word:?} changes");
        let words = with(&format!("quiet {word} nohz=off"));
        refused_of_linux("vcpus = 4\n", &words, "vm[0].extra_cmdline", &[&shown, instead]);
    }
    for fine in ["nohz=off", "idlex=1", "mems=1", "no_init=1", "panic_on_oops=1", "threadirqs"] {
        parse_scenario("x.toml", "x", &LINUX.replace("vcpus = 4\n", &with(fine))).unwrap();
    }
}
