// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's rules, on one pCPU.

use super::entity::Entity;
use super::rq::RunQueue;
use super::tunables::Tunables;
use crate::core::{Host, Kernel};
use crate::engine::{Table, VcpuId};

const MS: u64 = 1_000_000;

fn tunables(kernel: Kernel) -> Tunables {
    Tunables::new(&Host::lab(4, kernel), false)
}

/// A queue of tasks of these weights, of which the first was put on the pCPU.
fn queue(t: &Tunables, weights: &[u64]) -> (RunQueue, Table<VcpuId, Entity>) {
    let each = weights.iter().map(|w| Entity::new(*w, t));
    let mut e = Table::from(each.collect::<Vec<_>>());
    let mut queue = RunQueue::new(weights.len());
    for i in e.ids() {
        queue.enqueue(t, &mut e, i, true);
    }
    queue.switch(t, &mut e);
    (queue, e)
}

/// Time each of the tasks got in ten seconds of ticks.
fn shares(kernel: Kernel, weights: &[u64]) -> Vec<u64> {
    let t = tunables(kernel);
    let (mut queue, mut e) = queue(&t, weights);
    let mut got = vec![0; weights.len()];
    for _ in 0..2500 {
        got[queue.current.0 as usize] += 4 * MS;
        let over = queue.ran(&t, &mut e, 4 * MS);
        if queue.tick(&t, &e) || over {
            queue.switch(&t, &mut e);
        }
    }
    got
}

#[test]
fn time_is_shared_by_weight() {
    for kernel in [Kernel::V6_1, Kernel::V6_12] {
        let got = shares(kernel, &[1024, 1024, 2048]);
        for (ns, expected) in got.iter().zip([2500, 2500, 5000]) {
            assert!(ns.abs_diff(expected * MS) < 60 * MS, "{kernel:?}: {got:?}");
        }
    }
}

#[test]
fn a_sleeper_preempts_who_ran_meanwhile() {
    let t = tunables(Kernel::V6_1);
    let (mut queue, mut e) = queue(&t, &[1024, 1024]);
    let sleeper = queue.current;
    queue.ran(&t, &mut e, MS);
    queue.dequeue_current(&t, &mut e);
    let other = queue.switch(&t, &mut e);
    assert_ne!(other, sleeper);
    queue.ran(&t, &mut e, 100 * MS);
    queue.enqueue(&t, &mut e, sleeper, false);
    assert!(queue.preempts(&t, &mut e, sleeper));
    assert_eq!(queue.switch(&t, &mut e), sleeper);
    // The credit for sleeping is bounded by half a latency.
    let behind = e[other].vruntime - e[sleeper].vruntime;
    assert_eq!(behind, 9 * MS as i64);
}

#[test]
fn cfs_follows_a_directed_yield_within_the_wakeup_granularity_only() {
    let t = tunables(Kernel::V6_1);
    for (ahead_ms, follows) in [(2, true), (4, false)] {
        let (mut queue, mut e) = queue(&t, &[1024; 3]);
        let [left, target] = [queue.waiting[0], queue.waiting[1]];
        e[target].vruntime = e[left].vruntime + (ahead_ms * MS) as i64;
        queue.ran(&t, &mut e, MS);
        queue.set_next(target);
        let chosen = queue.switch(&t, &mut e);
        assert_eq!(chosen, if follows { target } else { left }, "{ahead_ms} ms");
    }
}

#[test]
fn cfs_runs_the_sleeper_that_interrupts_before_one_further_behind() {
    let t = tunables(Kernel::V6_1);
    let (mut queue, mut e) = queue(&t, &[1024; 3]);
    let sleeper = queue.current;
    queue.dequeue_current(&t, &mut e);
    queue.switch(&t, &mut e);
    queue.ran(&t, &mut e, 20 * MS);
    queue.enqueue(&t, &mut e, sleeper, false);
    let other = queue.waiting[0];
    e[sleeper].vruntime = e[other].vruntime + MS as i64;
    assert!(queue.preempts(&t, &mut e, sleeper));
    queue.prefer_woken(&t, sleeper);
    assert_eq!(queue.switch(&t, &mut e), sleeper);
}

