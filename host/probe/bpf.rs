// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles BPF programs: for build scripts of the crates that load them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// libbpf's macros have a parameter that few programs use.
const FLAGS: &[&str] = &[
    "-target",
    "bpf",
    "-mcpu=v3",
    "-g",
    "-O2",
    "-std=gnu11",
    "-ffreestanding",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("clang cannot be run ({0}); install it: apt-get install clang")]
    NoClang(io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// A program of BPF to compile.
#[derive(Debug)]
pub struct Program<'a> {
    pub source: &'a Path,
    /// Include directories besides libbpf's.
    pub folders: &'a [PathBuf],
    /// Flags besides the usual ones.
    pub flags: &'a [&'a str],
}

impl Program<'_> {
    /// Compiles it to `object`. `out` is the build script's OUT_DIR; libbpf's headers go there.
    ///
    /// # Errors
    /// clang is missing, or refuses the program; its message is on standard error.
    pub fn compile(&self, out: &Path, object: &Path) -> Result<(), Error> {
        let headers = libbpf_headers(out)?;
        let mut clang = Command::new("clang");
        clang.args(FLAGS).args(self.flags).arg("-c").arg("-I").arg(headers);
        for folder in self.folders {
            clang.arg("-I").arg(folder);
        }
        // Keep paths of this computer out of the type information.
        for place in [std::env::var_os("CARGO_MANIFEST_DIR").as_deref(), Some(out.as_os_str())] {
            let mut map = OsStr::new("-fdebug-prefix-map=").to_os_string();
            map.push(place.unwrap_or_default());
            map.push("=.");
            clang.arg(map);
        }
        clang.arg(self.source).arg("-o").arg(object);
        match clang.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::Failed(format!("{clang:?}: {status}"))),
            Err(error) => Err(Error::NoClang(error)),
        }
    }
}

/// The directory from which libbpf's headers are included as `bpf/…`.
fn libbpf_headers(out: &Path) -> Result<PathBuf, Error> {
    let include = out.join("include");
    let bpf = include.join("bpf");
    let io = |path: &Path| {
        let path = path.to_path_buf();
        |source| Error::Io { path, source }
    };
    fs::create_dir_all(&bpf).map_err(io(&bpf))?;
    for (name, contents) in libbpf_sys::API_HEADERS {
        let path = bpf.join(name);
        fs::write(&path, contents).map_err(io(&path))?;
    }
    Ok(include)
}
