// SPDX-License-Identifier: MIT OR Apache-2.0
//! C code with an injected fault, compiled for this computer.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One fault: the file, a text that is found once in it, and what it becomes.
pub type Fault = (&'static str, &'static str, &'static str);

/// `source` with all headers of the scheduler and of the policies, one of them with the fault, as a library. Compiled in
/// the directory `name`. Panics if the fault has no place or the code does not compile.
pub fn library(
    name: &str,
    source: &str,
    flags: &[&str],
    fault: Option<Fault>,
) -> libloading::Library {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let mut is_made = fault.is_none();
    for path in
        ["../../host/schedule/bpf", "../../core/policy"].iter().flat_map(|of| files(&here.join(of)))
    {
        let file = path.file_name().unwrap().to_str().unwrap();
        let mut text = std::fs::read_to_string(&path).unwrap();
        if let Some((_, line, becomes)) = fault.filter(|(of, ..)| *of == file) {
            assert_eq!(text.matches(line).count(), 1, "{line:?} is not there exactly once");
            text = text.replacen(line, becomes, 1);
            is_made = true;
        }
        std::fs::write(directory.join(file), text).unwrap();
    }
    assert!(is_made, "{fault:?}: no such file");
    let object = directory.join("library.so");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=gnu11", "-w", "-shared", "-fPIC", "-fvisibility=hidden"]).args(flags);
    cc.arg("-I").arg(&directory).arg("-I").arg(here.join("../policy/tests/c"));
    cc.arg(here.join(source)).arg("-o").arg(&object);
    assert!(cc.status().expect("a C compiler").success(), "{name} does not compile");
    // SAFETY: the library has no constructors.
    unsafe { libloading::Library::new(object).expect("loads") }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).collect()
}
