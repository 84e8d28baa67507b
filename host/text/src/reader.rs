// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads typed values from TOML, and collects all errors with their places.

use crate::names::{nearest, quoted};
use crate::problem::{Problem, Problems};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// A file and the problems found in it so far.
pub struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Reader<'t> {
    pub fn new(file: &'t str, text: &'t str) -> Self {
        Reader { file, text, problems: RefCell::new(Vec::new()) }
    }

    /// The file's top table. Syntax errors are recorded as problems.
    pub fn parse(&self) -> Spanned<DeTable<'t>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for e in errors {
            let span = e.span().unwrap_or(0..0);
            let mut message = e.message().trim().replace('\n', "; ");
            if message == "duplicate key" {
                let key = self.text.get(span.clone()).unwrap_or_default();
                message += &format!(" {:?}", key.trim_matches(['"', '\'']));
            }
            self.problem(span, "", format!("not TOML: {message}"), "", None);
        }
        table
    }

    pub fn problem(
        &self,
        span: Range<usize>,
        key: impl Into<String>,
        message: impl Into<String>,
        allowed: impl Into<String>,
        suggestion: Option<&str>,
    ) {
        let problem = Problem {
            file: self.file.to_string(),
            // Lines are counted at the end, in one pass through the file.
            line: 0,
            column: 0,
            key: key.into(),
            message: message.into(),
            allowed: allowed.into(),
            suggestion: suggestion.map(str::to_string),
        };
        self.problems.borrow_mut().push((span.start, problem));
    }

    pub fn is_clean(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// `value` if there was no problem, otherwise all problems in the order of the file.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(v) if self.is_clean() => Ok(v),
            _ => Err(self.problems()),
        }
    }

    /// All problems in the order of the file, each once.
    pub(crate) fn problems(self) -> Problems {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(at, _)| *at);
        problems.dedup();
        let mut place = Place { text: self.text, at: 0, line: 1, column: 1 };
        for (at, problem) in &mut problems {
            place.go_on_to(*at);
            (problem.line, problem.column) = (place.line, place.column);
        }
        Problems(problems.into_iter().map(|(_, p)| p).collect())
    }
}

/// A valid request in a file that cannot be met, placed at its `key` (dotted, with indices, such as
/// `host.pcpus` or `arm[1].window`).
pub fn problem_at(file: &str, text: &str, key: &str, message: &str, allowed: &str) -> Problems {
    let reader = Reader::new(file, text);
    {
        let doc = reader.parse();
        match Table::top(&reader, &doc).along(key) {
            Some(value) => value.problem(message, allowed),
            None => reader.problem(0..0, key, message, allowed, None),
        }
    }
    reader.problems()
}

/// A position in a text, counted from 1, in characters.
struct Place<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    column: usize,
}

impl Place<'_> {
    /// Advances to `offset`, or to the beginning of the character there.
    fn go_on_to(&mut self, offset: usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let Some(between) = self.text.get(self.at..end) else { return };
        self.at = end;
        self.line += between.matches('\n').count();
        match between.rsplit_once('\n') {
            Some((_, last)) => self.column = last.chars().count() + 1,
            None => self.column += between.chars().count(),
        }
    }
}

/// A value and its path.
#[derive(Clone)]
pub struct Value<'r, 't> {
    reader: &'r Reader<'t>,
    pub path: String,
    span: Range<usize>,
    value: &'r DeValue<'t>,
}

impl<'r, 't> Value<'r, 't> {
    pub fn problem(&self, message: impl Into<String>, allowed: impl Into<String>) {
        self.reader.problem(self.span.clone(), &self.path, message, allowed, None);
    }

    /// What was found in it. `None` is a problem: it has another type.
    fn of_type<T>(&self, found: Option<T>, allowed: &str) -> Option<T> {
        if found.is_none() {
            self.problem(format!("{} is not allowed here", self.describe()), allowed);
        }
        found
    }

    fn describe(&self) -> String {
        match self.value {
            DeValue::String(s) => format!("the string {s:?}"),
            DeValue::Integer(i) => format!("the integer {i}"),
            DeValue::Float(x) => format!("the fraction {x}"),
            DeValue::Boolean(b) => format!("{b}"),
            DeValue::Datetime(_) => "a date".to_string(),
            DeValue::Array(_) => "a list".to_string(),
            DeValue::Table(_) => "a table".to_string(),
        }
    }

