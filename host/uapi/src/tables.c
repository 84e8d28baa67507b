/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uapi/unspin.h and unspin_guest.h as Rust: what the preprocessor makes of this, after the line that says
 * so, is part of lib.rs, whose macros make types of the rows.
 */
#include "hvs.h"
#include "unspin.h"
#include "unspin_guest.h"

#define MODE_NAME(id, name, meaning) (id, name)
#define MODE_MEANING(id, name, meaning) (id, meaning)

#define VARIANT_NAME(id, name, flags, meaning) (id, name)
#define VARIANT_FLAGS(id, name, flags, meaning) (id, flags)
#define VARIANT_MEANING(id, name, flags, meaning) (id, meaning)

#define COSCHEDULING_NAME(id, name, meaning) (id, name)
#define COSCHEDULING_MEANING(id, name, meaning) (id, meaning)

#define NUMBER_FILE(id, file, least, most, usual, unit, meaning) (id, #file)
#define NUMBER_LEAST(id, file, least, most, usual, unit, meaning) (id, least)
#define NUMBER_MOST(id, file, least, most, usual, unit, meaning) (id, most)
#define NUMBER_DEFAULT(id, file, least, most, usual, unit, meaning) (id, usual)
#define NUMBER_UNIT(id, file, least, most, usual, unit, meaning) (id, unit)
#define NUMBER_MEANING(id, file, least, most, usual, unit, meaning) (id, meaning)

#define FILE_NAME(id, file, meaning) (id, #file)
#define FILE_MEANING(id, file, meaning) (id, meaning)
#define FIELD(id, file, meaning) (file, meaning)

#define VALUE_FILE(id, file, kind, meaning) (id, #file)
#define VALUE_KIND(id, file, kind, meaning) (id, Kind::kind)
#define VALUE_MEANING(id, file, kind, meaning) (id, meaning)

#define REFUSAL_REASON(id, reason) (id, reason)

rust_from_here

table! { Mode name UNSPIN_MODES(MODE_NAME) }
column! { Mode meaning [str] UNSPIN_MODES(MODE_MEANING) }

table! { Variant name UNSPIN_VARIANTS(VARIANT_NAME) }
column! { Variant flags [u32] UNSPIN_VARIANTS(VARIANT_FLAGS) }
column! { Variant meaning [str] UNSPIN_VARIANTS(VARIANT_MEANING) }

table! { Coscheduling name UNSPIN_COSCHEDULINGS(COSCHEDULING_NAME) }
column! { Coscheduling meaning [str] UNSPIN_COSCHEDULINGS(COSCHEDULING_MEANING) }

table! { Number file UNSPIN_NUMBERS(NUMBER_FILE) }
column! { Number least [u32] UNSPIN_NUMBERS(NUMBER_LEAST) }
column! { Number most [u32] UNSPIN_NUMBERS(NUMBER_MOST) }
column! { Number default [u32] UNSPIN_NUMBERS(NUMBER_DEFAULT) }
column! { Number unit [str] UNSPIN_NUMBERS(NUMBER_UNIT) }
column! { Number meaning [str] UNSPIN_NUMBERS(NUMBER_MEANING) }

table! { Counter file UNSPIN_COUNTERS(FILE_NAME) }
column! { Counter meaning [str] UNSPIN_COUNTERS(FILE_MEANING) }
rows_for! { ($) UNSPIN_COUNTERS(FIELD) }

table! { Value file UNSPIN_VALUES(VALUE_FILE) }
column! { Value kind [Kind] UNSPIN_VALUES(VALUE_KIND) }
column! { Value meaning [str] UNSPIN_VALUES(VALUE_MEANING) }

table! { ModuleValue file UNSPIN_MODULE_VALUES(FILE_NAME) }
column! { ModuleValue meaning [str] UNSPIN_MODULE_VALUES(FILE_MEANING) }

table! { Refusal reason UNSPIN_REFUSALS(REFUSAL_REASON) }

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
