// SPDX-License-Identifier: MIT OR Apache-2.0
//! What schedulers and machines support.

use crate::{check, problems, refused, GOOD};
use unspin_scenario::parse_scenario;
use unspin_scenario::plan::CoschedulingMechanism;

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