    pub fn str(&self, allowed: &str) -> Option<&'r str> {
        self.of_type(self.value.as_str(), allowed)
    }

    pub fn bool(&self) -> Option<bool> {
        self.of_type(self.value.as_bool(), "true or false")
    }

    /// An integer within `range`; the error contains `unit`.
    pub fn integer(&self, range: RangeInclusive<u64>, unit: &str) -> Option<u64> {
        let allowed = format!("an integer from {} to {}{}", range.start(), range.end(), unit);
        let i = self.of_type(self.value.as_integer(), &allowed)?;
        let n = i128::from_str_radix(&i.as_str().replace('_', ""), i.radix()).ok();
        let n = n.and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n));
        if n.is_none() {
            self.problem(format!("{i} is out of range"), allowed);
        }
        n
    }

    /// The same for u32.
    pub fn u32(&self, range: RangeInclusive<u32>, unit: &str) -> Option<u32> {
        let n = self.integer(u64::from(*range.start())..=u64::from(*range.end()), unit)?;
        u32::try_from(n).ok()
    }

    /// An integer or a fraction.
    pub fn number(&self, allowed: &str) -> Option<f64> {
        let n = match self.value {
            DeValue::Integer(i) => i.as_str().parse().ok(),
            DeValue::Float(x) => x.as_str().parse().ok(),
            _ => None,
        };
        self.of_type(n, allowed)
    }

    pub fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(n, _)| *n).collect();
        let allowed = quoted(&names);
        let s = self.str(&allowed)?;
        let found = choices.iter().find(|(n, _)| *n == s).map(|(_, v)| v.clone());
        if found.is_none() {
            let near = nearest(s, names.iter().copied());
            let message = format!("{s:?} is not known");
            self.reader.problem(self.span.clone(), &self.path, message, allowed, near);
        }
        found
    }

    /// A word or an integer, as the text for a file with one value.
    pub fn setting(&self, allowed: &str) -> Option<String> {
        let text = match self.value {
            DeValue::String(s) => Some(s.to_string()),
            DeValue::Integer(i) if i.radix() == 10 => Some(i.as_str().replace('_', "")),
            _ => None,
        };
        self.of_type(text, allowed)
    }

    /// Its position in the file's text, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub fn is_integer(&self) -> bool {
        matches!(self.value, DeValue::Integer(_))
    }

    pub fn is_str(&self) -> bool {
        self.value.is_str()
    }

    /// Its string, if it is one. Another type is not recorded as a problem.
    pub fn as_str(&self) -> Option<&'r str> {
        self.value.as_str()
    }

    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub fn is_array(&self) -> bool {
        self.value.is_array()
    }

    pub fn array(&self, allowed: &str) -> Option<Vec<Value<'r, 't>>> {
        let all = self.of_type(self.value.as_array(), allowed)?;
        let value = |(i, v): (usize, &'r Spanned<DeValue<'t>>)| Value {
            reader: self.reader,
            path: format!("{}[{i}]", self.path),
            span: v.span(),
            value: v.get_ref(),
        };
        Some(all.iter().enumerate().map(value).collect())
    }

    pub fn table(&self, allowed: &str) -> Option<Table<'r, 't>> {
        let table = self.of_type(self.value.as_table(), allowed)?;
        let (path, span) = (self.path.clone(), self.span.clone());
        Some(Table { reader: self.reader, path, span, table })
    }
}

/// A table and its path.
pub struct Table<'r, 't> {
    reader: &'r Reader<'t>,
    path: String,
    span: Range<usize>,
    table: &'r DeTable<'t>,
}