#[test]
fn who_yields_and_goes_on_is_skipped_once_more_where_buddies_are_kept() {
    for (kernel, skipped) in [(Kernel::V3_19, false), (Kernel::V6_1, true)] {
        let t = tunables(kernel);
        let (mut queue, mut e) = queue(&t, &[1024; 2]);
        let (yielder, other) = (queue.current, queue.waiting[0]);
        e[other].vruntime += 5 * MS as i64;
        queue.yield_current(&t, &mut e);
        assert_eq!(queue.switch(&t, &mut e), yielder, "the other is too far ahead");
        e[other].vruntime -= 4 * MS as i64;
        assert_eq!(queue.switch(&t, &mut e) == other, skipped, "{kernel:?}");
    }
}

#[test]
fn eevdf_follows_a_directed_yield_to_the_eligible_only() {
    let t = tunables(Kernel::V6_12);
    for (ahead_ms, follows) in [(-1, true), (8, false)] {
        let (mut queue, mut e) = queue(&t, &[1024; 3]);
        let target = queue.waiting[1];
        e[target].vruntime += ahead_ms * MS as i64;
        queue.set_next(target);
        assert_eq!(queue.switch(&t, &mut e) == target, follows, "{ahead_ms} ms");
    }
}

#[test]
fn a_yield_lets_the_next_in_line_run_but_eevdfs_not_out_of_a_group() {
    for (kernel, alone, leaves) in [
        (Kernel::V6_1, false, true),
        (Kernel::V6_1, true, true),
        (Kernel::V6_12, false, true),
        (Kernel::V6_12, true, false),
    ] {
        let t = Tunables::new(&Host::lab(4, kernel), alone);
        let (mut queue, mut e) = queue(&t, &[1024; 2]);
        let yielder = queue.current;
        queue.yield_current(&t, &mut e);
        assert_eq!(queue.switch(&t, &mut e) != yielder, leaves, "{kernel:?} {alone}");
    }
}

#[test]
fn eevdf_runs_to_parity() {
    let t = tunables(Kernel::V6_12);
    let (mut queue, mut e) = queue(&t, &[1024; 2]);
    let first = queue.current;
    // New tasks start with half a slice; until its end no other runs.
    assert!(!queue.ran(&t, &mut e, MS));
    assert!(queue.ran(&t, &mut e, MS));
    assert_ne!(queue.switch(&t, &mut e), first);
}

#[test]
fn eevdf_ends_the_run_of_who_is_ineligible_and_not_protected() {
    let t = tunables(Kernel::V6_12);
    let (mut queue, mut e) = queue(&t, &[1024; 2]);
    let current = queue.current;
    // Within its slice it runs to parity, ahead of its share or not.
    assert!(!queue.ran(&t, &mut e, MS / 2));
    e[current].deadline += 2 * MS as i64;
    assert!(queue.ran(&t, &mut e, MS / 2), "its deadline is not the one it came with");
    queue.waiting.clear();
    assert!(!queue.ran(&t, &mut e, MS / 2), "nobody is owed anything");
}

#[test]
fn who_is_taken_to_another_queue_keeps_its_place() {
    for kernel in [Kernel::V6_1, Kernel::V6_12] {
        let t = tunables(kernel);
        let (mut from, mut e) = queue(&t, &[1024; 3]);
        let mut to = RunQueue::new(1);
        let moved = from.waiting[0];
        from.take(&t, &mut e, moved);
        to.give(&t, &mut e, moved);
        assert!(!from.waiting.contains(&moved) && from.tasks() == 2);
        assert_eq!(to.switch(&t, &mut e), moved);
    }
}
