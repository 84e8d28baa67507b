// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's user-space interface: modes, variants of HVS, coscheduling, settings, counters and values,
//! with their names, bounds and meanings. All of it is from uapi/unspin.h, from which the module is also
//! built. [`schedule_trace`] is the interface of a trace of `unspin schedule`.
//!
//! ```
//! use unspin_uapi::{Mode, Number, Variant};
//!
//! assert_eq!(Mode::of("apples"), Some(Mode::APPLES));
//! assert_eq!(Number::WINDOW_MIN.file(), "window_min_cycles");
//! assert!(Number::WINDOW_MIN.range().contains(&Number::WINDOW_MIN.default()));
//! assert_eq!(Variant::PAPER.flags(), 0);
//! ```

pub mod schedule_trace;

/// How a value changes.
#[allow(clippy::upper_case_acronyms)] // as uapi/unspin.h has them
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It grows until the next reset.
    COUNT,
    /// The present value.
    LAST,
}

/// An enumeration of a table's rows, with one name per row.
macro_rules! table {
    ($Table:ident $name:ident $(($id:ident, $text:literal))+) => {
        // Names are those of uapi/unspin.h.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Table {
            $(#[doc = $text] $id,)+
        }

        impl $Table {
            pub const ALL: &'static [$Table] = &[$($Table::$id),+];

            pub const fn $name(self) -> &'static str {
                match self {
                    $($Table::$id => $text,)+
                }
            }

            /// The row with this name.
            pub fn of(text: &str) -> Option<$Table> {
                $Table::ALL.iter().copied().find(|row| row.$name() == text)
            }
        }
    };
}

macro_rules! column {
    ($Table:ident $column:ident [str] $($row:tt)+) => {
        column! { $Table $column [&'static str] $($row)+ }
    };
    ($Table:ident $column:ident [$Of:ty] $(($id:ident, $value:expr))+) => {
        impl $Table {
            pub const fn $column(self) -> $Of {
                match self {
                    $($Table::$id => $value,)+
                }
            }
        }
    };
}

/// `for_each_counter!(m)` expands to `m! { (file, "meaning") … }` with all counters in order.
macro_rules! rows_for {
    (($d:tt) $($row:tt)+) => {
        #[macro_export]
        macro_rules! for_each_counter {
            ($d with:ident) => {
                $d with! { $($row)+ }
            };
        }
    };
}

macro_rules! flags {
    ($(($flag:ident, $bit:expr))+) => {
        /// Flags of HVS, explained in policy/hvs.h. Traces contain them as numbers.
        pub mod flags {
            $(pub const $flag: u32 = $bit;)+
        }
    };
}

macro_rules! report {
    ($(($name:ident, $value:expr))+) => {
        /// Reports of a guest's kernel to the module: uapi/unspin_guest.h.
        pub mod report {
            $(pub const $name: u32 = $value;)+
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

impl Variant {
    pub const DEFAULT: Variant = Variant::ALL[0];
}

impl Coscheduling {
    pub const DEFAULT: Coscheduling = Coscheduling::ALL[0];
}

impl Number {
    pub const fn range(self) -> std::ops::RangeInclusive<u32> {
        self.least()..=self.most()
    }
}

/// Names of the files with settings, in the order of writing: bounds before the values they bound, the mode
/// last.
pub fn setting_files() -> impl Iterator<Item = &'static str> {
    let numbers = Number::ALL.iter().map(|number| number.file());
    numbers.chain([HVS_VARIANT, COSCHEDULING, MODE])
}

/// `a, b or c`, for errors that list allowed values.
pub fn any_of<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// The settings of the module that are words, not [`Number`]s.
pub const MODE: &str = "mode";
pub const HVS_VARIANT: &str = "hvs_variant";
pub const COSCHEDULING: &str = "coscheduling";

/// The file of a VM with the reason why it has no turns.
pub const TURNS_REFUSED: &str = "turns_refused";

/// The reason in [`TURNS_REFUSED`], if there is one.
pub fn turns_refused(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|reason| !reason.is_empty() && *reason != Refusal::NONE.reason())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_found_and_differ() {
        let files = || {
            let settings =
                Number::ALL.iter().map(|n| n.file()).chain(["mode", "hvs_variant", "coscheduling"]);
            let counts = Counter::ALL.iter().map(|c| c.file());
            settings.chain(counts).chain(Value::ALL.iter().map(|v| v.file()))
        };
        assert_eq!(files().collect::<BTreeSet<_>>().len(), files().count());
        assert!(Mode::ALL.iter().all(|m| Mode::of(m.name()) == Some(*m)));
        assert!(Variant::ALL.iter().all(|v| Variant::of(v.name()) == Some(*v)));
        let coschedulings = Coscheduling::ALL;
        assert!(coschedulings.iter().all(|c| Coscheduling::of(c.name()) == Some(*c)));
        assert_eq!(Number::of("window_init"), None);
    }

    #[test]
    fn defaults_are_within_their_bounds() {
        for number in Number::ALL {
            assert!(number.range().contains(&number.default()), "{number:?}");
        }
        let [init, least, most, delta, largest] = [
            Number::WINDOW_INIT,
            Number::WINDOW_MIN,
            Number::WINDOW_MAX,
            Number::DELTA,
            Number::DELTA_MAX,
        ]
        .map(Number::default);
        assert!((least..=most).contains(&init) && delta <= most && largest <= most);
    }

    #[test]
    fn variants_are_the_papers_or_all_that_is_added_and_one_flag_at_most_besides_lists() {
        assert_eq!((Variant::DEFAULT.name(), Variant::DEFAULT.flags()), ("hvs", flags::ADDED));
        let all: BTreeSet<u32> = Variant::ALL.iter().map(|v| v.flags()).collect();
        assert_eq!(all.len(), Variant::ALL.len(), "two of the same flags");
        for variant in Variant::ALL {
            assert_eq!(variant.flags() & !flags::ALL, 0);
            assert!([0, flags::ADDED].contains(&(variant.flags() & flags::ADDED)), "{variant:?}");
            let other = variant.flags() & !(flags::ADDED | flags::TRUE_LISTS);
            assert!(other.count_ones() <= 1, "{variant:?}");
        }
    }

    #[test]
    fn lists_read_as_a_sentence() {
        assert_eq!(any_of(["a"]), "a");
        assert_eq!(any_of(["a", "b", "c"]), "a, b or c");
    }

    #[test]
    fn a_reason_is_whatever_is_not_none() {
        assert_eq!(
            turns_refused("vCPUs of a real-time class\n"),
            Some("vCPUs of a real-time class")
        );
        for no_reason in ["none\n", "none", "\n", ""] {
            assert_eq!(turns_refused(no_reason), None, "{no_reason:?}");
        }
    }
}
