// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a file that a person names, as a whole, or refuses it with a reason. FIFOs, devices and
//! endless files are refused.

use crate::show::shown;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Limit of bytes of a file that people write: a scenario, a profile, settings.
pub const TEXT_MAX: u64 = 16 << 20;
/// Limit of bytes of results and traces.
pub const RESULTS_MAX: u64 = 4 << 30;

/// Limit of bytes of a kernel file. The longest is /proc/cpuinfo, with 1 or 2 KiB per CPU.
const KERNEL_MAX: u64 = 64 << 20;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no file {}", shown(.0))]
    Missing(PathBuf),
    #[error("{}: it is a {kind}, not a regular file", shown(.path))]
    Kind { path: PathBuf, kind: &'static str },
    #[error("{}: it is larger than {} MiB", shown(.path), .most >> 20)]
    TooLarge { path: PathBuf, most: u64 },
    #[error("{}: not a text file (UTF-8)", shown(.0))]
    NotText(PathBuf),
    #[error("cannot read {}: {error}", shown(.path))]
    Io {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl ReadError {
    /// Whether the file is the wrong one; otherwise this computer failed to read it.
    pub fn is_wrong_file(&self) -> bool {
        !matches!(self, ReadError::Io { .. })
    }
}

/// The bytes of a regular file of at most `most` bytes.
///
/// # Errors
/// [`ReadError`]. Does not wait for the writer of a FIFO.
pub fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, ReadError> {
    let io = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => ReadError::Missing(path.into()),
        _ => ReadError::Io { path: path.into(), error },
    };
    // Opening a FIFO would wait for a writer.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match kind(path) {
        // A socket cannot be opened.
        Some(kind) if error.raw_os_error() == Some(libc::ENXIO) => {
            ReadError::Kind { path: path.into(), kind }
        }
        _ => io(error),
    })?;
    let is = file.metadata().map_err(io)?;
    if !is.is_file() {
        let kind = kind(path).unwrap_or("device");
        return Err(ReadError::Kind { path: path.into(), kind });
    }
    let too_large = || ReadError::TooLarge { path: path.into(), most };
    if is.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // The file may grow meanwhile, and files in /proc have no length.
    file.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    Ok(bytes)
}

/// The bytes of a file in /proc, /sys or a tree of cgroups.
///
/// # Errors
/// [`io::Error`]. A file that is not regular, or has more than 64 MiB, is refused.
pub fn read_kernel(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_file(path.as_ref(), KERNEL_MAX).map_err(|e| match e {
        ReadError::Missing(_) => io::Error::from_raw_os_error(libc::ENOENT),
        ReadError::Io { error, .. } => error,
        other => io::Error::new(ErrorKind::InvalidData, other),
    })
}

/// The same as text.
///
/// # Errors
/// As [`read_kernel`], and if it is not UTF-8.
pub fn read_kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read_kernel(path)?).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
}

/// The text of a regular file of at most [`TEXT_MAX`] bytes.
///
/// # Errors
/// [`ReadError`].
pub fn read_text(path: &Path) -> Result<String, ReadError> {
    let bytes = read_file(path, TEXT_MAX)?;
    String::from_utf8(bytes).map_err(|_| ReadError::NotText(path.into()))
}

/// The kind of a file that is not regular.
fn kind(path: &Path) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    let is = std::fs::metadata(path).ok()?.file_type();
    Some(match () {
        _ if is.is_dir() => "directory",
        _ if is.is_fifo() => "FIFO",
        _ if is.is_socket() => "socket",
        _ if is.is_char_device() || is.is_block_device() => "device",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;
    use unspin_scratch::Scratch;

    #[test]
    fn regular_files_of_a_limited_size_alone_are_read() {
        let dir = Scratch::new();
        let at = |name: &str| dir.join(name);
        dir.write("text", "text");
        dir.write("bytes", [0xff]);
        File::create(at("large")).unwrap().set_len(1 << 40).unwrap();
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: the string is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_text(&at("text")).unwrap(), "text");
        assert!(read_text(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
        for (path, words) in [
            (at("fifo"), "it is a FIFO, not a regular file"),
            (at("socket"), "it is a socket, not a regular file"),
            (dir.to_path_buf(), "it is a directory, not a regular file"),
            ("/dev/zero".into(), "/dev/zero: it is a device, not a regular file"),
            (at("large"), "it is larger than 16 MiB"),
            (at("bytes"), "not a text file (UTF-8)"),
            (at("none"), "no file "),
        ] {
            let error = read_text(&path).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.is_wrong_file(), "{error}");
        }
        let below = read_text(&at("text").join("x")).unwrap_err();
        assert!(!below.is_wrong_file(), "{below}");
        for path in ["fifo", "large"] {
            assert_eq!(read_kernel(at(path)).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        assert_eq!(read_kernel_text(at("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read_file(&at("text"), 4).unwrap(), b"text");
        assert!(matches!(read_file(&at("text"), 3), Err(ReadError::TooLarge { .. })));
    }
}
