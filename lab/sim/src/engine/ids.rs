// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of vCPUs, pCPUs, VMs, threads and locks, each with its own type, and tables indexed by
//! them. So a pCPU's number cannot be used as a vCPU's.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Add, Index, IndexMut, Sub};

/// A number of one kind of object.
pub trait Id: Copy {
    fn of(index: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        #[allow(dead_code)] // not every kind of number needs each
        impl $name {
            /// No number.
            pub const NONE: $name = $name(u32::MAX);

            /// `count` numbers from this one on.
            pub fn and_next(self, count: u32) -> impl DoubleEndedIterator<Item = $name> + Clone {
                (self.0..self.0 + count).map($name)
            }

            /// All numbers from this one on.
            pub fn and_all(self) -> impl Iterator<Item = $name> {
                (self.0..).map($name)
            }
        }

        impl Default for $name {
            #[inline]
            fn default() -> $name {
                $name::NONE
            }
        }

        impl Add<u32> for $name {
            type Output = $name;

            fn add(self, more: u32) -> $name {
                $name(self.0 + more)
            }
        }

        impl Sub for $name {
            type Output = u32;

            fn sub(self, first: $name) -> u32 {
                self.0 - first.0
            }
        }

        impl Id for $name {
            fn of(index: usize) -> $name {
                $name(index as u32)
            }

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A vCPU, numbered over all VMs.
    VcpuId
);
id!(
    /// A pCPU of the host.
    PcpuId
);
id!(
    /// A VM.
    VmId
);
id!(
    /// A thread of a guest, numbered over all VMs.
    ThreadId
);
id!(
    /// A spin-lock, numbered over all VMs.
    LockId
);

/// A row for each object of one kind.
#[derive(Debug, Clone)]
pub struct Table<I, T> {
    rows: Vec<T>,
    kind: PhantomData<I>,
}

impl<I: Id, T> Table<I, T> {
    pub fn with_capacity(rows: usize) -> Table<I, T> {
        Table::from(Vec::with_capacity(rows))
    }

    pub fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::of(self.rows.len() - 1)
    }

    pub fn extend(&mut self, rows: impl IntoIterator<Item = T>) {
        self.rows.extend(rows);
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Every number, in order. Borrows nothing.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + Clone + 'static
    where
        I: 'static,
    {
        (0..self.rows.len()).map(I::of)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.rows.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.rows.iter_mut()
    }

    /// Every number with its row.
    pub fn rows(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().map(|(i, row)| (I::of(i), row))
    }

    pub fn all(&self) -> &[T] {
        &self.rows
    }

    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.rows
    }

    pub fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.index())
    }

    /// `count` rows from `first` on.
    pub fn part(&self, first: I, count: u32) -> &[T] {
        &self.rows[first.index()..first.index() + count as usize]
    }

    /// Two different rows.
    pub fn both(&mut self, a: I, b: I) -> (&mut T, &mut T) {
        let (a, b) = (a.index(), b.index());
        if a < b {
            let (low, high) = self.rows.split_at_mut(b);
            (&mut low[a], &mut high[0])
        } else {
            let (low, high) = self.rows.split_at_mut(a);
            (&mut high[0], &mut low[b])
        }
    }

    /// `count` rows from `first` on.
    pub fn part_mut(&mut self, first: I, count: u32) -> &mut [T] {
        &mut self.rows[first.index()..first.index() + count as usize]
    }
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Table<I, T> {
        Table { rows: Vec::new(), kind: PhantomData }
    }
}

impl<I, T> From<Vec<T>> for Table<I, T> {
    fn from(rows: Vec<T>) -> Table<I, T> {
        Table { rows, kind: PhantomData }
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.rows[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.index()]
    }
}
