// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of policy/gang.c.

use super::{mutant, Mutant};

const ACCOUNT: &str = "gang_accounts_by_weight";
const USE: &str = "gang_use_is_a_mean";
const OWNERS: &str = "gang_owners_are_placed_in_order";

const fn gang(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang.c", line, becomes, rejected_by)
}

pub const MUTANTS: &[Mutant] = &[
    // The turn that ends.
    gang("vcpu->weight, 1, GANG_WEIGHT_MAX", "vcpu->weight, 1, 0xffffffff", ACCOUNT),
    gang("vcpu->got < GANG_TIME_MAX ? vcpu->got : GANG_TIME_MAX", "vcpu->got", ACCOUNT),
    gang("(vcpu->wants || vcpu->got)", "vcpu->wants", ACCOUNT),
    gang("(vcpu->wants || vcpu->got)", "1", ACCOUNT),
    gang("vm->wanting += !!vcpu->wants;", "vm->wanting++;", ACCOUNT),
    gang(": owed < -bound ? -bound : owed", ": owed", ACCOUNT),
    gang("pol_sat_mul(clamp, vm->wanting)", "clamp", ACCOUNT),
    gang("pol_sat_mul(clamp, vm->wanting)", "clamp * vm->wanting", ACCOUNT),
    gang("divided(vm->owed, 2)", "vm->owed", ACCOUNT),
    gang("cpu->time, weight_of(vcpu), cpu->weight", "cpu->time, 1, cpu->weight", ACCOUNT),
    gang("vm->owed -= (gang_s64)charge_of(vm, vcpu, cpu);", "", "gang_conserves_time"),
    gang(
        "if (!is_of_group(vm, cpu))\n\t\treturn time_of(vcpu);",
        "return time_of(vcpu);",
        "gang_group_is_owed_as_one",
    ),
    gang("!vm->high && cpu->owner >= GANG_LOW", "!vm->high", ACCOUNT),
    gang("!vm->high && cpu->owner >= GANG_LOW", "cpu->owner >= GANG_LOW", ACCOUNT),
    gang("if (!of_group)\n\t\treturn;", "", "gang_conserves_time"),
    gang(
        "cpu->group_time, weight_of(vcpu), cpu->group_weight",
        "cpu->group_time, 1, cpu->group_weight",
        ACCOUNT,
    ),
    gang(
        "cpus[i].time = host->cpus[i].weight = 0;",
        "cpus[i].weight = 0;",
        "gang_shares_by_weight",
    ),
    gang(
        "cpus[i].group_time = host->cpus[i].group_weight = 0;",
        "cpus[i].group_weight = 0;",
        "gang_shares_by_weight",
    ),
    gang("vm->owed = clamped(vm->owed, GANG_TIME_MAX);", "", "gang_is_bounded"),
    // The order of the turn that starts.
    gang("return left > right;", "return left < right;", OWNERS),
    gang(
        "a->owed * (gang_s64)b->wanting, right = b->owed * (gang_s64)a->wanting",
        "a->owed, right = b->owed",
        OWNERS,
    ),
    gang("? a_waited > b_waited", "? a_waited < b_waited", OWNERS),
    gang("a_waited != b_waited ?", "0 ?", "gang_starves_nobody"),
    gang(": a->vm < b->vm", ": a->vm > b->vm", OWNERS),
    gang("most = turns > most ? turns : most;", "most = turns;", OWNERS),
    gang(": ~(turn - host->turn);", ": turn - host->turn;", OWNERS),
    gang("host->turn < ~(pol_u32)0 ? host->turn + 1 : 1", "host->turn + 1", OWNERS),
    // Who owns what.
    gang(
        "wants(host, vcpu) && host->cpus[vcpu->cpu].owner == GANG_NONE;",
        "wants(host, vcpu);",
        OWNERS,
    ),
    gang("host->cpus[i].owner == GANG_NONE && vcpu->allowed", "vcpu->allowed", OWNERS),
    gang("vcpu->allowed[i / 64]", "vcpu->allowed[0]", OWNERS),
    gang(
        "cpu == GANG_NONE && v < end_of(host, vm); v++) {\n\t\tstruct",
        "0 && v < end_of(host, vm); v++) {\n\t\tstruct",
        OWNERS,
    ),
    gang("other->placed = !vcpu->placed;", "", OWNERS),
    gang("|| other->cpu != vcpu->cpu)", ")", OWNERS),
    gang("all = 0;", "all = 1;", OWNERS),
    gang("all = 0;", "return 0;", OWNERS),
    gang("!own_cpus(host, who) && !first", "!own_cpus(host, who)", OWNERS),
    gang("disown_cpus(host, who);", ";", OWNERS),
    gang("place(host, c.vm, 1);", "place(host, c.vm, 0);", OWNERS),
    gang("if (!host->vms[who].high)\n", "if (0)\n", OWNERS),
    gang("\tnote_turn(host);\n\tkeep", "\tkeep", OWNERS),
    gang("keep_for_sleepers(host);\n\treturn 1;", "return 1;", OWNERS),
    gang("!vm->high || vm->last_turn != host->turn", "!vm->high", OWNERS),
    gang("host->cpus[i].low_last_turn = host->turn;", ";", OWNERS),
    gang("!any_high(host) || !rival.wanting", "!rival.wanting", "gang_needs_rivals"),
    gang("!any_high(host) || !rival.wanting", "!any_high(host)", "gang_needs_rivals"),
    gang(
        "if (host->vms[i].high && host->vms[i].wanting)",
        "if (host->vms[i].high)",
        "gang_needs_rivals",
    ),
    gang(
        "return vcpu->cpu < host->cpu_count;",
        "return vcpu->cpu <= host->cpu_count;",
        "gang_is_bounded",
    ),
    gang(
        "left = host->vcpu_count - first;",
        "left = host->vcpu_count - first + 1;",
        "gang_is_bounded",
    ),
    // Rivals and fills.
    gang(
        "owner == GANG_NONE || vm >= host->vm_count",
        "owner == GANG_NONE && vm >= host->vm_count",
        "gang_keeps_rivals_off",
    ),
    gang("(host->vms[vm].high ? vm : GANG_LOW)", "vm", "gang_keeps_rivals_off"),
    gang("!vcpu->parked || ", "", "gang_fills_holes"),
    gang("vcpu->lock || ", "", "gang_fills_holes"),
    gang(" || vcpu->cpu != cpu", "", "gang_fills_holes"),
    gang("|| !is_there(host, vcpu))", ")", "gang_fills_holes"),
    gang(".owed > host->vms[best_vm].owed", ".owed >= host->vms[best_vm].owed", "gang_fills_holes"),
    gang("best_vm = i;", "", "gang_fills_holes"),
    // Tasks of the host.
    gang("use->of_host = 0;", "", USE),
    gang("use->used = 0;\n}", "}", USE),
    gang(
        "use->of_all = (gang_s64)(turn < GANG_TIME_MAX ? turn : GANG_TIME_MAX);",
        "use->of_all = 0;",
        "gang_use_forgives_a_burst",
    ),
    gang("clamped(of_host, turn)", "of_host", "gang_use_is_bounded"),
    gang(
        "of_host * 100 > use->of_all",
        "of_host * 100 >= use->of_all",
        "gang_use_borders_are_exact",
    ),
    gang(
        "of_host * 100 < use->of_all",
        "of_host * 100 <= use->of_all",
        "gang_use_borders_are_exact",
    ),
    gang(
        "use->of_all * GANG_USE_AGAIN_PERCENT",
        "use->of_all * GANG_USE_MOST_PERCENT",
        "gang_use_sees_a_hog_and_its_end",
    ),
    gang("before = clamped(before, GANG_TIME_MAX);", "", "gang_use_is_bounded"),
];
