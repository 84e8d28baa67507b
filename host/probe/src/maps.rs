// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of the programs with numeric keys.

use crate::error::Error;
use crate::layout::{bytes, from_bytes, Plain};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of reads of an entry that changes meanwhile.
const TRIES: u32 = 100;

/// A map from numbers to structures.
pub struct Table<V> {
    map: MapHandle,
    /// Its memory, if the kernel lets it be mapped. Then reads need no system call.
    mapped: Option<Mapped>,
    name: &'static str,
    value: PhantomData<V>,
}

/// The map of the programs with this name. libbpf prefixes the names of sections with the object's name.
pub fn handle(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let find = format!("find the map {name} of the BPF programs");
    let is_it = |found: &str| found == name || name.starts_with('.') && found.ends_with(name);
    let map = object.maps().find(|map| is_it(&map.name().to_string_lossy()));
    let map = map.ok_or_else(|| Error::failed(&find, "it is missing"))?;
    MapHandle::try_from(&map).map_err(|e| Error::failed(&find, e))
}

impl<V: Plain> Table<V> {
    /// The map with this name, whose values must have the size of `V`.
    pub fn of(object: &Object, name: &'static str) -> Result<Table<V>, Error> {
        Self::with(object, name, libc::PROT_READ)
    }

    /// The same for a map whose words this process also changes.
    pub fn shared(object: &Object, name: &'static str) -> Result<Table<V>, Error> {
        Self::with(object, name, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn with(object: &Object, name: &'static str, rights: i32) -> Result<Table<V>, Error> {
        let map = handle(object, name)?;
        if map.value_size() as usize != size_of::<V>() {
            let find = format!("find the map {name} of the BPF programs");
            return Err(Error::failed(find, "it belongs to another build"));
        }
        let mapped = Mapped::of(&map, rights);
        Ok(Table { map, mapped, name, value: PhantomData })
    }

    pub fn get(&self, key: u32) -> Result<Option<V>, Error> {
        if let Some(mapped) = &self.mapped {
            return Ok(mapped.get(key).and_then(|value| from_bytes(&value)));
        }
        let found = self.map.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(|e| self.failed("read", e))?;
        Ok(found.and_then(|value| from_bytes(&value)))
    }

    /// A consistent copy of an entry, as checked by `is_steady`; the last copy if it changes all the time.
    pub fn steady(&self, key: u32, is_steady: impl Fn(&V) -> bool) -> Result<Option<V>, Error> {
        let mut found = self.get(key)?;
        for _ in 0..TRIES {
            match &found {
                // The kernel also copies from first to last.
                Some(value) if !is_steady(value) => found = self.get(key)?,
                _ => break,
            }
        }
        Ok(found)
    }

    /// The word at an offset of an entry, which the programs may change at any time; `None` if the map is not
    /// mapped.
    pub fn word(&self, key: u32, place: usize) -> Option<&AtomicU64> {
        self.mapped.as_ref()?.word(key, place)
    }

    pub fn put(&self, key: u32, value: &V) -> Result<(), Error> {
        let put = self.map.update(&key.to_ne_bytes(), bytes(value), MapFlags::ANY);
        put.map_err(|e| self.failed("write", e))
    }

    /// Removes an entry; a missing one is not an error.
    pub fn remove(&self, key: u32) {
        let _ = self.map.delete(&key.to_ne_bytes());
    }

    fn failed(&self, doing: &str, cause: libbpf_rs::Error) -> Error {
        Error::failed(format!("{doing} {} of the BPF programs", self.name), cause)
    }
}

/// The memory of an array to which programs write.
struct Mapped {
    first: NonNull<AtomicU64>,
    /// In bytes: the whole length, the distance between entries, and the size of an entry, a
    /// multiple of eight.
    length: usize,
    stride: usize,
    entry: usize,
    entries: u32,
}

// SAFETY: only atomic operations on words access it, and its last owner unmaps it.
unsafe impl Send for Mapped {}

impl Mapped {
    /// `None` if it is not an array that can be mapped.
    fn of(map: &MapHandle, rights: i32) -> Option<Mapped> {
        const WORD: usize = size_of::<u64>();
        let (entry, entries) = (map.value_size() as usize, map.max_entries());
        let stride = entry.next_multiple_of(WORD);
        if map.map_type() != MapType::Array || entry % WORD != 0 {
            return None;
        }
        // SAFETY: the argument is a valid constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let length = (stride * entries as usize).next_multiple_of(page);
        let (null, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: the kernel chooses the address, and refuses maps that are not such arrays or are
        // too short.
        let at = unsafe { libc::mmap(null, length, rights, shared, map.as_fd().as_raw_fd(), 0) };
        let first = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED)?;
        Some(Mapped { first, length, stride, entry, entries })
    }

    /// The word at this byte offset of an entry.
    fn word(&self, key: u32, place: usize) -> Option<&AtomicU64> {
        if key >= self.entries || place >= self.entry {
            return None;
        }
        let index = (key as usize * self.stride + place) / size_of::<u64>();
        // SAFETY: the entry is within the mapping, which is page-aligned and lives as long as this.
        Some(unsafe { self.first.add(index).as_ref() })
    }

    /// Reads an entry word by word, in ascending order.
    fn get(&self, key: u32) -> Option<Vec<u8>> {
        let places = (key < self.entries).then(|| (0..self.entry).step_by(size_of::<u64>()))?;
        let words = places.filter_map(|place| self.word(key, place));
        Some(words.flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes()).collect())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows from it.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.length) };
    }
}
