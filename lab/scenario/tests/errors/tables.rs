// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs, sweeps, locks and arms.

use crate::{check, problem, problems, GOOD};
use unspin_scenario::parse_scenario;

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
fn who_stands_beside_whom_is_clear() {
    let text = include_str!("../../../../scenarios/asymmetric.toml");
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
