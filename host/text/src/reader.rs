// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads typed values out of TOML and remembers everything that was wrong, with its place.

use crate::names::{nearest, quoted};
use crate::problem::{Problem, Problems};
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// A file being read and the problems found in it so far.
pub struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Reader<'t> {
    pub fn new(file: &'t str, text: &'t str) -> Self {
        Reader { file, text, problems: RefCell::new(Vec::new()) }
    }

    /// The file's top table; syntax errors are noted as problems.
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
        let (line, column) = line_column(self.text, span.start);
        let problem = Problem {
            file: self.file.to_string(),
            line,
            column,
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

    /// `value` if nothing was wrong, else every problem in the order of the file.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(at, _)| *at);
        match value {
            Some(v) if problems.is_empty() => Ok(v),
            _ => Err(Problems(problems.into_iter().map(|(_, p)| p).collect())),
        }
    }
}

/// A request of a file that cannot be met, placed at its `key` (dotted and counted, as `host.pcpus` or
/// `arm[1].window`).
pub fn problem_at(file: &str, text: &str, key: &str, message: &str, allowed: &str) -> Problems {
    let reader = Reader::new(file, text);
    {
        let doc = reader.parse();
        match Table::top(&reader, &doc).along(key) {
            Some(value) => value.problem(message, allowed),
            None => reader.problem(0..0, key, message, allowed, None),
        }
    }
    Problems(reader.problems.into_inner().into_iter().map(|(_, problem)| problem).collect())
}

fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// A value and the way to it.
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

    fn wrong_type(&self, allowed: &str) {
        self.problem(format!("{} is not allowed here", self.describe()), allowed);
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
        let s = self.value.as_str();
        if s.is_none() {
            self.wrong_type(allowed);
        }
        s
    }

    pub fn bool(&self) -> Option<bool> {
        let b = self.value.as_bool();
        if b.is_none() {
            self.wrong_type("true or false");
        }
        b
    }

    /// An integer within `range`; `unit` is named in the error.
    pub fn integer(&self, range: RangeInclusive<u64>, unit: &str) -> Option<u64> {
        let allowed = format!("an integer from {} to {}{}", range.start(), range.end(), unit);
        let DeValue::Integer(i) = self.value else {
            self.wrong_type(&allowed);
            return None;
        };
        let n = i128::from_str_radix(&i.as_str().replace('_', ""), i.radix()).ok();
        match n.and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n)) {
            Some(n) => Some(n),
            None => {
                self.problem(format!("{i} is out of range"), allowed);
                None
            }
        }
    }

    /// The same of smaller integers.
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
        if n.is_none() {
            self.wrong_type(allowed);
        }
        n
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

    /// A word or a whole number, as the text that stands for it in a file of one value.
    pub fn setting(&self, allowed: &str) -> Option<String> {
        match self.value {
            DeValue::String(s) => Some(s.to_string()),
            DeValue::Integer(i) if i.radix() == 10 => Some(i.as_str().replace('_', "")),
            _ => {
                self.wrong_type(allowed);
                None
            }
        }
    }

    /// Where it stands in the file's text, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub fn is_integer(&self) -> bool {
        matches!(self.value, DeValue::Integer(_))
    }

    pub fn is_str(&self) -> bool {
        self.value.is_str()
    }

    /// The string it is, if it is one; another type is no problem here.
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
        let DeValue::Array(a) = self.value else {
            self.wrong_type(allowed);
            return None;
        };
        Some(
            a.iter()
                .enumerate()
                .map(|(i, v)| Value {
                    reader: self.reader,
                    path: format!("{}[{i}]", self.path),
                    span: v.span(),
                    value: v.get_ref(),
                })
                .collect(),
        )
    }

    pub fn table(&self, allowed: &str) -> Option<Table<'r, 't>> {
        let DeValue::Table(t) = self.value else {
            self.wrong_type(allowed);
            return None;
        };
        Some(Table {
            reader: self.reader,
            path: self.path.clone(),
            span: self.span.clone(),
            table: t,
        })
    }
}

/// A table and the way to it.
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
        if self.path.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Notes every key that is not among `known`.
    pub fn only(&self, known: &[&str]) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                self.reader.problem(
                    key.span(),
                    self.path_of(name),
                    "unknown key",
                    known.join(", "),
                    nearest(name, known.iter().copied()),
                );
            }
        }
    }

    pub fn keys(&self) -> Vec<&'r str> {
        self.table.keys().map(|k| k.get_ref().as_ref()).collect()
    }

    pub fn get(&self, key: &str) -> Option<Value<'r, 't>> {
        let (_, v) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some(Value {
            reader: self.reader,
            path: self.path_of(key),
            span: v.span(),
            value: v.get_ref(),
        })
    }

    /// The value at `path`, which goes on through tables and lists.
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

/// The value read, or the default where the key is absent; `None` only for a wrong value.
pub fn or<'r, 't, T>(
    v: Option<Value<'r, 't>>,
    default: T,
    read: impl FnOnce(Value<'r, 't>) -> Option<T>,
) -> Option<T> {
    match v {
        Some(v) => read(v),
        None => Some(default),
    }
}

pub fn no_doubles<T: PartialEq + std::fmt::Debug>(v: &Value, all: &[T]) {
    for (i, x) in all.iter().enumerate() {
        if all[..i].contains(x) {
            v.problem(format!("{x:?} is listed twice"), "each once");
        }
    }
}
