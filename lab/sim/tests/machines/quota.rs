// SPDX-License-Identifier: MIT OR Apache-2.0
//! A quota of one VM (cpu.max) is that VM's alone: it gets no more, and the others have the rest.

use crate::common::{self, run, unpinned};
use unspin_scenario::plan::{CgroupLayout, Run};
use unspin_sim::{check, simulate, Host, Kernel};

/// Two VMs that always compute on the same four pCPUs, of which one has the quota.
fn busy(capped: usize, quota_ppm: Option<u32>) -> Run {
    let run = run(2, 4, common::busy());
    let mut run = Run { cgroup: CgroupLayout::Vcpu, window_ms: 2000, ..run };
    run.vms[capped].quota_ppm = quota_ppm;
    run
}

#[test]
fn a_vm_has_its_quota_and_the_other_the_rest() {
    let host = Host::lab(4, Kernel::V6_12);
    for capped in [0, 1] {
        let made = simulate(&host, &busy(capped, Some(200_000))).unwrap().result;
        let host_ns = 4.0 * made.window_ns as f64;
        let share = |vm: usize| made.vm[vm].cpu_ns.iter().sum::<u64>() as f64 / host_ns;
        assert!((0.19..=0.204).contains(&share(capped)), "{}", share(capped));
        let idle = made.host_idle_share.unwrap();
        assert!(idle <= 0.02, "idle for {idle} of the time");
        assert!(share(1 - capped) >= 0.77, "{}", share(1 - capped));
    }
    let half = simulate(&host, &busy(0, None)).unwrap().result;
    let used: u64 = half.vm[0].cpu_ns.iter().sum();
    let share = used as f64 / (4.0 * half.window_ns as f64);
    assert!((0.48..=0.52).contains(&share), "without a quota: {share}");
}

#[test]
fn a_host_is_idle_where_a_quota_is_all_that_may_run() {
    let host = Host::lab(4, Kernel::V6_12);
    let mut alone = unpinned(busy(0, Some(250_000)));
    alone.vms.truncate(1);
    let idle = simulate(&host, &alone).unwrap().result.host_idle_share.unwrap();
    assert!((0.72..=0.76).contains(&idle), "{idle}");
}

#[test]
fn a_quota_that_could_not_act_is_refused() {
    let host = Host::lab(4, Kernel::V6_12);
    let flat = Run { cgroup: CgroupLayout::Flat, ..busy(0, Some(200_000)) };
    assert!(check(&host, &flat).unwrap_err().to_string().contains("a quota needs a cgroup"));
    let credit = Host::lab(4, Kernel::V6_12).with_credit(false);
    let said = check(&credit, &busy(0, Some(200_000))).unwrap_err().to_string();
    assert!(said.contains("Credit knows no quota"), "{said}");
}
