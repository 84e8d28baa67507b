// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs before they start: where they are, whether they load a library of `LD_PRELOAD`, and why the kernel
//! refuses them.

use crate::exit::{Cannot, Usage};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{Error, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Scripts whose interpreter is a script; the kernel allows as many.
const SCRIPTS_MAX: usize = 5;

/// Finds the program as execvp() does.
pub fn find(program: &OsStr) -> anyhow::Result<PathBuf> {
    let named = Path::new(program);
    if program.is_empty() {
        return Err(Usage("no program name given: its name is empty".into()).into());
    }
    if program.as_bytes().contains(&b'/') {
        check(named)?;
        return Ok(named.to_path_buf());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut refused = None;
    for dir in std::env::split_paths(&dirs) {
        let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
        let path = dir.join(named);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(why) if why.is::<Usage>() => {}
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    Err(refused.unwrap_or_else(|| not_found(named, "")))
}

fn not_found(path: &Path, why: &str) -> anyhow::Error {
    Usage(format!("{}: program not found{why}", path.display())).into()
}

/// What its name and its mode tell: a usage error if it is not there, and otherwise why it cannot start.
fn check(path: &Path) -> anyhow::Result<()> {
    let cannot = |why: &str| -> anyhow::Error {
        Cannot(format!("cannot start {}: {why}", path.display())).into()
    };
    let meta = match path.metadata() {
        Ok(meta) => meta,
        Err(error) => {
            return Err(match error.raw_os_error() {
                Some(libc::ENOENT) if path.is_symlink() => {
                    cannot("it is a symbolic link to something that is missing")
                }
                Some(libc::ENOENT) => not_found(path, ""),
                Some(libc::ENOTDIR | libc::ENAMETOOLONG) => {
                    not_found(path, &format!(": {}", said(&error)))
                }
                _ => cannot(&said(&error)),
            });
        }
    };
    if meta.is_dir() {
        return Err(cannot("it is a directory"));
    }
    if !meta.is_file() {
        return Err(cannot("it is not a regular file"));
    }
    if meta.mode() & 0o111 == 0 {
        return Err(cannot(&format!("it is not executable: chmod +x {}", path.display())));
    }
    Ok(())
}

/// Without the number that the standard library adds.
fn said(error: &Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_string()
}

/// Why the kernel did not start a program that find() has found.
pub fn why_not(path: &Path, error: &Error) -> String {
    let mut path = path.to_path_buf();
    if error.raw_os_error() == Some(libc::EACCES) && is_mounted(&path, libc::ST_NOEXEC) {
        return "its file system is mounted noexec".into();
    }
    for _ in 0..SCRIPTS_MAX {
        let Some(head) = head(&path) else { break };
        let by_script = script(&head).map(|(interpreter, _)| interpreter);
        let is_script = by_script.is_some();
        let Some(next) = by_script.or_else(|| linker(&head).flatten()) else { break };
        let what = if is_script { "interpreter" } else { "dynamic linker" };
        match (error.raw_os_error(), next.metadata()) {
            (Some(libc::ENOENT), Err(_)) => return missing(what, &next),
            (Some(libc::EACCES), Ok(meta)) if meta.is_dir() => {
                return format!("its {what} {} is a directory", next.display());
            }
            (Some(libc::EACCES), Ok(meta)) if meta.mode() & 0o111 == 0 => {
                let next = next.display();
                return format!("its {what} {next} is not executable: chmod +x {next}");
            }
            _ => path = next,
        }
    }
    said(error)
}

fn missing(what: &str, path: &Path) -> String {
    if let Some(unix) = path.to_str().and_then(|path| path.strip_suffix('\r')) {
        return format!(
            "its {what} {unix} is followed by a carriage return, which comes from Windows: remove it from \
             the first line"
        );
    }
    let or = if what == "interpreter" { ", or correct the first line" } else { "" };
    format!("its {what} {} is missing: install it{or}", path.display())
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

/// Whether the program at `path` would ignore the library; for a script, whether its interpreter would. A file
/// in an unknown format is assumed to load it.
pub fn ignores(path: &Path) -> Option<Ignores> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPTS_MAX {
        let head = head(&path)?;
        if let Some((interpreter, argument)) = script(&head) {
            path = by_env(&interpreter, &argument).unwrap_or(interpreter);
            continue;
        }
        // The dynamic linker itself, which runs the program that its arguments name.
        if fs::canonicalize(&path).is_ok_and(|path| is_linker(&path)) {
            return None;
        }
        return is_privileged(&path).then_some(Ignores::Privileged).or_else(|| of_elf(&head));
    }
    None
}

/// The begin of a file that can be read. Opening a pipe would wait for its writer.
fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    if !path.is_file() {
        return None;
    }
    File::open(path).ok()?.take(64 << 10).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The interpreter of a script, and its argument, as the kernel reads them: a carriage return is no blank.
fn script(head: &[u8]) -> Option<(PathBuf, String)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.trim_ascii_start().splitn(2, |byte| b" \t".contains(byte));
    let interpreter = words.next().filter(|word| !word.is_empty())?;
    let argument = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
    Some((PathBuf::from(OsStr::from_bytes(interpreter)), argument))
}

/// The program of a script that env(1) starts: `#!/usr/bin/env PROGRAM`.
fn by_env(interpreter: &Path, argument: &str) -> Option<PathBuf> {
    if interpreter.file_name()? != "env" {
        return None;
    }
    let mut words =
        argument.split_whitespace().skip_while(|word| *word == "-S" || word.contains('='));
    let program = words.next().filter(|word| !word.starts_with('-'))?;
    find(OsStr::new(program)).ok()
}

fn is_linker(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"))
}

/// Whether the file system of `path` is mounted with this option.
pub fn is_mounted(path: &Path, option: libc::c_ulong) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` ends with a NUL, `fs` is written before it is read.
    unsafe {
        let mut fs: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut fs) == 0 && fs.f_flag & option != 0
    }
}

/// Whether programs of this process get no privileges: prctl(2), PR_SET_NO_NEW_PRIVS.
fn gets_no_privileges() -> bool {
    let zero: libc::c_ulong = 0;
    // SAFETY: changes nothing.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, zero, zero, zero, zero) == 1 }
}

fn is_privileged(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    if gets_no_privileges() || is_mounted(path, libc::ST_NOSUID) {
        return false;
    }
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

/// Whether the header is that of a program or a shared object, for any processor.
fn is_elf(head: &[u8]) -> bool {
    let is_known = matches!(head.get(4..7), Some([1 | 2, 1 | 2, 1]));
    let is_program = matches!(head.get(16..18), Some([2 | 3, 0] | [0, 2 | 3]));
    head.starts_with(b"\x7fELF") && is_known && is_program
}

fn of_elf(head: &[u8]) -> Option<Ignores> {
    let mut ours = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact(&mut ours).ok()?;
    if !is_elf(head) {
        return None;
    }
    // Class and byte order, and the processor.
    if head.get(4..6)? != ours.get(4..6)? || head.get(18..20)? != ours.get(18..20)? {
        return Some(Ignores::Foreign("it is built for another architecture".into()));
    }
    let Some(linker) = linker(head)? else { return Some(Ignores::Static) };
    (!is_linker(&linker))
        .then(|| Ignores::Foreign(format!("{} is not glibc's dynamic linker", linker.display())))
}

/// Where an ELF file of 32 or 64 bits has the offset of its program headers, their size and number; and where a
/// program header has the offset and the length of what it describes.
struct Layout {
    word: usize,
    table: usize,
    size: usize,
    count: usize,
    offset: usize,
    length: usize,
}

const BITS_32: Layout = Layout { word: 4, table: 28, size: 42, count: 44, offset: 4, length: 16 };
const BITS_64: Layout = Layout { word: 8, table: 32, size: 54, count: 56, offset: 8, length: 32 };

/// The dynamic linker of a little-endian ELF file, or Some(None) if it has none. Linkers place the program
/// headers right after the ELF header.
fn linker(head: &[u8]) -> Option<Option<PathBuf>> {
    const PT_INTERP: usize = 3;
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        let value = field.iter().rev().fold(0, |all: u64, byte| all << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if !is_elf(head) || number(5, 1)? != 1 {
        return None;
    }
    let of = if number(4, 1)? == 1 { BITS_32 } else { BITS_64 };
    let (table, size) = (number(of.table, of.word)?, number(of.size, 2)?);
    for i in 0..number(of.count, 2)? {
        let at = table.checked_add(i * size)?;
        if number(at, 4)? != PT_INTERP {
            continue;
        }
        let start = number(at.checked_add(of.offset)?, of.word)?;
        let end = start.checked_add(number(at.checked_add(of.length)?, of.word)?)?;
        let name = head.get(start..end)?.split(|byte| *byte == 0).next()?;
        return Some(Some(PathBuf::from(OsStr::from_bytes(name))));
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of_elf(b"\x7fELFgarbage, but long enough for a header"), None);
        assert_eq!(ignores("/nonexistent".as_ref()), None);
        assert_eq!(ignores("/bin/sh".as_ref()), None);
    }

    #[test]
    fn a_script_names_what_runs_it() {
        let of = |text: &str| {
            script(text.as_bytes()).map(|(path, rest)| (path.display().to_string(), rest))
        };
        let some = |path: &str, rest: &str| Some((path.to_string(), rest.to_string()));
        assert_eq!(of("#! /bin/sh -e x\necho"), some("/bin/sh", "-e x"));
        assert_eq!(of("#!/bin/sh\r\n"), some("/bin/sh\r", ""));
        assert_eq!((of("#!"), of("#! \n/bin/sh"), of("echo")), (None, None, None));
        let by = |argument| by_env("/usr/bin/env".as_ref(), argument);
        assert_eq!(by("sh"), find("sh".as_ref()).ok());
        assert_eq!(by("-S A=1 sh -e"), find("sh".as_ref()).ok());
        assert_eq!((by(""), by("-i sh"), by("no-such-program")), (None, None, None));
        assert_eq!(by_env("/bin/sh".as_ref(), "sh"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let said = missing("interpreter", Path::new("/bin/sh\r"));
        assert!(said.contains("carriage return") && !said.contains('\r'), "{said}");
        let said = missing("dynamic linker", Path::new("/lib/ld-linux.so.2"));
        assert_eq!(said, "its dynamic linker /lib/ld-linux.so.2 is missing: install it");
    }
}
