// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of the programs, with numbers as keys.

use crate::error::Error;
use crate::layout::{bytes, from_bytes, Plain};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// An entry that is read while it changes is read again, so often at most.
const TRIES: u32 = 100;

/// A map from numbers to structures.
pub struct Table<V> {
    map: MapHandle,
    /// Its memory, where the kernel lets it be mapped: then reading takes no system call.
    mapped: Option<Mapped>,
    name: &'static str,
    value: PhantomData<V>,
}

impl<V: Plain> Table<V> {
    /// The map of that name; libbpf puts the object's name before that of a section. What the programs keep in it must be as long as `V`.
    pub fn of(object: &Object, name: &'static str) -> Result<Table<V>, Error> {
        Self::with(object, name, libc::PROT_READ)
    }

    /// The same, whose words this process changes too.
    pub fn shared(object: &Object, name: &'static str) -> Result<Table<V>, Error> {
        Self::with(object, name, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn with(object: &Object, name: &'static str, rights: i32) -> Result<Table<V>, Error> {
        let find = format!("find the map {name} of the BPF programs");
        let is_it = |found: &str| found == name || name.starts_with('.') && found.ends_with(name);
        let map = object.maps().find(|map| is_it(&map.name().to_string_lossy()));
        let map = map.ok_or_else(|| Error::failed(&find, "it is missing"))?;
        let map = MapHandle::try_from(&map).map_err(|e| Error::failed(&find, e))?;
        if map.value_size() as usize != size_of::<V>() {
            return Err(Error::failed(&find, "it belongs to another build"));
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

    /// An entry as it was at one time, which `is_steady` says; as it was read last where it changes all the time.
    pub fn steady(&self, key: u32, is_steady: impl Fn(&V) -> bool) -> Result<Option<V>, Error> {
        let mut found = self.get(key)?;
        for _ in 0..TRIES {
            match &found {
                // The kernel copies from first to last, too.
                Some(value) if !is_steady(value) => found = self.get(key)?,
                _ => break,
            }
        }
        Ok(found)
    }

    /// The word at a place of an entry, which the programs change while it is read; `None`: the map is not mapped.
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

/// The memory of an array that programs write to.
struct Mapped {
    first: NonNull<AtomicU64>,
    /// Bytes of all, from one entry to the next, and of one, which is a multiple of eight.
    length: usize,
    stride: usize,
    entry: usize,
    entries: u32,
}

// SAFETY: it is only used word by word, by atomic operations, and unmapped when its last owner drops it.
unsafe impl Send for Mapped {}

impl Mapped {
    /// `None` where it is no array that can be mapped.
    fn of(map: &MapHandle, rights: i32) -> Option<Mapped> {
        const WORD: usize = size_of::<u64>();
        let (entry, entries) = (map.value_size() as usize, map.max_entries());
        let stride = entry.next_multiple_of(WORD);
        if map.map_type() != MapType::Array || entry % WORD != 0 {
            return None;
        }
        // SAFETY: it has no arguments that could be wrong.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let length = (stride * entries as usize).next_multiple_of(page);
        let (null, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: the kernel chooses where, and refuses what is no such array or longer than it is.
        let at = unsafe { libc::mmap(null, length, rights, shared, map.as_fd().as_raw_fd(), 0) };
        let first = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED)?;
        Some(Mapped { first, length, stride, entry, entries })
    }

    /// The word that begins at this byte of an entry.
    fn word(&self, key: u32, place: usize) -> Option<&AtomicU64> {
        if key >= self.entries || place >= self.entry {
            return None;
        }
        let index = (key as usize * self.stride + place) / size_of::<u64>();
        // SAFETY: the entry lies within what is mapped, which is aligned to a page and stays as long as this.
        Some(unsafe { self.first.add(index).as_ref() })
    }

    /// Reads an entry word by word, from the first to the last.
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
