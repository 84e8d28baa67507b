// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds and runs the C test programs of `programs`, for a lock as it is or with a mutation.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use unspin_threads::locks::Lock;

/// What is built under this name, once for all tests of a process.
pub fn once(name: &str, build: impl FnOnce() -> PathBuf) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, Arc<OnceLock<PathBuf>>>> = Mutex::new(BTreeMap::new());
    let built = Arc::clone(BUILT.lock().unwrap().entry(name.to_string()).or_default());
    built.get_or_init(build).clone()
}

/// A way to build one program for one lock.
#[derive(Clone)]
pub struct Build<'a> {
    pub lock: &'a Lock,
    /// File in `programs`, without `.c`.
    pub program: &'a str,
    /// Tells this build from others of the same lock and program.
    pub variant: String,
    pub compiler: &'a str,
    pub flags: Vec<String>,
    /// Text of the lock's header to replace: what, by what. All of its places.
    pub mutation: Vec<(String, String)>,
}

/// Does something with each of `items`, as many at a time as this computer has CPUs.
pub fn in_parallel<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Relaxed)) {
            each(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
    });
}

pub fn locks_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/locks")
}

/// Programs that take locks.
pub fn programs_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

pub fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

impl<'a> Build<'a> {
    pub fn new(lock: &'a Lock, program: &'a str, variant: &str, flags: &[&str]) -> Build<'a> {
        Build {
            lock,
            program,
            variant: variant.to_string(),
            compiler: "cc",
            flags: flags.iter().map(|f| f.to_string()).collect(),
            mutation: Vec::new(),
        }
    }

    pub fn mutate(mut self, what: &str, by: &str) -> Build<'a> {
        self.mutation.push((what.to_string(), by.to_string()));
        self
    }

    /// The program's path; panics where it does not compile or a mutation does not apply. Tests of one
    /// process that want the same program share it.
    pub fn make(&self) -> PathBuf {
        let name = format!("{}-{}-{}", self.program, self.lock.name, self.variant);
        once(&name, || self.compile(&name))
    }

    fn compile(&self, name: &str) -> PathBuf {
        let out = scratch().join(name);
        let header = self.header(name);
        let mut cc = Command::new(self.compiler);
        cc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(&self.flags)
            .arg("-I")
            .arg(locks_dir())
            .arg("-I")
            .arg(programs_dir())
            .arg(format!("-DLOCK_HEADER=\"{header}\""))
            .arg(format!("-DLOCK(op)=unspin_{}_##op", self.lock.name));
        if self.lock.node {
            cc.arg("-DWITH_NODE");
        }
        if let Some(start) = self.lock.start {
            cc.arg(format!("-DSTART(v)={start}"));
        }
        let source = programs_dir().join(self.program).with_extension("c");
        // Tests of another process may be running the same program: it is replaced when it is whole.
        let part = scratch().join(format!("{name}.{}", std::process::id()));
        let output = cc.arg(source).arg("-o").arg(&part).output().expect("a C compiler");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(part, &out).unwrap();
        out
    }

    fn header(&self, name: &str) -> String {
        if self.mutation.is_empty() {
            return self.lock.header.to_string();
        }
        // The lock's header and those it includes, each with the mutations that apply to it.
        let dir = scratch().join(format!("{name}.d"));
        std::fs::create_dir_all(&dir).unwrap();
        let read = |header: &str| std::fs::read_to_string(locks_dir().join(header)).unwrap();
        let own = read(self.lock.header);
        let includes = own.lines().filter_map(|l| l.strip_prefix("#include \"")?.strip_suffix('"'));
        let mut missing: Vec<&str> = self.mutation.iter().map(|(what, _)| what.as_str()).collect();
        for header in std::iter::once(self.lock.header).chain(includes) {
            let mut text = read(header);
            for (what, by) in &self.mutation {
                missing.retain(|m| m != what || !text.contains(what.as_str()));
                text = text.replace(what.as_str(), by);
            }
            std::fs::write(dir.join(header), text).unwrap();
        }
        assert!(missing.is_empty(), "{}: no {missing:?}", self.lock.header);
        dir.join(self.lock.header).display().to_string()
    }
}

/// Runs a program. `Err` has its output if it failed.
pub fn run(program: &Path, args: &[&str]) -> Result<(), String> {
    check(Command::new(program).args(args))
}

pub fn check(command: &mut Command) -> Result<(), String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&said)))
    }
}

/// Flags of a 32-bit program whose `time_t` has 64 bits.
pub const TIME64: [&str; 2] = ["-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64"];

/// The compiler's flags for 32-bit programs. `None`, with a line that says so, where it has no headers for them.
pub fn i386() -> Option<[&'static str; 4]> {
    let headers = "/usr/include/x86_64-linux-gnu";
    if !Path::new(headers).join("gnu/stubs-32.h").exists() {
        println!("SKIPPED: locks in 32-bit programs: no libc6-dev-i386 on this computer");
        return None;
    }
    Some(["-m32", "-static", "-idirafter", headers])
}

/// Whether this computer has a program.
pub fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

/// The same. Prints a line that says so if it has not.
pub fn has(tool: &str) -> bool {
    let there = is_there(tool);
    if !there {
        println!("SKIPPED: no {tool} on this computer");
    }
    there
}

/// Whether this computer has the header of probes. Prints a line that says so if it has not.
pub fn has_sdt() -> bool {
    let headers = ["/usr/include/x86_64-linux-gnu/sys/sdt.h", "/usr/include/sys/sdt.h"];
    let there = headers.iter().any(|header| Path::new(header).exists());
    if !there {
        println!("SKIPPED: probes of locks: no sys/sdt.h (Debian: systemtap-sdt-dev)");
    }
    there
}

/// Compiles a program of `programs` against the headers in `locks`; `of` tells apart its builds.
pub fn build(locks: &Path, name: &str, of: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(format!("{name}-{of}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    cc.arg("-I").arg(locks).arg("-I").arg(programs_dir());
    cc.arg(programs_dir().join(name).with_extension("c")).arg("-o").arg(&out);
    check(&mut cc).unwrap_or_else(|said| panic!("{name} {of}: {said}"));
    out
}

/// Sources of the library that `unspin run` preloads.
pub const SOURCES: [&str; 4] = ["choice.c", "cond.c", "mutex.c", "spin.c"];
pub const VERSIONS: &str = "versions.map";

/// That library, of sources in a directory.
pub fn library(from: &Path, name: &str) -> PathBuf {
    let out = scratch().join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-shared", "-fPIC"]);
    cc.args(["-fvisibility=hidden", "-ftls-model=initial-exec", "-U_FORTIFY_SOURCE"]);
    cc.arg("-I").arg(locks_dir());
    cc.args(SOURCES.map(|source| from.join(source)));
    if cfg!(target_arch = "x86_64") {
        cc.arg(format!("-Wl,--version-script={}", from.join(VERSIONS).display()));
    }
    check(cc.arg("-o").arg(&out)).unwrap_or_else(|said| panic!("{name}: {said}"));
    out
}

/// A copy of `core/locks/` with another text in `file`.
pub fn locks_with(to: PathBuf, file: &str, text: &str) -> PathBuf {
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(locks_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    std::fs::write(to.join(file), text).unwrap();
    to
}

/// A copy of `core/locks/` with `what` of `file` replaced by `by`.
pub fn changed_locks(name: &str, file: &str, what: &str, by: &str) -> PathBuf {
    let text = std::fs::read_to_string(locks_dir().join(file)).unwrap();
    assert!(text.contains(what), "{file}: no {what:?}");
    locks_with(scratch().join(name), file, &text.replace(what, by))
}
