// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of policy/gang.c.

use super::{mutant, Mutant};

const ACCOUNT: &str = "gang_accounts_by_weight";
const USE: &str = "gang_use_is_a_mean";
const OWNERS: &str = "gang_owners_are_placed_in_order";
const PLACES: &str = "gang_places_worked_example";

const fn gang(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang.c", line, becomes, rejected_by)
}

pub const MUTANTS: &[Mutant] = &[
    // The turn that ends.
    gang("vcpu->weight, 1, GANG_WEIGHT_MAX", "vcpu->weight, 1, 0xffffffff", ACCOUNT),
    gang("limited(vcpu->got)", "vcpu->got", ACCOUNT),
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
    gang("!gang_is_high(vm) && cpu->owner >= GANG_LOW", "!gang_is_high(vm)", ACCOUNT),
    gang("!gang_is_high(vm) && cpu->owner >= GANG_LOW", "cpu->owner >= GANG_LOW", ACCOUNT),
    gang("!gang_is_high(vm) && cpu", "!vm->high && cpu", ACCOUNT),
    gang("!vcpu->held_back && (vcpu->wants", "(vcpu->wants", ACCOUNT),
    gang("vcpu->wants && !vcpu->held_back &&", "vcpu->wants &&", "gang_held_back_owns_nothing"),
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
    gang(" * pol_clamp_u32(b->wanting, 0, WANTING_MAX)", "", OWNERS),
    gang("? a->waited > b->waited", "? a->waited < b->waited", OWNERS),
    gang("a->waited != b->waited ?", "0 ?", "gang_starves_nobody"),
    gang(": i < k", ": i > k", OWNERS),
    gang("\t\t\tchild++;", "\t\t\t;", OWNERS),
    gang("if (!comes_before(host, top, order[child]))", "if (0)", OWNERS),
    gang("for (i = count / 2; i > 0; i--)", "for (; 0;)", OWNERS),
    gang("order[root] = top;", "", OWNERS),
    gang("most = turns > most ? turns : most;", "most = turns;", OWNERS),
    gang(": ~(turn - host->turn);", ": turn - host->turn;", OWNERS),
    gang("host->turn < ~(pol_u32)0 ? host->turn + 1 : 1", "host->turn + 1", OWNERS),
    // Who owns what, and where vCPUs run.
    gang("if (host->cpus[i].usable)\n", "", OWNERS),
    gang("is_free(host, vcpu->cpu) && is_in_room", "is_in_room", OWNERS),
    gang(" && is_in_room(host, wish, vcpu->cpu)", "", "gang_gathers"),
    gang("host->free[word] & vcpu->allowed[word]", "host->free[word]", OWNERS),
    gang("host->free[word] & vcpu->allowed[word]", "vcpu->allowed[word]", OWNERS),
    gang("vcpu->allowed[word]", "vcpu->allowed[0]", OWNERS),
    gang("n <= words", "n < words", OWNERS),
    gang("== wish->cache ? 4 : cpu->node == wish->node ? 2 : 0", "== wish->cache ? 4 : 0", PLACES),
    gang("cpu->cache == wish->cache ? 4 : cpu->node", "cpu->node", PLACES),
    gang("near + !first_of(host, cpu->core)->core_taken", "near", PLACES),
    gang("near + !first_of(host, cpu->core)->core_taken", "near", "gang_gathers"),
    gang("4 + !!cache->cache_whole", "4", PLACES),
    gang("2 + !!node->node_whole", "2", PLACES),
    gang("return !!host->whole_count;", "return 0;", PLACES),
    gang("if (placed <= most)", "if (0)", PLACES),
    gang("else if (!make_room(host, who, v, wish))", "else", OWNERS),
    gang("host->cpus[here].vcpu = v;", "", OWNERS),
    gang("host->vcpus[v].target = here;", "", OWNERS),
    gang("\tdisown(host, who);\n\treturn 0;", "\treturn 0;", OWNERS),
    gang("if (may_gather) {", "if (0) {", "gang_gathers"),
    gang("if (any_alone(host, vm))\n\t\treturn 0;", "", OWNERS),
    gang("placed = SHARES;", "placed = ALONE;", "gang_gathers"),
    gang(" && !find_room(host, vm, IN_NODE, &wish)", "", "gang_gathers"),
    gang("if (cpu->node == wish->node)\n\t\t\treturn i;", "", PLACES),
    gang(" || !(vcpu->allowed[i / 64] >> i % 64 & 1)", "", PLACES),
    gang("vm->unplaced = !own_cpus(host, i, 0);", "own_cpus(host, i, 0);", OWNERS),
    gang("\t\tvm->unplaced = 0;\n", "", OWNERS),
    gang("!cpu->usable || cpu->seen == who", "cpu->seen == who", OWNERS),
    gang("!cpu->usable || cpu->seen == who", "!cpu->usable", OWNERS),
    gang("\t\t\tdisown(host, i);\n", "", OWNERS),
    gang("any |= gang_is_high(vm);", "any = 1;", OWNERS),
    gang("any |= gang_is_high(vm);", "any = gang_is_high(vm);", OWNERS),
    gang("if (!vm->high || !vm->wanting)", "if (!vm->high)", "gang_needs_rivals"),
    gang("if (gang_is_high(&host->vms[who])) {", "if (host->vms[who].high) {", OWNERS),
    gang(
        "wants(host, &host->vcpus[v]) && is_free(host, host->vcpus[v].cpu)",
        "wants(host, &host->vcpus[v])",
        OWNERS,
    ),
    gang("group_spreads(host, &host->vms[who], 1);", ";", OWNERS),
    gang("group_spreads(host, &host->vms[who], 1);", ";", "gang_spreads_worked_example"),
    gang("behind && host->cpus[vcpu->cpu].owner != GANG_LOW", "0", OWNERS),
    gang(
        "wish_for(host, vcpu->cpu, &wish);\n\t\tcpu = choose",
        "wish_for(host, 0, &wish);\n\t\tcpu = choose",
        "gang_spreads_worked_example",
    ),
    gang("group_spreads(host, &host->vms[host->order[i]], 0);", ";", OWNERS),
    gang("group_stays(host, &host->vms[i]);", ";", OWNERS),
    gang("\tkeep_for_sleepers(host, 0);\n", "", OWNERS),
    gang("\tkeep_for_sleepers(host, 1);\n", "", OWNERS),
    gang("vcpu->held_back || !is_there", "!is_there", "gang_spreads_worked_example"),
    gang("!gang_is_high(vm) || vm->last_turn != host->turn", "!gang_is_high(vm)", OWNERS),
    gang("\tnote_turn(host);\n\tplace_rest", "\tplace_rest", OWNERS),
    gang("host->cpus[i].low_last_turn = host->turn;", ";", OWNERS),
    gang("!any_high || count < 2", "count < 2", "gang_needs_rivals"),
    gang("!any_high || count < 2", "!any_high", "gang_needs_rivals"),
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
    gang("(gang_is_high(&host->vms[vm]) ? vm : GANG_LOW)", "vm", "gang_keeps_rivals_off"),
    gang("(gang_is_high(&host->vms[vm]) ? vm", "(host->vms[vm].high ? vm", "gang_keeps_rivals_off"),
    gang("if (candidates[i].lock)", "if (0)", "gang_fills_holes"),
    gang(".owed > candidates[best].owed", ".owed >= candidates[best].owed", "gang_fills_holes"),
    gang("i < count && i < GANG_FILLERS_MAX", "i < count", "gang_fills_holes"),
    // Tasks of the host.
    gang("use->of_host = 0;", "", USE),
    gang("use->used = 0;\n}", "}", USE),
    gang("use->of_all = (gang_s64)limited(turn);", "use->of_all = 0;", "gang_use_forgives_a_burst"),
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
