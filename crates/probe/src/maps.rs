// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of the programs, with numbers as keys.

use crate::error::Error;
use crate::layout::{bytes, from_bytes, Plain};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use std::marker::PhantomData;

/// A map from numbers to structures.
pub struct Table<V> {
    map: MapHandle,
    name: &'static str,
    value: PhantomData<V>,
}

impl<V: Plain> Table<V> {
    /// The map of that name; libbpf puts the object's name before that of a section. What the programs keep in it must be as long as `V`.
    pub fn of(object: &Object, name: &'static str) -> Result<Table<V>, Error> {
        let find = format!("find what its programs keep: {name}");
        let is_it = |found: &str| found == name || name.starts_with('.') && found.ends_with(name);
        let map = object.maps().find(|map| is_it(&map.name().to_string_lossy()));
        let map = map.ok_or_else(|| Error::failed(&find, "it is not there"))?;
        let map = MapHandle::try_from(&map).map_err(|e| Error::failed(&find, e))?;
        if map.value_size() as usize != size_of::<V>() {
            return Err(Error::failed(&find, "it is of another build"));
        }
        Ok(Table { map, name, value: PhantomData })
    }

    pub fn get(&self, key: u32) -> Result<Option<V>, Error> {
        let found = self.map.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(|e| self.failed("read", e))?;
        Ok(found.and_then(|value| from_bytes(&value)))
    }

    pub fn put(&self, key: u32, value: &V) -> Result<(), Error> {
        let put = self.map.update(&key.to_ne_bytes(), bytes(value), MapFlags::ANY);
        put.map_err(|e| self.failed("write", e))
    }

    /// Takes an entry out; one that is not there is none.
    pub fn remove(&self, key: u32) {
        let _ = self.map.delete(&key.to_ne_bytes());
    }

    fn failed(&self, doing: &str, cause: libbpf_rs::Error) -> Error {
        Error::failed(format!("{doing} {} of the BPF programs", self.name), cause)
    }
}
