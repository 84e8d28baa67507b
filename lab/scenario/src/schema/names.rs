// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names: valid words, and names that are reserved for reports.

/// The arm of runs of one VM alone, and the arm that the report computes from them.
pub const ALONE_ARM: &str = "alone";
pub const IDEAL_ARM: &str = "ideal";
/// The arm that `--attribute` adds: the program on the machine itself.
pub const PHYSICAL_ARM: &str = "without-vmm";

/// A value that is chosen by its name.
pub trait Named: Copy + PartialEq + 'static {
    /// All there is to choose from, with their names.
    fn choices() -> Vec<(&'static str, Self)>;

    fn called(self) -> &'static str {
        Self::choices().into_iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}

/// Whether a value is the default, so that it need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Implements [`Named`] for enums by their variants' names in kebab-case, as strum and serde spell
/// them.
macro_rules! named {
    ($($name:ty),+) => {
        $(impl $crate::schema::names::Named for $name {
            fn choices() -> Vec<(&'static str, $name)> {
                <$name as strum::IntoEnumIterator>::iter().map(|one| (one.into(), one)).collect()
            }
        })+
    };
}
pub(crate) use named;

/// Whether `s` is a valid name of an arm or a profile: 1 to 64 small letters, digits, `-` and `_`,
/// so that it can be part of a file name.
pub fn is_name(s: &str) -> bool {
    !s.is_empty()
        && s.len() <= 64
        && s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
}
