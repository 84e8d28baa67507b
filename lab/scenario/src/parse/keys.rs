// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the declared keys of a table.

use crate::schema::key::{self, Flag, Integer, Key, Kind, List, Maybe, Name, Share, Usual, Word};
use crate::schema::names::{is_name, Named};
use std::fmt::Debug;
use unspin_text::{no_doubles, Table, Value};

/// A kind of value that is always read in the same way.
pub(crate) trait Read: Kind {
    type Value;
    /// `None`, with a problem recorded, for an invalid value.
    fn read(&self, v: &Value) -> Option<Self::Value>;
    /// The value if the key is missing.
    fn usual(usual: Self::Usual) -> Self::Value;
}

impl<N: TryFrom<u64> + Into<u64> + Copy + std::fmt::Display> Read for Integer<N> {
    type Value = N;

    fn read(&self, v: &Value) -> Option<N> {
        let n = v.integer(self.least.into()..=self.most.into(), self.unit)?;
        N::try_from(n).ok()
    }

    fn usual(usual: N) -> N {
        usual
    }
}

impl Read for Share {
    type Value = u32;

    fn read(&self, v: &Value) -> Option<u32> {
        let allowed = self.describe();
        let ppm = (v.number(&allowed)? * 1e6).round();
        if !(f64::from(self.least_ppm)..=1e6).contains(&ppm) {
            v.problem("out of range", allowed);
            return None;
        }
        Some(ppm as u32)
    }

    fn usual(usual: u32) -> u32 {
        usual
    }
}

impl Read for Flag {
    type Value = bool;

    fn read(&self, v: &Value) -> Option<bool> {
        v.bool()
    }

    fn usual(usual: bool) -> bool {
        usual
    }
}

impl<T: Named> Read for Word<T> {
    type Value = T;

    fn read(&self, v: &Value) -> Option<T> {
        v.choice(&T::choices())
    }

    fn usual(usual: T) -> T {
        usual
    }
}

impl Read for Name {
    type Value = String;

    fn read(&self, v: &Value) -> Option<String> {
        let allowed = self.describe();
        let s = v.str(&allowed)?;
        if !is_name(s) {
            v.problem(format!("{s:?} cannot be a name"), allowed);
            return None;
        }
        Some(s.to_string())
    }

    fn usual(usual: &'static str) -> String {
        usual.to_string()
    }
}

impl<K: Read> Read for List<K>
where
    K::Value: PartialEq + Debug,
{
    type Value = Vec<K::Value>;

    fn read(&self, v: &Value) -> Option<Vec<K::Value>> {
        read_list(v, self, |v| self.each.read(v))
    }

    fn usual(_: &'static str) -> Vec<K::Value> {
        Vec::new()
    }
}

impl<K: Read> Read for Maybe<K> {
    type Value = Option<K::Value>;

    fn read(&self, v: &Value) -> Option<Option<K::Value>> {
        self.0.read(v).map(Some)
    }

    fn usual(_: &'static str) -> Option<K::Value> {
        None
    }
}

