// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library of `core/locks/interpose`, which is embedded in this program: stores it in a file for
//! `LD_PRELOAD`.

use crate::program::is_mounted;
use anyhow::{bail, Context};
use std::fs::{self, File};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use unspin_host::euid;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libunspin-locks.so"));

/// Names of the library's locks.
pub fn locks() -> impl Iterator<Item = &'static str> {
    env!("UNSPIN_RUN_LOCKS").split(' ')
}

/// Locks that are too large for a spin lock.
pub const MUTEX_ONLY: [&str; 1] = ["lease"];

/// Locks that `UNSPIN_TAU_NS` changes.
pub const WITH_TAU: [&str; 2] = ["preemptable", "pv_preemptable"];

/// A path of the library for `LD_PRELOAD`: in the user's cache, where it stays for processes that the
/// program starts; without a cache, in memory, which exists while a program keeps its descriptors
/// open.
pub fn library() -> anyhow::Result<PathBuf> {
    match cache_dir().context("no cache directory").and_then(|dir| store(&dir)) {
        Ok(path) => Ok(path),
        Err(why) => in_memory().with_context(|| format!("{why:#}")),
    }
}

/// root's directory is readable for the users as which root starts programs.
fn cache_dir() -> Option<PathBuf> {
    if euid() == 0 {
        return Some(PathBuf::from("/var/cache/unspin"));
    }
    let dir = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|d| d.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    dir.or_else(home).filter(|d| d.is_absolute()).map(|d| d.join("unspin"))
}

/// Stores the library in the directory unless it is there: atomically, under a name per version, and
/// only if no other user can change it.
fn store(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    LIBRARY.hash(&mut hasher);
    let path = dir.join(format!("libunspin-locks-{:016x}.so", hasher.finish()));
    if path.as_os_str().as_bytes().iter().any(|b| b" :$".contains(b)) {
        bail!("LD_PRELOAD cannot name {}", path.display());
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    if !is_only_ours(dir)? || is_mounted(dir, libc::ST_NOEXEC) {
        bail!("{} is owned or writable by another user, or mounted noexec", dir.display());
    }
    open_to_all(dir, 0o755)?;
    if fs::read(&path).is_ok_and(|stored| stored == LIBRARY) && is_only_ours(&path)? {
        open_to_all(&path, 0o644)?;
        return Ok(path);
    }
    publish(dir, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Writes the library under a name that no other process has, and then gives it its own. Processes of several
/// containers may have the same id and the same directory.
fn publish(dir: &Path, path: &Path) -> std::io::Result<()> {
    let new = dir.join(format!(".new-{:016x}", RandomState::new().build_hasher().finish()));
    let mut file = File::options().write(true).create_new(true).open(&new)?;
    let done = file
        .write_all(LIBRARY)
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&new, path));
    if done.is_err() {
        let _ = fs::remove_file(&new);
    }
    done
}

/// root starts programs as other users, which must find the library also if root's umask is 077.
fn open_to_all(path: &Path, mode: u32) -> std::io::Result<()> {
    if euid() != 0 || fs::metadata(path)?.mode() & mode == mode {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn is_only_ours(path: &Path) -> std::io::Result<bool> {
    let meta = fs::symlink_metadata(path)?;
    Ok(meta.uid() == euid() && meta.mode() & 0o022 == 0 && !meta.is_symlink())
}

/// The file stays open on purpose: the program inherits it.
fn in_memory() -> anyhow::Result<PathBuf> {
    // SAFETY: the name ends with a NUL; the descriptor is new and has no other owner.
    let fd = unsafe { libc::memfd_create(c"libunspin-locks.so".as_ptr(), 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("memfd_create of the library failed");
    }
    // SAFETY: as above.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(LIBRARY)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    std::mem::forget(file);
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_for_mutexes_only_are_those_of_eight_bytes_and_those_with_tau_use_it() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/locks");
        assert!(locks().count() >= 5);
        for lock in locks() {
            assert!(!lock.is_empty() && !lock.contains(char::is_whitespace), "{lock:?}");
            let header = fs::read_to_string(dir.join(format!("{lock}.h"))).unwrap();
            let large = header.contains(&format!("sizeof(struct unspin_{lock}_lock) == 8"));
            assert_eq!(MUTEX_ONLY.contains(&lock), large, "{lock}");
            let uses = header.contains("unspin_preemptable_default");
            assert_eq!(WITH_TAU.contains(&lock), uses, "{lock}");
        }
    }

    #[test]
    fn it_has_probes_where_their_header_is() {
        let headers = ["/usr/include/x86_64-linux-gnu/sys/sdt.h", "/usr/include/sys/sdt.h"];
        let name = b"unspin\0contended\0";
        assert_eq!(
            LIBRARY.windows(name.len()).any(|part| part == name),
            headers.iter().any(|header| Path::new(header).exists()),
        );
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let scratch = unspin_scratch::Scratch::new();
        let path = store(&scratch.join("library")).unwrap();
        let dir = path.parent().unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(store(dir).is_err(), "a directory has its name");
        let names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(names, [path]);
    }

    #[test]
    fn what_root_stores_is_for_all() {
        let scratch = unspin_scratch::Scratch::new();
        let dir = scratch.join("library");
        let path = store(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        store(&dir).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let wanted = if euid() == 0 { (0o755, 0o644) } else { (0o700, 0o600) };
        assert_eq!((mode(&dir), mode(&path)), wanted);
    }

    #[test]
    fn the_library_is_stored_once_and_made_whole_again() {
        let scratch = unspin_scratch::Scratch::new();
        let dir = scratch.join("library");
        let path = store(&dir).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        let before = fs::metadata(&path).unwrap().ino();
        assert_eq!(store(&dir).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), before, "not written again");
        fs::write(&path, b"something else").unwrap();
        assert_eq!(fs::read(store(&dir).unwrap()).unwrap(), LIBRARY);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(store(&dir).is_err(), "others could replace it");
        fs::remove_dir_all(&dir).unwrap();
        assert!(store(&dir.join("a b")).unwrap_err().to_string().contains("cannot name"));
        let memory = in_memory().unwrap();
        assert_eq!(fs::read(memory).unwrap(), LIBRARY);
    }
}
