// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong locks, and another form of one that is right.

/// A wrong lock: lock, text of its header, what stands there instead, the check that must find it.
pub type Broken = (&'static str, &'static str, &'static str, &'static str);

pub const BROKEN: &[Broken] = &[
    ("tas", "memory_order_acquire) == 0", "memory_order_acquire) <= 1", "mutual_exclusion"),
    ("tas", "held, 0, memory", "held, 1, memory", "progress"),
    ("tas", "memory_order_relaxed) != 0", "memory_order_relaxed) == 0", "free_at_the_end"),
    ("tas_nap", "is_locked(lock) && unspin_tas_nap_trylock(lock))", "is_locked(lock))", "visible"),
    ("ticket", "(serving + 1)", "(serving + 2)", "progress"),
    ("ticket", "if ((both >> 16) != (both & 0xffff))", "if (0)", "mutual_exclusion"),
    (
        "ticket",
        "memory_order_acquire) != mine)",
        "memory_order_acquire) == mine)",
        "mutual_exclusion",
    ),
    (
        "mcs",
        "while (atomic_load_explicit(&node->waiting",
        "if (atomic_load_explicit(&node->waiting",
        "mutual_exclusion",
    ),
    ("mcs", "&node->waiting, 1,", "&node->waiting, 0,", "mutual_exclusion"),
    (
        "mcs",
        "/* A waiter has exchanged the tail and is about to link itself. */",
        "return;",
        "progress",
    ),
    ("preemptable", "if (ahead)", "if (0)", "order"),
    ("preemptable", "if (!now_ahead ||", "if (now_ahead < 2 ||", "order"),
    ("preemptable", "(low + 1)", "(low + 2)", "progress"),
    ("preemptable", "if (!unspin_preemptable_is_idle(both))", "if (0)", "order"),
    // The release updates the whole word, and the count of grants carries into that of requests.
    (
        "preemptable",
        "unsigned short low = atomic_load_explicit(&lock->low, memory_order_relaxed);\n\n\
         \t/* Release pairs with the acquires above. */\n\
         \tatomic_store_explicit(&lock->low, (unsigned short)(low + 1), memory_order_release);",
        "atomic_fetch_add_explicit(&lock->both, 1, memory_order_release);",
        "free_at_the_end",
    ),
    ("pv_preemptable", "unspin_lock_wake_all(&lock->both)", "(void)0", "progress"),
    ("pv_preemptable", "if (both & UNSPIN_PV_PREEMPTABLE_HELD)", "if (both)", "progress"),
    ("pv_preemptable", "if (ahead)", "if (0)", "order"),
    // Looks only while there is time.
    (
        "pv_preemptable",
        "while (atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HELD",
        "while (unspin_lock_budget_spent(&budget) || \
         atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HELD",
        "progress",
    ),
    ("pv_ticket", "if (unspin_pv_ticket_ahead(both, mine))\n", "if (both)\n", "progress"),
    // Gives up before it looks: goes round for ever if its budget is always over.
    (
        "pv_ticket",
        "unspin_lock_budget(spin_ns, 1);\n",
        "unspin_lock_budget(spin_ns, 1);\n if (unspin_lock_budget_spent(&budget)) return false;\n",
        "progress",
    ),
    ("pv_ticket", "next <= kicks", "next < kicks", "progress"),
    ("pv_ticket", "!(low & UNSPIN_PV_TICKET_HALTED)", "low & UNSPIN_PV_TICKET_HALTED", "progress"),
    ("pv_ticket", "unspin_lock_wake(&lock->both,", "unspin_lock_wake(&lock->both, 1 +", "progress"),
    ("pv_ticket", "if (unspin_pv_ticket_ahead(both, both >> 16))", "if (0)", "mutual_exclusion"),
    ("pv_queued", "unspin_lock_wake(&lock->word, 0)", "(void)0", "progress"),
    ("pv_queued", "unspin_lock_wake(&first->state, 0)", "(void)first", "progress"),
    ("pv_queued", "atomic_store_explicit(&lock->first, after,", "(void)(0 +", "undefined"),
    (
        "pv_queued",
        "if (!word && unspin_pv_queued_take(lock, 0))",
        "if (!(word & UNSPIN_PV_QUEUED_HELD) && unspin_pv_queued_take(lock, word))",
        "order",
    ),
    ("lease", "return !(uses & 1) &&", "return", "mutual_exclusion"),
    ("lease", "unspin_lock_wake(&lock->line, heir)", "(void)0", "progress"),
    ("lease", "*heir ? 1 : 1 - 0x10000u", "1", "progress"),
    (
        "lease",
        "while (!(got = unspin_lease_take(",
        "while (unspin_lock_budget_spent(&awake) || !(got = unspin_lease_take(",
        "progress",
    ),
    // Threads that give up: their wish stays; they go on as if they had the lock.
    (
        "lease",
        "unspin_lock_budget_spent(limit))\n\t\t\tbreak;",
        "unspin_lock_budget_spent(limit))\n\t\t\treturn false;",
        "free_at_the_end",
    ),
    ("lease", "\treturn got;", "\treturn true;", "mutual_exclusion"),
    (
        "tas_nap",
        "return false;\n\t\tunspin_lock_wait_for",
        "return true;\n\t\tunspin_lock_wait_for",
        "mutual_exclusion",
    ),
    (
        "lease",
        "if (wish & UNSPIN_LEASE_WANTED_ASLEEP)",
        "if (unspin_lease_is_wanted(lock) && wish)",
        "touched_when_done",
    ),
    (
        "lease",
        "unspin_lease_nap(&lock->both, both, 0, nap_ns)",
        "unspin_lock_wait(&lock->both, both, 0)",
        "progress",
    ),
    // Threads outside the line do not look whether the heir wants the lock.
    ("lease", "unspin_lease_is_wanted(lock) || !(uses &", "!(uses &", "overtaking"),
    (
        "lease",
        "unspin_lease_change_wish(lock, UNSPIN_LEASE_WANTED, UNSPIN_LEASE_NO_WISH);",
        "",
        "free_at_the_end",
    ),
    // The heir's release makes no other thread the heir.
    (
        "lease",
        "(unsigned short)(UNSPIN_LEASE_PASSING | sharing)",
        "(unsigned short)sharing",
        "progress",
    ),
    // A wish of another thread hides that the holder is the heir.
    ("lease", "(unsigned short)(wish ^ from ^ to)", "(unsigned short)to", "progress"),
    // A thread that gives up while the heir releases the lock leaves its wish.
    ("lease", "continue;", "break;", "free_at_the_end"),
    // The holder after the heir passes on, too.
    ("lease", "~UNSPIN_LEASE_PASSING", "~0u", "free_at_the_end"),
];

/// What stands in `preemptable.h` instead, so that the release updates the whole word: the checker then needs no rule
/// for halves. A count that wraps around must not carry into the high half.
pub const WHOLE_WORD: &[(&str, &str)] = &[
    (
        "unsigned short low = atomic_load_explicit(&lock->low,",
        "unsigned int both = atomic_load_explicit(&lock->both,",
    ),
    (
        "atomic_store_explicit(&lock->low, (unsigned short)(low + 1),",
        "atomic_fetch_add_explicit(&lock->both, (both & 0xffff) == 0xffff ? 1 - 0x10000u : 1,",
    ),
];
