// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults put into the C one at a time: each must be rejected by the check named for it,
//! and the unchanged C, built the same way, by none.

mod common;

use common::Api;
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

struct Mutant {
    file: &'static str,
    /// A line's text, found once in the file.
    line: &'static str,
    becomes: &'static str,
    rejected_by: &'static str,
}

const fn mutant(
    file: &'static str,
    line: &'static str,
    becomes: &'static str,
    rejected_by: &'static str,
) -> Mutant {
    Mutant { file, line, becomes, rejected_by }
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "aple.c",
        "ppm < state->best_ppm",
        "ppm <= state->best_ppm",
        "ties_keep_the_epoch_tried_first",
    ),
    mutant("aple.c", "ppm < state->best_ppm", "ppm > state->best_ppm", "algorithm_1_rounds"),
    mutant(
        "aple.c",
        "return clamp_window(params, up);",
        "return (pol_u32)up;",
        "windows_stay_in_bounds",
    ),
    mutant(
        "aple.c",
        "state->desired_cycles = clamp_window(params, state->desired_cycles);",
        "",
        "windows_stay_in_bounds",
    ),
    mutant(
        "aple.c",
        "desired > step ? desired - step : 0",
        "(pol_u32)(desired - step)",
        "algorithm_1_stops_at_the_bounds",
    ),
    mutant("aple.c", "if (!params->delta_cycles)", "if (0)", "delta_0_keeps_the_window"),
    mutant(
        "aple.c",
        "low && params->delta_max_cycles",
        "params->delta_max_cycles",
        "delta_0_keeps_the_window",
    ),
    mutant("aple.c", "!moved || moved == -state->moved", "!moved", "delta_adapts"),
    mutant("aple.c", "<< (params->delta_cycles != 0)", "<< 1", "complete_vms_spin_longer"),
    mutant("aple.c", "(pol_u64)window_cycles <<", "window_cycles <<", "complete_vms_spin_longer"),
    mutant(
        "aple.c",
        "!moved || moved == -state->moved",
        "moved == -state->moved && moved",
        "delta_adapts",
    ),
    mutant("aple.c", "(pol_u64)state->step_cycles * 2", "state->step_cycles", "delta_adapts"),
    mutant("aple.c", "if (part <= POL_U64_MAX / PPM)", "if (1)", "inefficiency_is_exact"),
    mutant("aple.c", "if (rest >= whole - rest) {", "if (0) {", "inefficiency_is_exact"),
    mutant("aple.c", "if (!wasted)", "if (0)", "inefficiency_without_cpu_time"),
    mutant(
        "aple.c",
        "state->phase < APLE_EPOCHS_PER_ROUND - 1",
        "state->phase < APLE_EPOCHS_PER_ROUND",
        "algorithm_1_rounds",
    ),
    mutant("asym.c", "if (vcpu->ready) {", "if (0) {", "asym_worked_example"),
    mutant("asym.c", "if (demand < vcpu->allocated_ns)", "if (0)", "asym_worked_example"),
    mutant("asym.c", "if (demand < low)", "if (0)", "asym_prediction_follows_demand"),
    mutant(
        "asym.c",
        "upto - given",
        "pol_mul_div(total_ns, vcpus[i].allocated_ns, sum)",
        "asym_allocations_add_up",
    ),
    mutant("asym.c", "vm_ns - switch_ns : 0", "vm_ns : 0", "asym_worked_example"),
    mutant("asym.c", "? RAISE : KEEP", "? KEEP : KEEP", "asym_latency_rules"),
    mutant("asym.c", "vcpus[i].consumed_ns < vcpus[i].allocated_ns)", "1)", "asym_latency_rules"),
    mutant(
        "asym.c",
        "if (vcpus[late].latency_us > clamp_latency(params, 0)) {",
        "if (1) {",
        "asym_blames_wakers",
    ),
    mutant(
        "asym.c",
        "if (vcpus[late].latency_us > clamp_latency(params, 0)) {",
        "if (0) {",
        "asym_blames_wakers",
    ),
    mutant("asym.c", "vcpus[late].wakers >> i & 1", "1", "asym_blames_wakers"),
    mutant(
        "asym.c",
        "vcpus[i].latency_us = clamp_latency(params, latency_us);",
        "vcpus[i].latency_us = (pol_u32)latency_us;",
        "asym_latencies_are_bounded",
    ),
    mutant("asym.c", "if (left < *left_ns && may_swap", "if (may_swap", "asym_balancing_narrows"),
    mutant("asym.c", "pol_sat_mul(moved, 2)", "moved", "asym_balances_time"),
    mutant("asym.c", "(pol_u64)ASYM_PPM + params->imbalance_ppm", "ASYM_PPM", "asym_balances_time"),
    mutant("asym.c", "cores[least].vcpus < cores[most].vcpus &&", "0 &&", "asym_balances_time"),
    mutant(
        "asym.c",
        "return vcpus[a].vm == vcpus[b].vm ||",
        "return 1 ||",
        "asym_keeps_siblings_apart",
    ),
    mutant("asym.c", "may_come(vcpus, count, i, least)", "1", "asym_keeps_siblings_apart"),
    mutant("asym.c", "params->conflict_ratio))", "1))", "asym_parts_urgent_vcpus"),
    mutant(
        "asym.c",
        "count_on(vcpus, count, most, 1, params) / 2",
        "(count_on(vcpus, count, most, 1, params) + 1) / 2",
        "asym_parts_urgent_vcpus",
    ),
    mutant(
        "asym.c",
        "vcpu->latency_us <= params->urgent_us",
        "vcpu->latency_us < params->urgent_us",
        "asym_parts_urgent_vcpus",
    ),
    mutant("credit.c", "weights ? vms[i].weight : 1", "1", "credit_online_rates"),
    mutant("credit.c", "vms[i].part = upto - given;", "vms[i].part = upto;", "credit_is_conserved"),
    mutant("credit.c", "vm->served++;", "", "credit_is_conserved"),
    mutant("credit.c", "if (credit < -limit)", "if (0)", "credit_is_bounded"),
    mutant("credit.c", "&& !vms[i].was_high", "", "credit_spreads_high_vms"),
    mutant("credit.c", "vcpus[i].running || from >=", "from >=", "credit_spreads_high_vms"),
    mutant("credit.c", "!pcpus[i].of_vm &&", "", "credit_spreads_high_vms"),
    mutant("credit.c", "vcpus[i].credit > vcpus[best].credit))", "0))", "credit_picks_the_head"),
    mutant(
        "credit.c",
        "vcpus[head].raised || vcpus[head].credit >= 0)) {",
        "vcpus[head].credit > 0)) {",
        "credit_picks_the_head",
    ),
    mutant("credit.c", "has_vm(vcpus, count, pcpu, vcpus[i].vm))", "0)", "credit_picks_the_head"),
    mutant("credit.c", "|| !params->capped", "|| params->capped", "credit_picks_the_head"),
    mutant("credit.c", "(vcpus[i].raised && !vcpus[best].raised) ||", "", "credit_coschedules"),
    mutant("credit.c", "if (may_raise && ", "if (", "credit_coschedules"),
    mutant("credit.c", "vcpus[decision.vcpu].raised = 0;", "", "credit_coschedules"),
    mutant("credit.c", "(pol_u64)last + 1 : 0", "last : 0", "credit_picks_the_head"),
    mutant("credit.c", "-change_of(paid)", "change_of(paid)", "credit_shares_by_weight"),
    mutant(
        "hvs.c",
        "order->flip[HVS_RESOURCE_WAITER] = flags & HVS_COUNTER_TIME_RESOURCE ? 0 : POL_U64_MAX;",
        "order->flip[HVS_RESOURCE_WAITER] = 0;",
        "variants_reverse_one_heuristic_each",
    ),
    mutant(
        "hvs.c",
        "order->rank[HVS_LOCK_WAITER] = lock_first ? RANK_FIRST : RANK_SECOND;",
        "order->rank[HVS_LOCK_WAITER] = RANK_FIRST;",
        "lock_waiter_preemption_scenarios",
    ),
    mutant(
        "hvs.c",
        "order->rank[HVS_YIELDED] = RANK_YIELDED;",
        "order->rank[HVS_YIELDED] = RANK_FIRST;",
        "the_yielded_list_ends_the_loop",
    ),
    mutant("hvs.c", "if (!slots[i].ready ||", "if (", "a_pick_is_a_candidate"),
    mutant("hvs.c", "|| (excluded >> i & 1))", ")", "a_pick_is_a_candidate"),
    mutant(
        "hvs.c",
        "scan(&best, slots, caller + 1,",
        "scan(&best, slots, caller,",
        "a_pick_is_a_candidate",
    ),
    mutant(
        "hvs.c",
        "scan(&best, slots, 0, caller,",
        "scan(&best, slots, 0, 0 * caller,",
        "picks_in_turn_are_one_order",
    ),
    mutant("hvs.c", "time < best->time)", "time <= best->time)", "ties_go_round_from_the_caller"),
    mutant(
        "hvs.c",
        "rank < best->rank ||",
        "time < best->time ||",
        "snapshots_have_one_total_order",
    ),
    mutant(
        "hvs.c",
        "if (last && !(flags & HVS_NO_YIELDED_LIST))",
        "if (0 && last)",
        "the_yielded_list_gives_everyone_a_turn",
    ),
    mutant(
        "hvs.c",
        "return running < missing ?",
        "return running <= missing ?",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "running++;",
        "running += i != caller;",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "if (!(ours >> (cpu & 63) & 1) ||",
        "if (1 ||",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "ours |= (pol_u64)1 << (slots[i].cpu & 63);",
        "",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "(slots[runs[cpu & 63]].cpu != cpu && !",
        "(0 && !",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "(slots[runs[cpu & 63]].cpu != cpu && !is_shared(slots, count, caller, cpu)))",
        "slots[runs[cpu & 63]].cpu != cpu)",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "runs[slots[i].cpu & 63] = (pol_u8)i;",
        "runs[slots[i].cpu & 63] = 0;",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "if (slots[i].cpu == cpu && is_running(slots, i, caller))",
        "if (slots[i].cpu == cpu)",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "return i == caller || (",
        "return (",
        "the_quorum_gives_way_or_changes_nothing",
    ),
    mutant(
        "hvs.c",
        "#define HVS_CATEGORIES 5u",
        "#define HVS_CATEGORIES 4u",
        "woken_siblings_are_candidates",
    ),
    mutant(
        "hvs.c",
        "#define RANK_WOKEN 2u",
        "#define RANK_WOKEN 0u",
        "woken_siblings_are_candidates",
    ),
    mutant(
        "hvs.c",
        "#define RANK_WOKEN 2u",
        "#define RANK_WOKEN 4u",
        "woken_siblings_are_candidates",
    ),
    mutant(
        "hvs.c",
        "order->flip[HVS_WOKEN] = 0;",
        "order->flip[HVS_WOKEN] = POL_U64_MAX;",
        "woken_siblings_are_candidates",
    ),
    mutant("hvs.c", "rank += RANK_USER_MODE;", "", "user_mode_ranks_last"),
    mutant(
        "hvs.c",
        "if (slots[i].user_mode && category != HVS_WOKEN)",
        "if (slots[i].user_mode)",
        "user_mode_ranks_last",
    ),
    mutant(
        "hvs.c",
        "#define RANK_USER_MODE 6u",
        "#define RANK_USER_MODE 1u",
        "user_mode_ranks_last",
    ),
    mutant(
        "hvs.c",
        "#define RANK_NONE (2 * RANK_USER_MODE)",
        "#define RANK_NONE RANK_USER_MODE",
        "a_pick_is_a_candidate",
    ),
    mutant(
        "hvs.c",
        "|| (displaced && (flags & HVS_DISPLACED_LAST));",
        ";",
        "marks_move_to_the_yielded_list",
    ),
    mutant(
        "hvs.c",
        "(displaced && (flags & HVS_DISPLACED_LAST))",
        "displaced",
        "marks_move_to_the_yielded_list",
    ),
    mutant(
        "hvs.c",
        "(displaced && (flags & HVS_DISPLACED_LAST))",
        "(flags & HVS_DISPLACED_LAST)",
        "marks_move_to_the_yielded_list",
    ),
    mutant("hvs.c", "if (!ready)", "if (0)", "the_quorum_gives_way_or_changes_nothing"),
    mutant("hvs.c", "*yielded_mark = 0;", "", "marks_move_to_the_yielded_list"),
    mutant("ipi.c", "i != caller && ", "", "ipi_picks_who_owes_an_answer"),
    mutant("ipi.c", "slots[i].ready && ", "", "ipi_picks_who_owes_an_answer"),
    mutant("ipi.c", "slots[i].owes_answer && ", "", "ipi_picks_who_owes_an_answer"),
    mutant("ipi.c", " && !(excluded >> i & 1)", "", "ipi_picks_who_owes_an_answer"),
    mutant("ipi.c", "if (count > IPI_SLOTS_MAX)", "if (0)", "ipi_picks_who_owes_an_answer"),
    mutant(
        "ipi.c",
        "step < count; step++",
        "step + 1 < count; step++",
        "ipi_picks_who_owes_an_answer",
    ),
    mutant("ipi.c", "caller + 1 : 0", "0 : 0", "ipi_takes_the_longest_preempted"),
    mutant(
        "ipi.c",
        "slots[i].preempted_at < slots[best].preempted_at",
        "slots[i].preempted_at > slots[best].preempted_at",
        "ipi_takes_the_longest_preempted",
    ),
    mutant(
        "ipi.c",
        "slots[i].preempted_at < slots[best].preempted_at",
        "slots[i].preempted_at <= slots[best].preempted_at",
        "ipi_takes_the_longest_preempted",
    ),
    mutant(
        "kvm_stock.c",
        "if (search->variant == KVM_STOCK_6_13_INDEX_BUG)",
        "if (1)",
        "selector_rotates",
    ),
    mutant(
        "kvm_stock.c",
        "if (step == search->ahead && is_two_pass(search) && search->yielded)",
        "if (0)",
        "selector_conforms_6_12",
    ),
    mutant(
        "kvm_stock.c",
        "vcpu->dy_eligible = !vcpu->dy_eligible;",
        "vcpu->dy_eligible = 1;",
        "selector_conforms_6_19",
    ),
    mutant("kvm_stock.c", "search->tries--;", "", "three_failed_yields_end_a_search"),
    mutant(
        "kvm_stock.c",
        "search->first = last_boosted + 1;",
        "search->first = last_boosted;",
        "selector_conforms_3_19",
    ),
    mutant("kvm_stock.c", "vcpus[search->caller].dy_eligible = 0;", "", "selector_conforms_6_12"),
    mutant("kvm_stock.c", "!vcpu->interrupt_pending &&", "", "selector_conforms_6_12"),
    mutant(
        "kvm_stock.c",
        "if (vcpu->blocking && !vcpu->runnable)",
        "if (vcpu->blocking)",
        "selector_conforms_3_19",
    ),
    mutant("kvm_stock.c", "if (window > limit)", "if (0)", "windows_conform"),
    mutant(
        "vcrd.c",
        "if (x > state->estimate)",
        "if (x >= state->estimate)",
        "vcrd_worked_example",
    ),
    mutant(
        "vcrd.c",
        "if (interval_us <= pol_sat_add",
        "if (interval_us < pol_sat_add",
        "vcrd_conforms",
    ),
    mutant("vcrd.c", "if (state->events < 2)", "if (state->events < 1)", "vcrd_draws_twice"),
    mutant("vcrd.c", "(count + 1) / (2 * count)", "count / (2 * count)", "vcrd_worked_example"),
    mutant("vcrd.c", "return exact < most ? exact : most;", "return exact;", "vcrd_is_bounded"),
    mutant("vcrd.c", "/ VCRD_PPM / others", "/ VCRD_PPM / value_count(params)", "vcrd_conforms"),
    mutant(
        "vcrd.c",
        "propensity_ppm[x] > state->",
        "propensity_ppm[x] >= state->",
        "vcrd_conforms",
    ),
    mutant(
        "vcrd.c",
        "(state->estimate + step) % count",
        "(state->estimate + count - step) % count",
        "vcrd_worked_example",
    ),
    mutant("vcrd.c", "if (state->estimate >= count)", "if (0)", "vcrd_is_bounded"),
    mutant("vcrd.c", "if (now_us > state->event_us)", "", "vcrd_lasts_as_estimated"),
    mutant("vcrd.c", "waited_cycles > (pol_u64)", "waited_cycles >= (pol_u64)", "vcrd_thresholds"),
    mutant(
        "vcrd.c",
        "return now_us < state->",
        "return now_us <= state->",
        "vcrd_lasts_as_estimated",
    ),
    mutant(
        "vcrd.c",
        "return rest_ppm(params->experiment_ppm);",
        "return 0;",
        "vcrd_covers_a_locality",
    ),
];