impl<'r, 't> Table<'r, 't> {
    pub fn top(reader: &'r Reader<'t>, table: &'r Spanned<DeTable<'t>>) -> Self {
        Table { reader, path: String::new(), span: 0..0, table: table.get_ref() }
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_string(),
            path => format!("{path}.{key}"),
        }
    }

    /// Records every key that is not in `known`.
    pub fn only(&self, known: &[&str]) {
        let allowed = known.join(", ");
        let unknown = self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        for key in unknown {
            let name = key.get_ref().as_ref();
            // Only a few are printed.
            let is_first = self.reader.problems.borrow().len() < 100;
            let near = is_first.then(|| nearest(name, known.iter().copied())).flatten();
            self.reader.problem(key.span(), self.path_of(name), "unknown key", &allowed, near);
        }
    }

    pub fn values(&self) -> impl Iterator<Item = Value<'r, 't>> + '_ {
        self.table.iter().map(|(key, v)| self.value(key.get_ref(), v))
    }

    fn value(&self, key: &str, v: &'r Spanned<DeValue<'t>>) -> Value<'r, 't> {
        Value { reader: self.reader, path: self.path_of(key), span: v.span(), value: v.get_ref() }
    }

    pub fn keys(&self) -> Vec<&'r str> {
        self.table.keys().map(|k| k.get_ref().as_ref()).collect()
    }

    pub fn get(&self, key: &str) -> Option<Value<'r, 't>> {
        let (_, v) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some(self.value(key, v))
    }

    /// The value at `path`, through tables and lists.
    fn along(&self, path: &str) -> Option<Value<'r, 't>> {
        let (here, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
        let (key, index) = here.split_once('[').map_or((here, None), |(key, i)| (key, Some(i)));
        let mut value = self.get(key)?;
        if let Some(index) = index {
            let index: usize = index.trim_end_matches(']').parse().ok()?;
            value = value.is_array().then(|| value.array(""))??.into_iter().nth(index)?;
        }
        match rest {
            Some(rest) => value.is_table().then(|| value.table(""))??.along(rest),
            None => Some(value),
        }
    }

    pub fn need(&self, key: &str, allowed: &str) -> Option<Value<'r, 't>> {
        let v = self.get(key);
        if v.is_none() {
            let message = "missing";
            self.reader.problem(self.span.clone(), self.path_of(key), message, allowed, None);
        }
        v
    }
}

/// The value, or the default if the key is missing; `None` only for an invalid value.
pub fn or<'r, 't, T>(
    v: Option<Value<'r, 't>>,
    default: T,
    read: impl FnOnce(Value<'r, 't>) -> Option<T>,
) -> Option<T> {
    v.map_or(Some(default), read)
}

/// Records duplicate values.
pub fn no_doubles<T: std::fmt::Debug>(v: &Value, all: &[T]) {
    let mut seen = HashSet::new();
    for x in all.iter().map(|x| format!("{x:?}")) {
        if seen.contains(&x) {
            v.problem(format!("{x} is listed twice"), "each once");
        }
        seen.insert(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_placed_in_characters() {
        let text = "a = 1\nä = 2 ; ö\n";
        let reader = Reader::new("x.toml", text);
        for at in [0, 6, 13, text.len(), 4, 6] {
            reader.problem(at..at, "k", "m", "", None);
        }
        let at = |p: &Problem| (p.line, p.column);
        let places: Vec<_> = reader.problems().0.iter().map(at).collect();
        assert_eq!(places, [(1, 1), (1, 5), (2, 1), (2, 7), (3, 1)]);
    }

    /// The time is proportional to the file's length; quadratic time would not end here.
    #[test]
    fn a_million_problems_and_a_key_of_megabytes_are_told_at_once() {
        let keys: String = (0..300_000).map(|i| format!("k{i} = 1\n")).collect();
        let long = format!("{} = 1\n", "x".repeat(5 << 20));
        for text in [keys, long] {
            let reader = Reader::new("x.toml", &text);
            let doc = reader.parse();
            Table::top(&reader, &doc).only(&["title", "seed"]);
            no_doubles(&value_of(&reader, &doc), &(0..300_000).collect::<Vec<u32>>());
            let said = reader.finish(None::<()>).unwrap_err().to_string();
            assert!(said.len() < 10_000 && said.contains("unknown key"), "{}", said.len());
        }
    }

    fn value_of<'r, 't>(reader: &'r Reader<'t>, doc: &'r Spanned<DeTable<'t>>) -> Value<'r, 't> {
        Table::top(reader, doc).values().next().unwrap()
    }
}