/// A list of values, each read by `read`.
pub(crate) fn read_list<K: Kind, T: PartialEq + Debug>(
    v: &Value,
    list: &List<K>,
    read: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<T>> {
    let all = v.array(&list.describe())?;
    if all.is_empty() {
        v.problem("empty", format!("at least one of {}", list.of()));
    }
    let read: Vec<T> =
        all.iter().map(read).collect::<Vec<_>>().into_iter().collect::<Option<_>>()?;
    no_doubles(v, &read);
    Some(read)
}

/// A name that must be that of its file.
pub(crate) fn read_own_name(v: &Value, file_name: &str) -> Option<String> {
    let s = v.str("a string")?;
    if s != file_name {
        v.problem(format!("{s:?} is not the file's name"), format!("{file_name:?}"));
    }
    Some(s.to_string())
}

/// Reads the declared keys of a table.
pub(crate) trait OfKeys<'r, 't> {
    /// Records every key that the table does not declare.
    fn only_of<Of>(&self, table: &key::Table<Of>);

    /// The value of the key, if present.
    fn at<Of, K: Kind>(&self, key: &Key<Of, K>) -> Option<Value<'r, 't>>;

    /// The same for a required key: a missing one is a problem.
    fn needed<Of, K: Kind>(&self, key: &Key<Of, K>) -> Option<Value<'r, 't>>;

    /// The key's value, or its default; `None` if it is invalid, or missing and required.
    fn read<Of, K: Read>(&self, key: &Key<Of, K>) -> Option<K::Value>;

    /// The same where something else is so without the key.
    fn read_or<Of, K: Read>(&self, key: &Key<Of, K>, usual: K::Value) -> Option<K::Value>;
}

impl<'r, 't> OfKeys<'r, 't> for Table<'r, 't> {
    fn only_of<Of>(&self, table: &key::Table<Of>) {
        self.only(&table.names());
    }

    fn at<Of, K: Kind>(&self, key: &Key<Of, K>) -> Option<Value<'r, 't>> {
        self.get(key.name)
    }

    fn needed<Of, K: Kind>(&self, key: &Key<Of, K>) -> Option<Value<'r, 't>> {
        match key.usual {
            Usual::Needed(form) => self.need(key.name, form),
            Usual::Is(_) => self.get(key.name),
        }
    }

    fn read<Of, K: Read>(&self, key: &Key<Of, K>) -> Option<K::Value> {
        match (self.get(key.name), key.usual) {
            (Some(v), _) => key.takes.read(&v),
            (None, Usual::Is(usual)) => Some(K::usual(usual)),
            (None, Usual::Needed(form)) => {
                self.need(key.name, form);
                None
            }
        }
    }

    fn read_or<Of, K: Read>(&self, key: &Key<Of, K>, usual: K::Value) -> Option<K::Value> {
        match self.get(key.name) {
            Some(v) => key.takes.read(&v),
            None => Some(usual),
        }
    }
}

/// A value whose fields are all read, so that every problem is recorded. Returns `None` from the
/// function if one has no value.
macro_rules! read_all {
    ($of:ident { $($field:ident: $value:expr),+ $(,)? }) => {{
        let ($($field,)+) = ($($value,)+);
        Some($of { $($field: $field?),+ })
    }};
}
pub(crate) use read_all;

/// A table that may be left out, with all its keys.
pub(crate) fn optional<'r, 't, Of>(
    v: Option<Value<'r, 't>>,
    table: &key::Table<Of>,
    form: &str,
) -> Option<Option<Table<'r, 't>>> {
    let Some(v) = v else { return Some(None) };
    let t = v.table(form)?;
    t.only_of(table);
    Some(Some(t))
}

/// [`OfKeys::read`] in a table that may be left out.
pub(crate) fn read_in<Of, K: Read>(t: &Option<Table>, key: &Key<Of, K>) -> Option<K::Value> {
    match (t, key.usual) {
        (Some(t), _) => t.read(key),
        (None, Usual::Is(usual)) => Some(K::usual(usual)),
        (None, Usual::Needed(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::profile::parse_profile;
    use crate::parse::scenario::parse_scenario;
    use crate::schema::key::Table;
    use crate::schema::keys::{arm, host, lock, profile, scenario, vm, window};
    use unspin_text::Problems;

    /// Each key of the table is read: a date, which none takes, is a problem of that key. The table is
    /// at `path`; `problems` says what is wrong where the key is so.
    fn all_are_read<Of>(table: &Table<Of>, path: &str, problems: impl Fn(&str) -> Problems) {
        assert!(!table.names().is_empty());
        for name in table.names() {
            let problems = problems(&format!("{name} = 1979-05-27"));
            let key = format!("{path}{name}");
            let all = || problems.0.iter().filter(|p| p.key == key);
            assert!(all().any(|p| p.message != "unknown key"), "{key} is not read: {problems}");
        }
    }

    #[test]
    fn every_declared_key_of_scenarios_is_read() {
        fn of(before: &str, key: &str, after: &str) -> Problems {
            let text = format!("{before}{key}{after}");
            parse_scenario("x.toml", "x", &text).unwrap_err()
        }
        all_are_read(&scenario::SCENARIO, "", |key| of("", key, ""));
        all_are_read(&host::HOST, "host.", |key| of("[host]\n", key, ""));
        all_are_read(&vm::VM, "vm[0].", |key| of("[[vm]]\n", key, ""));
        all_are_read(&scenario::CASE_TABLE, "case[0].", |key| of("[[case]]\n", key, ""));
        all_are_read(&scenario::SWEEP, "sweep.", |key| of("[sweep]\n", key, ""));
        all_are_read(&scenario::MEASURE, "measure.", |key| of("[measure]\n", key, ""));
        all_are_read(&scenario::TRACE, "trace.", |key| of("[trace]\n", key, ""));
        // The others are read once the arm has a name.
        let arm = "[[arm]]\nname = \"a\"\n";
        all_are_read(&arm::ARM, "arm[0].", |key| match key.starts_with("name") {
            true => of("[[arm]]\n", key, ""),
            false => of(arm, key, ""),
        });
        let window = format!("{arm}window = {{ ");
        all_are_read(&window::WINDOW, "arm[0].window.", |key| of(&window, key, " }"));
        let adapted = format!("{window}aple = {{ ");
        all_are_read(&window::ADAPTED, "arm[0].window.aple.", |key| of(&adapted, key, " } }"));
        let asym = format!("{arm}asym = {{ ");
        all_are_read(&arm::ASYM_PARTS, "arm[0].asym.", |key| of(&asym, key, " }"));
        let lock = format!("{arm}lock = {{ preemptable = {{ ");
        all_are_read(&lock::LOCK, "arm[0].lock.preemptable.", |key| of(&lock, key, " } }"));
        let lock = format!("{arm}lock = {{ pv-ticket = {{ ");
        all_are_read(&lock::PV_TICKET, "arm[0].lock.pv-ticket.", |key| of(&lock, key, " } }"));
    }

    #[test]
    fn every_declared_key_of_profiles_is_read() {
        fn of(text: &str) -> Problems {
            parse_profile("x.toml", "x", text).unwrap_err()
        }
        all_are_read(&profile::PROFILE, "", of);
        all_are_read(&profile::RECORD, "calibration.", |key| of(&format!("[calibration]\n{key}")));
        all_are_read(&profile::STEP, "step[0].", |key| match key.starts_with("op") {
            true => of(&format!("[[step]]\n{key}")),
            false => of(&format!("[[step]]\nop = \"barrier\"\n{key}")),
        });
        all_are_read(&profile::DRAWN, "step[0].iterations.", |key| {
            let mean = if key.starts_with("max") { "exp_mean = 5, " } else { "" };
            of(&format!("[[step]]\nop = \"compute\"\niterations = {{ {mean}{key} }}"))
        });
    }
}
