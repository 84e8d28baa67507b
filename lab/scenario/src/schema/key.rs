// SPDX-License-Identifier: MIT OR Apache-2.0
//! Declarations of keys: their values, their defaults, the machines that support them, and their
//! meaning. The code that reads keys, its errors, the refusals of machines and the reference are
//! derived from them.

use crate::schema::names::Named;
use std::fmt::Display;
use std::marker::PhantomData;
use unspin_text::names::quoted;

/// The values that a key takes.
pub(crate) trait Kind: Copy {
    /// The default.
    type Usual: Copy;
    /// The allowed values, for errors and for the reference.
    fn describe(&self) -> String;
    /// The default, for people.
    fn show(&self, usual: Self::Usual) -> String;
}

/// An integer; the unit with a space before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Integer<N> {
    pub least: N,
    pub most: N,
    pub unit: &'static str,
}

impl<N: Copy + Display> Kind for Integer<N> {
    type Usual = N;

    fn describe(&self) -> String {
        format!("an integer from {} to {}{}", self.least, self.most, self.unit)
    }

    fn show(&self, usual: N) -> String {
        format!("`{usual}`")
    }
}

/// A share of a whole, which becomes millionths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub least_ppm: u32,
}

impl Kind for Share {
    type Usual = u32;

    fn describe(&self) -> String {
        format!("a share from {} to 1", f64::from(self.least_ppm) / 1e6)
    }

    fn show(&self, usual: u32) -> String {
        format!("`{}`", f64::from(usual) / 1e6)
    }
}

/// `true` or `false`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag;

impl Kind for Flag {
    type Usual = bool;

    fn describe(&self) -> String {
        "true or false".to_string()
    }

    fn show(&self, usual: bool) -> String {
        format!("`{usual}`")
    }
}

/// One of some words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<T>(pub PhantomData<T>);

impl<T: Named> Kind for Word<T> {
    type Usual = T;

    fn describe(&self) -> String {
        let names: Vec<&str> = T::choices().iter().map(|(name, _)| *name).collect();
        quoted(&names)
    }

    fn show(&self, usual: T) -> String {
        format!("`{:?}`", usual.called())
    }
}

/// A name of an arm, a VM or a profile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name;

impl Kind for Name {
    type Usual = &'static str;

    fn describe(&self) -> String {
        "a name of small letters, digits, - and _".to_string()
    }

    fn show(&self, usual: &'static str) -> String {
        usual.to_string()
    }
}

/// A list that is not empty and has no value twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<K> {
    /// The contents of the table; empty: each is described.
    pub of: &'static str,
    pub each: K,
}

impl<K: Kind> List<K> {
    pub(crate) fn of(&self) -> String {
        match self.of {
            "" => self.each.describe(),
            of => of.to_string(),
        }
    }
}

impl<K: Kind> Kind for List<K> {
    type Usual = &'static str;

    fn describe(&self) -> String {
        format!("a list of {}", self.of())
    }

    fn show(&self, usual: &'static str) -> String {
        usual.to_string()
    }
}

/// A value with its own form and its own reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form(pub &'static str);

impl Kind for Form {
    type Usual = &'static str;

    fn describe(&self) -> String {
        self.0.to_string()
    }

    fn show(&self, usual: &'static str) -> String {
        usual.to_string()
    }
}

/// An optional key whose default cannot be written, and is described instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maybe<K>(pub K);

impl<K: Kind> Kind for Maybe<K> {
    type Usual = &'static str;

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn show(&self, usual: &'static str) -> String {
        usual.to_string()
    }
}

/// The meaning of a missing key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Usual<U> {
    /// The key is required; errors say what to write.
    Needed(&'static str),
    Is(U),
}

/// The machines that support a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machines {
    All,
    /// Only the model.
    Sim,
    /// Machines with a hypervisor, or a model of one.
    Hypervisors,
    /// Machines with the module itself, whose tracepoints are read.
    Module,
}

impl Machines {
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Machines::All => &["kvm", "emulated", "sim", "threads"],
            Machines::Sim => &["sim"],
            Machines::Hypervisors => &["kvm", "emulated", "sim"],
            Machines::Module => &["kvm", "emulated"],
        }
    }
}

