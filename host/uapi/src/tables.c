/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uapi/unspin.h and unspin_guest.h as Rust: what the preprocessor makes of this, after the line that says
 * so, is part of lib.rs, whose macros make types of the rows.
 */
#include "hvs.h"
#include "unspin.h"
#include "unspin_guest.h"

/* A row's name and one of its columns, of which the first is the name. */
#define SECOND(id, b, ...) (id, b)
#define THIRD(id, b, c, ...) (id, c)
#define FOURTH(id, b, c, d, ...) (id, d)
#define FIFTH(id, b, c, d, e, ...) (id, e)
#define SIXTH(id, b, c, d, e, f, ...) (id, f)
#define SEVENTH(id, b, c, d, e, f, g, ...) (id, g)

#define FILE_NAME(id, file, ...) (id, #file)
#define FIELD(id, file, meaning) (file, meaning)
#define VALUE_KIND(id, file, kind, meaning) (id, Kind::kind)

rust_from_here

table! { Mode name UNSPIN_MODES(SECOND) }
column! { Mode meaning [str] UNSPIN_MODES(THIRD) }

table! { Variant name UNSPIN_VARIANTS(SECOND) }
column! { Variant flags [u32] UNSPIN_VARIANTS(THIRD) }
column! { Variant meaning [str] UNSPIN_VARIANTS(FOURTH) }

table! { Coscheduling name UNSPIN_COSCHEDULINGS(SECOND) }
column! { Coscheduling meaning [str] UNSPIN_COSCHEDULINGS(THIRD) }

table! { Number file UNSPIN_NUMBERS(FILE_NAME) }
column! { Number least [u32] UNSPIN_NUMBERS(THIRD) }
column! { Number most [u32] UNSPIN_NUMBERS(FOURTH) }
column! { Number default [u32] UNSPIN_NUMBERS(FIFTH) }
column! { Number unit [str] UNSPIN_NUMBERS(SIXTH) }
column! { Number meaning [str] UNSPIN_NUMBERS(SEVENTH) }

table! { Counter file UNSPIN_COUNTERS(FILE_NAME) }
column! { Counter meaning [str] UNSPIN_COUNTERS(THIRD) }
rows_for! { ($) UNSPIN_COUNTERS(FIELD) }

table! { Value file UNSPIN_VALUES(FILE_NAME) }
column! { Value kind [Kind] UNSPIN_VALUES(VALUE_KIND) }
column! { Value meaning [str] UNSPIN_VALUES(FOURTH) }

table! { ModuleValue file UNSPIN_MODULE_VALUES(FILE_NAME) }
column! { ModuleValue meaning [str] UNSPIN_MODULE_VALUES(THIRD) }

table! { Refusal reason UNSPIN_REFUSALS(SECOND) }

flags! {
	(COUNTER_TIME_RESOURCE, HVS_COUNTER_TIME_RESOURCE)
	(COUNTER_TIME_LOCK, HVS_COUNTER_TIME_LOCK)
	(COUNTER_CAUSALITY, HVS_COUNTER_CAUSALITY)
	(NO_YIELDED_LIST, HVS_NO_YIELDED_LIST)
	(QUORUM, HVS_QUORUM)
	(DISPLACED_LAST, HVS_DISPLACED_LAST)
	(WOKEN_LIST, HVS_WOKEN_LIST)
	(USER_MODE_LAST, HVS_USER_MODE_LAST)
	(RETRY, HVS_RETRY)
	(TRUE_LISTS, HVS_TRUE_LISTS)
	(ADDED, HVS_ADDED)
	(ALL, HVS_FLAGS_ALL)
}

report! {
	(HYPERCALL, UNSPIN_GUEST_HYPERCALL)
	(LOW, UNSPIN_GUEST_LOW)
	(HIGH, UNSPIN_GUEST_HIGH)
	(HIGH_MAX_US, UNSPIN_GUEST_HIGH_MAX_US)
	(PER_S, UNSPIN_GUEST_REPORTS_PER_S)
}
