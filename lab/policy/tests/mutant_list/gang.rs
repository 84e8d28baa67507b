// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of policy/gang*.

use super::{mutant, Mutant};

const ACCOUNT: &str = "gang_accounts_by_weight";
const FILLED: &str = "gang_pools_are_filled";
const GROUP: &str = "gang_group_is_charged_up_to_a_turn";
const POOLS: &str = "gang_pools_worked_example";
const USE: &str = "gang_use_is_a_mean";
const OWNERS: &str = "gang_owners_are_placed_in_order";
const PLACES: &str = "gang_places_worked_example";

const fn turn(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang_turn.c", line, becomes, rejected_by)
}

const fn rows(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang_rows.h", line, becomes, rejected_by)
}

const fn order(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang_order.h", line, becomes, rejected_by)
}

const fn free(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang_free.h", line, becomes, rejected_by)
}

const fn account(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang_account.c", line, becomes, rejected_by)
}

const fn usage(line: &'static str, becomes: &'static str, rejected_by: &'static str) -> Mutant {
    mutant("gang_use.c", line, becomes, rejected_by)
}

pub const MUTANTS: &[Mutant] = &[
    // The turn that ends.
    account("vcpu->weight, 1, GANG_WEIGHT_MAX", "vcpu->weight, 1, 0xffffffff", ACCOUNT),
    account("limited(vcpu->got)", "vcpu->got", ACCOUNT),
    account("(vcpu->wants || vcpu->got)", "vcpu->wants", ACCOUNT),
    account("(vcpu->wants || vcpu->got)", "1", ACCOUNT),
    account("vm->wanting += !!vcpu->wants;", "vm->wanting++;", ACCOUNT),
    rows(": owed < -bound ? -bound : owed", ": owed", ACCOUNT),
    account("pol_sat_mul(clamp, vm->wanting)", "clamp", ACCOUNT),
    account("pol_sat_mul(clamp, vm->wanting)", "clamp * vm->wanting", ACCOUNT),
    account("divided(vm->owed, 2)", "vm->owed", ACCOUNT),
    account("cpu->time, weight_of(vcpu), cpu->weight", "cpu->time, 1, cpu->weight", ACCOUNT),
    account("vm->owed -= (gang_s64)charge_of(host, vm, vcpu, part);", "", "gang_conserves_time"),
    account(
        "if (!is_of_group(vm, cpu))\n\t\treturn time_of(vcpu);",
        "return time_of(vcpu);",
        "gang_group_is_owed_as_one",
    ),
    account("!gang_is_high(vm) && cpu->owner >= GANG_LOW", "!gang_is_high(vm)", ACCOUNT),
    account("!gang_is_high(vm) && cpu->owner >= GANG_LOW", "cpu->owner >= GANG_LOW", ACCOUNT),
    account("!gang_is_high(vm) && cpu", "!vm->high && cpu", ACCOUNT),
    account("!vcpu->held_back && (vcpu->wants", "(vcpu->wants", ACCOUNT),
    rows("vcpu->wants && !vcpu->held_back &&", "vcpu->wants &&", "gang_held_back_owns_nothing"),
    account("if (!of_group)\n\t\treturn;", "", "gang_conserves_time"),
    account(
        "cpu->group_time, weight_of(vcpu), cpu->group_weight",
        "cpu->group_time, 1, cpu->group_weight",
        ACCOUNT,
    ),
    account(
        "cpus[i].time = host->cpus[i].weight = 0;",
        "cpus[i].weight = 0;",
        "gang_shares_by_weight",
    ),
    account(
        "cpus[i].group_time = host->cpus[i].group_weight = 0;",
        "cpus[i].group_weight = 0;",
        "gang_shares_by_weight",
    ),
    account("vm->owed = clamped(vm->owed, GANG_TIME_MAX);", "", "gang_is_bounded"),
    account("pol_sat_mul(GANG_CLAMP_TURNS, turn)", "turn", ACCOUNT),
    account("pol_sat_mul(GANG_CLAMP_TURNS, turn)", "GANG_CLAMP_TURNS * turn", ACCOUNT),
    // Pools.
    account("if (rest && w == words - 1)", "if (0)", POOLS),
    account("if (rest && w == words - 1)", "if (w == words - 1)", POOLS),
    account("word && (any || (word & (word - 1)))", "!!(word & (word - 1))", POOLS),
    account("word && (any || (word & (word - 1)))", "word && any", POOLS),
    account("return !several ? 0 : number ? number : 1;", "return number ? number : 1;", ACCOUNT),
    account("!host->pools[i].set || host->pools[i].set == set", "!host->pools[i].set", POOLS),
    account(
        "!host->pools[i].set || host->pools[i].set == set",
        "host->pools[i].set == set",
        ACCOUNT,
    ),
    account("i < GANG_POOLS_MAX - 1; i++", "i < GANG_POOLS_MAX - 2; i++", "gang_pools_are_bounded"),
    account("part_there(vcpu, cpu), weight", "time_of(vcpu), weight", ACCOUNT),
    account("+= charge_there(vm, vcpu, cpu);", "+= time_of(vcpu);", ACCOUNT),
    account("if (is_of_group(vm, cpu))\n\t\tpool", "pool", ACCOUNT),
    account("most > mean ? most : mean", "most", ACCOUNT),
    account("(division->time + count - 1) / count", "division->time / count", ACCOUNT),
    account("limited(turn) / 8 * GANG_MOST_EIGHTHS", "limited(turn)", "gang_unpinned_shares"),
    account("group, limited(turn));", "group, limited(turn) * 2);", GROUP),
    account("division->level_before = division->level;", "", ACCOUNT),
    account("division->time -= division->most;", "", FILLED),
    account("division->weight -= weight;", "", FILLED),
    account("pass < GANG_FILL_PASSES;", "pass < 1;", FILLED),
    account(
        "weight > division->level ? division->most",
        "weight >= division->level ? division->most",
        ACCOUNT,
    ),
    account("charge_weight(part_of(host, vcpu)));\n\t\t}", "1);\n\t\t}", ACCOUNT),
    account("\tpools_fill(host, 1);\n", "", GROUP),
    account("\tpools_fill(host, 1);\n", "", "gang_unpinned_shares"),
    account("group ? charge_weight(part_of(host, vcpu)) : weight", "group ? 1 : weight", GROUP),
    account("return part ? part : 1;", "return part;", ACCOUNT),
    account("POOLS_MAX && is_of_group(vm, &host->cpus[vcpu->cpu])", "POOLS_MAX", ACCOUNT),
    // The order of the turn that starts.
    order("return left > right;", "return left < right;", OWNERS),
    order(" * pol_clamp_u32(b->wanting, 0, WANTING_MAX)", "", OWNERS),
    order("? a->waited > b->waited", "? a->waited < b->waited", OWNERS),
    order("a->waited != b->waited ?", "0 ?", "gang_starves_nobody"),
    order(": i < k", ": i > k", OWNERS),
    order("\t\t\tchild++;", "\t\t\t;", OWNERS),
    order("if (!comes_before(host, top, order[child]))", "if (0)", OWNERS),
    order("for (i = count / 2; i > 0; i--)", "for (; 0;)", OWNERS),
    order("order[root] = top;", "", OWNERS),
    order("most = turns > most ? turns : most;", "most = turns;", OWNERS),
    order(": ~(turn - host->turn);", ": turn - host->turn;", OWNERS),
    turn("host->turn < ~(pol_u32)0 ? host->turn + 1 : 1", "host->turn + 1", OWNERS),
    // Who owns what, and where vCPUs run.
    free("if (host->cpus[i].usable)\n", "", OWNERS),
    turn("is_free(host, vcpu->cpu) && is_in_room", "is_in_room", OWNERS),
    turn(" && is_in_room(host, wish, vcpu->cpu)", "", "gang_gathers"),
    free("host->free[word] & vcpu->allowed[word]", "host->free[word]", OWNERS),
    free("host->free[word] & vcpu->allowed[word]", "vcpu->allowed[word]", OWNERS),
    free("vcpu->allowed[word]", "vcpu->allowed[0]", OWNERS),
    free("n <= words", "n < words", OWNERS),
    free("== wish->cache ? 4 : cpu->node == wish->node ? 2 : 0", "== wish->cache ? 4 : 0", PLACES),
    free("cpu->cache == wish->cache ? 4 : cpu->node", "cpu->node", PLACES),
    turn("host->cpus[cpu].cache != host->cpus[here].cache ||", "", PLACES),
    turn("leave_second_threads(host, who);", "", "gang_gathers"),
    turn("core)->core_taken == 1 ||", "core)->core_taken == 2 ||", "gang_gathers"),
    turn(
        "].cache ||\n\t\t    first_of(host, host->cpus[cpu].core)->core_taken)",
        "].cache)",
        PLACES,
    ),
    free("near + !first_of(host, cpu->core)->core_taken", "near", PLACES),
    free("near + !first_of(host, cpu->core)->core_taken", "near", "gang_gathers"),
    free("4 + !!cache->cache_whole", "4", PLACES),
    free("2 + !!node->node_whole", "2", PLACES),
    free("return !!host->whole_count;", "return 0;", PLACES),
    turn("if (placed <= most)", "if (0)", PLACES),
    turn("else if (!make_room(host, who, v, wish))", "else", OWNERS),
    turn("host->cpus[here].vcpu = v;", "", OWNERS),
    turn("host->vcpus[v].target = here;", "", OWNERS),
    turn("\tdisown(host, who);\n\treturn 0;", "\treturn 0;", OWNERS),
    turn("if (may_gather) {", "if (0) {", "gang_gathers"),
    turn("if (any_alone(host, vm))\n\t\treturn 0;", "", OWNERS),
    turn("placed = SHARES;", "placed = ALONE;", "gang_gathers"),
    turn(" && !find_room(host, vm, IN_NODE, &wish)", "", "gang_gathers"),
    turn("if (cpu->node == wish->node)\n\t\t\treturn i;", "", PLACES),
    turn(" || !(vcpu->allowed[i / 64] >> i % 64 & 1)", "", PLACES),
    turn("vm->unplaced = !own_cpus(host, i, 0);", "own_cpus(host, i, 0);", OWNERS),
    turn("\t\tvm->unplaced = 0;\n", "", OWNERS),
    turn("!cpu->usable || cpu->seen == who", "cpu->seen == who", OWNERS),
    turn("!cpu->usable || cpu->seen == who", "!cpu->usable", OWNERS),
    turn("\t\t\tdisown(host, i);\n", "", OWNERS),
    turn("any |= gang_is_high(vm);", "any = 1;", OWNERS),
    turn("any |= gang_is_high(vm);", "any = gang_is_high(vm);", OWNERS),
    turn("if (!vm->high || !vm->wanting)", "if (!vm->high)", "gang_needs_rivals"),
    turn("if (gang_is_high(&host->vms[who])) {", "if (host->vms[who].high) {", OWNERS),
    turn(
        "wants(host, &host->vcpus[v]) && is_free(host, host->vcpus[v].cpu)",
        "wants(host, &host->vcpus[v])",
        OWNERS,
    ),
    turn("group_spreads(host, &host->vms[who], 1);", ";", OWNERS),
    turn("group_spreads(host, &host->vms[who], 1);", ";", "gang_spreads_worked_example"),
    turn("behind && host->cpus[vcpu->cpu].owner != GANG_LOW", "0", OWNERS),
    turn(
        "wish_for(host, vcpu->cpu, &wish);\n\t\tcpu = choose",
        "wish_for(host, 0, &wish);\n\t\tcpu = choose",
        "gang_spreads_worked_example",
    ),
    turn("group_spreads(host, &host->vms[host->order[i]], 0);", ";", OWNERS),
    turn("group_stays(host, &host->vms[i]);", ";", OWNERS),
    turn("\tkeep_for_sleepers(host, 0);\n", "", OWNERS),
    turn("\tkeep_for_sleepers(host, 1);\n", "", OWNERS),
    turn("vcpu->held_back || !is_there", "!is_there", "gang_spreads_worked_example"),
    turn("!gang_is_high(vm) || vm->last_turn != host->turn", "!gang_is_high(vm)", OWNERS),
    turn("\tnote_turn(host);\n\tplace_rest", "\tplace_rest", OWNERS),
    turn("host->cpus[i].low_last_turn = host->turn;", ";", OWNERS),
    turn("!any_high || count < 2", "count < 2", "gang_needs_rivals"),
    turn("!any_high || count < 2", "!any_high", "gang_needs_rivals"),
    rows(
        "return vcpu->cpu < host->cpu_count;",
        "return vcpu->cpu <= host->cpu_count;",
        "gang_is_bounded",
    ),
    rows(
        "left = host->vcpu_count - first;",
        "left = host->vcpu_count - first + 1;",
        "gang_is_bounded",
    ),
    // Rivals and fills.
    turn(
        "owner == GANG_NONE || vm >= host->vm_count",
        "owner == GANG_NONE && vm >= host->vm_count",
        "gang_keeps_rivals_off",
    ),
    turn("(gang_is_high(&host->vms[vm]) ? vm : GANG_LOW)", "vm", "gang_keeps_rivals_off"),
    turn("(gang_is_high(&host->vms[vm]) ? vm", "(host->vms[vm].high ? vm", "gang_keeps_rivals_off"),
    turn("if (candidates[i].lock)", "if (0)", "gang_fills_holes"),
    turn(".owed > candidates[best].owed", ".owed >= candidates[best].owed", "gang_fills_holes"),
    turn("i < count && i < GANG_FILLERS_MAX", "i < count", "gang_fills_holes"),
    // Tasks of the host.
    usage("use->of_host = 0;", "", USE),
    usage("use->used = 0;\n}", "}", USE),
    usage(
        "use->of_all = (gang_s64)limited(turn);",
        "use->of_all = 0;",
        "gang_use_forgives_a_burst",
    ),
    usage("clamped(of_host, turn)", "of_host", "gang_use_is_bounded"),
    usage(
        "of_host * 100 > use->of_all",
        "of_host * 100 >= use->of_all",
        "gang_use_borders_are_exact",
    ),
    usage(
        "of_host * 100 < use->of_all",
        "of_host * 100 <= use->of_all",
        "gang_use_borders_are_exact",
    ),
    usage(
        "use->of_all * GANG_USE_AGAIN_PERCENT",
        "use->of_all * GANG_USE_MOST_PERCENT",
        "gang_use_sees_a_hog_and_its_end",
    ),
    usage("before = clamped(before, GANG_TIME_MAX);", "", "gang_use_is_bounded"),
];