/// A key of a table that becomes an `Of`.
pub(crate) struct Key<Of, K: Kind> {
    pub name: &'static str,
    pub takes: K,
    pub usual: Usual<K::Usual>,
    pub help: &'static str,
    pub machines: Machines,
    /// Whether the table requires `machines`; `None`: machines decide by their plans.
    pub asks: Option<fn(&Of) -> bool>,
}

impl<Of, K: Kind> Clone for Key<Of, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Of, K: Kind> Copy for Key<Of, K> {}

impl<Of, K: Kind> Key<Of, K> {
    pub(crate) const fn new(name: &'static str, takes: K) -> Self {
        let (usual, machines) = (Usual::Needed(""), Machines::All);
        Key { name, takes, usual, help: "", machines, asks: None }
    }

    pub(crate) const fn needed(self, form: &'static str) -> Self {
        Key { usual: Usual::Needed(form), ..self }
    }

    pub(crate) const fn usually(self, usual: K::Usual) -> Self {
        Key { usual: Usual::Is(usual), ..self }
    }

    pub(crate) const fn help(self, help: &'static str) -> Self {
        Key { help, ..self }
    }

    /// Only these machines support it. They check this in their plans.
    pub(crate) const fn on(self, machines: Machines) -> Self {
        Key { machines, ..self }
    }

    /// Only these machines support it; others refuse a table that contains it.
    pub(crate) const fn only_on(self, machines: Machines, asks: fn(&Of) -> bool) -> Self {
        Key { machines, asks: Some(asks), ..self }
    }
}

pub(crate) const fn integer<N>(least: N, most: N, unit: &'static str) -> Integer<N>
where
    N: Copy,
{
    Integer { least, most, unit }
}

pub(crate) const fn word<T: Named>() -> Word<T> {
    Word(PhantomData)
}

pub(crate) const fn list<K: Kind>(of: &'static str, each: K) -> List<K> {
    List { of, each }
}

/// A key in the reference.
#[derive(Debug)]
pub(crate) struct Row {
    pub name: &'static str,
    pub takes: String,
    /// `None`: it is required.
    pub usual: Option<String>,
    pub machines: Machines,
    pub help: &'static str,
}

/// A key with any kind of value.
pub(crate) trait Declared<Of> {
    fn name(&self) -> &'static str;
    fn row(&self) -> Row;
    /// Whether `of` requires something that `machine` does not support.
    fn is_refused(&self, of: &Of, machine: &str) -> bool;
}

impl<Of, K: Kind> Declared<Of> for Key<Of, K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row(&self) -> Row {
        let usual = match self.usual {
            Usual::Needed(_) => None,
            Usual::Is(usual) => Some(self.takes.show(usual)),
        };
        let (name, machines, help) = (self.name, self.machines, self.help);
        Row { name, takes: self.takes.describe(), usual, machines, help }
    }

    fn is_refused(&self, of: &Of, machine: &str) -> bool {
        self.asks.is_some_and(|asks| !self.machines.names().contains(&machine) && asks(of))
    }
}

/// A table of a file, with all its keys.
pub(crate) struct Table<Of: 'static> {
    /// The heading as written.
    pub heading: &'static str,
    pub about: &'static str,
    pub keys: &'static [&'static dyn Declared<Of>],
}

impl<Of> Table<Of> {
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name()).collect()
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.keys.iter().map(|key| key.row()).collect()
    }
}

/// `table! { TABLE: Of = "[heading]", "what it is"; KEY: Kind = "key", kind => .needed("…")…; … }`:
/// the keys, and the table of all of them.
macro_rules! table {
    ($TABLE:ident: $Of:ty = $heading:expr, $about:expr; $(
        $KEY:ident: $K:ty = $name:expr, $takes:expr => $(.$said:ident($($what:expr),+))+;
    )+) => {
        $(pub(crate) const $KEY: $crate::schema::key::Key<$Of, $K> =
            $crate::schema::key::Key::<$Of, $K>::new($name, $takes)$(.$said($($what),+))+;)+
        pub(crate) const $TABLE: $crate::schema::key::Table<$Of> = $crate::schema::key::Table {
            heading: $heading,
            about: $about,
            keys: &[$(&$KEY),+],
        };
    };
}
pub(crate) use table;
