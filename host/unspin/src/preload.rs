// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library of `locks/interpose`, which is embedded in this program: stores it in a file for
//! `LD_PRELOAD`, and checks whether a program would load it.

use anyhow::{bail, Context};
use std::ffi::CString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libunspin-locks.so"));

/// Names of the library's locks.
pub fn locks() -> impl Iterator<Item = &'static str> {
    env!("UNSPIN_RUN_LOCKS").split(' ')
}

/// Locks that are too large for a spin lock.
pub const MUTEX_ONLY: [&str; 1] = ["lease"];

/// A path of the library for `LD_PRELOAD`: in the user's cache, where it stays for processes that the
/// program starts; without a cache, in memory, which exists while a program keeps its descriptors
/// open.
pub fn library() -> anyhow::Result<PathBuf> {
    match cache_dir().context("no cache directory").and_then(|dir| store(&dir)) {
        Ok(path) => Ok(path),
        Err(why) => in_memory().with_context(|| format!("{why:#}")),
    }
}

fn uid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// root's directory is readable for the users as which root starts programs.
fn cache_dir() -> Option<PathBuf> {
    if uid() == 0 {
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
    if !is_only_ours(dir)? || is_noexec(dir) {
        bail!("{} is owned or writable by another user, or mounted noexec", dir.display());
    }
    if fs::read(&path).is_ok_and(|stored| stored == LIBRARY) && is_only_ours(&path)? {
        return Ok(path);
    }
    let new = dir.join(format!(".new-{}", std::process::id()));
    fs::write(&new, LIBRARY)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&new, &path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn is_only_ours(path: &Path) -> std::io::Result<bool> {
    let meta = fs::symlink_metadata(path)?;
    Ok(meta.uid() == uid() && meta.mode() & 0o022 == 0 && !meta.is_symlink())
}

fn is_noexec(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return true };
    // SAFETY: `path` ends with a NUL, `fs` is written before it is read.
    unsafe {
        let mut fs: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut fs) == 0 && fs.f_flag & libc::ST_NOEXEC != 0
    }
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

/// The reason why a program ignores `LD_PRELOAD`.
#[derive(Debug, PartialEq, Eq)]
pub enum Ignores {
    /// It has no dynamic linker.
    Static,
    /// It runs with privileges that its caller does not have.
    Privileged,
    /// Its dynamic linker is another one (another C library or processor), and might complain.
    Foreign(String),
}

impl std::fmt::Display for Ignores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ignores::Static => f.write_str("it is statically linked"),
            Ignores::Privileged => f.write_str("it is setuid, setgid or has file capabilities"),
            Ignores::Foreign(why) => f.write_str(why),
        }
    }
}

/// Whether the program at `path` would ignore the library; for a script, whether its interpreter
/// would. A file in an unknown format is assumed to load it.
pub fn ignores(path: &Path) -> Option<Ignores> {
    let mut path = path.to_path_buf();
    for _ in 0..5 {
        let mut head = Vec::new();
        File::open(&path).ok()?.take(64 << 10).read_to_end(&mut head).ok()?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|b| *b == b'\n').next()?;
            let text = String::from_utf8_lossy(line).into_owned();
            path = PathBuf::from(text.split_whitespace().next()?);
            continue;
        }
        // The dynamic linker itself, which runs the program that its arguments name.
        if fs::canonicalize(&path).is_ok_and(|path| is_linker(&path.to_string_lossy())) {
            return None;
        }
        return is_privileged(&path).then_some(Ignores::Privileged).or_else(|| of_elf(&head));
    }
    None
}

/// Whether a path is that of glibc's dynamic linker.
fn is_linker(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-linux"))
}

fn is_privileged(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    // SAFETY: takes nothing and cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let setuid = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    let setgid = meta.mode() & libc::S_ISGID != 0 && meta.gid() != gid;
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names end with a NUL; no more than 0 bytes are written.
    let capable = unsafe {
        libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0
    };
    setuid || setgid || (capable && uid != 0)
}

/// Checks the head of an ELF file. Linkers place the program headers right after the ELF header.
fn of_elf(head: &[u8]) -> Option<Ignores> {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    };
    let mut ours = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact(&mut ours).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    // Class and byte order, and the processor.
    if head.get(4..6)? != ours.get(4..6)? || head.get(18..20)? != ours.get(18..20)? {
        return Some(Ignores::Foreign("it is built for another architecture".into()));
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for i in 0..count {
        let at = usize::try_from(table.checked_add(i * size)?).ok()?;
        if number(at, 4)? != u64::from(PT_INTERP) {
            continue;
        }
        let start = usize::try_from(number(at.checked_add(8)?, 8)?).ok()?;
        let end = start.checked_add(usize::try_from(number(at.checked_add(32)?, 8)?).ok()?)?;
        let linker =
            String::from_utf8_lossy(head.get(start..end)?).trim_end_matches('\0').to_string();
        return (!is_linker(&linker))
            .then(|| Ignores::Foreign(format!("{linker} is not glibc's dynamic linker")));
    }
    Some(Ignores::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_for_mutexes_only_are_those_of_eight_bytes() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/locks");
        for lock in locks() {
            let header = fs::read_to_string(dir.join(format!("{lock}.h"))).unwrap();
            let large = header.contains(&format!("sizeof(struct unspin_{lock}_lock) == 8"));
            assert_eq!(MUTEX_ONLY.contains(&lock), large, "{lock}");
        }
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

    #[test]
    fn no_file_makes_it_panic() {
        let ours = fs::read("/proc/self/exe").unwrap();
        assert_eq!(of_elf(&ours[..4096]), None);
        for cut in 0..1024 {
            of_elf(&ours[..cut]);
        }
        for at in 0..64 {
            let mut wrong = ours[..4096].to_vec();
            wrong[at] ^= 0xff;
            of_elf(&wrong);
        }
        let mut foreign = ours[..4096].to_vec();
        foreign[18] ^= 1;
        assert!(matches!(of_elf(&foreign), Some(Ignores::Foreign(_))));
        assert_eq!(ignores("/nonexistent".as_ref()), None);
        assert_eq!(ignores("/bin/sh".as_ref()), None);
    }

    #[test]
    fn every_lock_has_a_name() {
        assert!(locks().count() >= 5);
        assert!(locks().all(|name| !name.is_empty() && !name.contains(char::is_whitespace)));
    }
}