macro_rules! list {
    ($($module:ident: $name:ident,)*) => {
        &[$((stringify!($name), common::$module::$name as fn(&Api)),)*]
    };
}

type Check = (&'static str, fn(&Api));

const CHECKS: &[Check] = for_each_check!(list);

fn policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy")
}

/// A shared object of policy/*.c, with one file's text replaced.
fn build(name: &str, replaced: Option<(&str, &str)>) -> Api {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let object = directory.join("policy.so");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=c11", "-ffreestanding", "-O1", "-w", "-shared", "-fPIC"]);
    cc.arg("-I").arg(policy()).arg("-o").arg(&object);
    for file in ["aple.c", "asym.c", "credit.c", "hvs.c", "ipi.c", "kvm_stock.c", "vcrd.c"] {
        match replaced {
            Some((which, text)) if which == file => {
                std::fs::write(directory.join(file), text).unwrap();
                cc.arg(directory.join(file));
            }
            _ => {
                cc.arg(policy().join(file));
            }
        }
    }
    assert!(cc.status().expect("a C compiler").success(), "{name} does not compile");
    Api::load(&object)
}

fn passes(check: fn(&Api), api: &Api) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(api))).is_ok()
}

#[test]
fn each_mutant_is_rejected() {
    let check_named = |name: &str| {
        CHECKS.iter().find(|check| check.0 == name).unwrap_or_else(|| panic!("no check {name}")).1
    };
    let unchanged = build("unchanged", None);
    let mut survivors = Vec::new();

    // Every rejection is a panic; only this test's own verdict is for the reader.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    common::SHRINK.store(false, Relaxed);
    for (number, mutant) in MUTANTS.iter().enumerate() {
        let Mutant { file, line, becomes, rejected_by } = mutant;
        let source = std::fs::read_to_string(policy().join(file)).unwrap();
        if source.matches(line).count() != 1 {
            survivors.push(format!("{file}: {line:?} is not there exactly once"));
            continue;
        }
        let changed = source.replacen(line, becomes, 1);
        let api = build(&format!("mutant-{number}"), Some((file, &changed)));
        if passes(check_named(rejected_by), &api) {
            survivors.push(format!("{file}: {line:?} -> {becomes:?} passes {rejected_by}"));
        }
    }
    let named: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.rejected_by).collect();
    let unwell: Vec<&str> =
        named.into_iter().filter(|name| !passes(check_named(name), &unchanged)).collect();
    std::panic::set_hook(hook);

    assert!(unwell.is_empty(), "the unchanged code is rejected by {unwell:?}");
    assert!(survivors.is_empty(), "survivors:\n{}", survivors.join("\n"));
}
