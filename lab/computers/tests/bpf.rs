// SPDX-License-Identifier: MIT OR Apache-2.0
//! policy/ as BPF in a stock kernel under QEMU: the kernel's verifier accepts the programs of the
//! table below, and they decide there as they do on a processor. They are in
//! lab/policy/tests/bpf/NAME.bpf.c.
//!
//! This test's own program is what loads them inside.

mod common;
#[path = "../../policy/tests/bpf/compile.rs"]
mod compile;

use common::Extras;
use libbpf_rs::{Error, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramInput};
use std::collections::BTreeSet;
use std::ffi::{c_void, CString};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// Policies that schedulers of sched_ext include, and the programs that call their functions, for the
/// numbers of vCPUs, VMs and pCPUs that these are written for.
const POLICIES: &[(&str, &[&str])] =
    &[("credit", &["assign", "pick", "charge"]), ("hvs", &["pick", "category"])];

/// The kernel whose verifier is asked: the newest.
const SERIES: Series = Series::V7_3;
/// Cases that a program decides.
const CASES: usize = 500;
/// Names the policy that `inside` is to load.
const POLICY: &str = "UNSPIN_BPF_POLICY";
/// A check per policy, and those of every script.
const CHECKS_MIN: u32 = POLICIES.len() as u32 + 2;

#[test]
fn the_verifier_accepts_every_policy() {
    if !compile::is_there("clang", "clang") {
        return;
    }
    let Some(lab) = common::lab(QEMU_TOOLS) else { return };
    let Some(kernel) = common::kernel(&lab, SERIES) else { return };
    let program = std::env::current_exe().unwrap();
    let policies: Vec<&str> = names().collect();
    let bpf = file_name(&program);
    let script =
        format!("BPF={bpf}\nPOLICIES='{}'\n{}", policies.join(" "), include_str!("bpf.sh"));
    let files = names().flat_map(|name| [compile::object(name), compile::library(name)]);
    let files = files.map(|file| (file_name(&file), std::fs::read(&file).unwrap())).collect();
    let extras = Extras { files, programs: vec![program], ..common::NO_EXTRAS };
    let computer = Computer::qemu(1);
    let wrong = common::checked(&lab, &kernel, &computer, &script, "bpf", CHECKS_MIN, extras);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.0)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// One policy, on the computer that the other test boots.
#[test]
#[ignore = "loads BPF; what the computer under QEMU runs"]
fn inside() {
    let name = std::env::var(POLICY).unwrap();
    let programs = POLICIES.iter().find(|policy| policy.0 == name).unwrap().1;
    let [object, library] = ["o", "so"].map(|end| PathBuf::from(format!("/{name}.bpf.{end}")));
    let there = programs_of(&object);
    let listed: BTreeSet<String> = programs.iter().map(|name| name.to_string()).collect();
    assert_eq!(there, listed, "{name}");
    let native = Native::open(&library);
    libbpf_rs::set_print(Some((PrintLevel::Warn, log)));
    for program in programs {
        match load(&object, program) {
            Ok(loaded) => decides_alike(&loaded, &native, program),
            Err(error) => {
                let log = LOG.lock().unwrap();
                let lines: Vec<&str> = log.lines().rev().take(20).collect();
                panic!("{program}: {error}, last lines first:\n{}", lines.join("\n"));
            }
        }
    }
}

fn programs_of(object: &Path) -> BTreeSet<String> {
    let mut builder = ObjectBuilder::default();
    let open = builder.open_file(object).unwrap();
    open.progs().map(|program| program.name().to_str().unwrap().to_owned()).collect()
}

/// Messages of libbpf, including the verifier's log.
static LOG: Mutex<String> = Mutex::new(String::new());

fn log(_: PrintLevel, text: String) {
    LOG.lock().unwrap().push_str(&text);
}

/// One program of an object, accepted by the verifier.
fn load(object: &Path, name: &str) -> Result<Object, Error> {
    LOG.lock().unwrap().clear();
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_file(object)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
    }
    open.load()
}

/// Bytes of which many are small numbers, as flags and indices are.
fn bytes(count: usize, random: &mut u64) -> Vec<u8> {
    let mut next = || {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    };
    let kind = next() % 4;
    let one = |r: u64| match r % 8 {
        0..2 => 0,
        2..4 => (r >> 8) as u8 % 2,
        4 => (r >> 8) as u8 % 8,
        _ if kind == 0 => 0,
        5 => 0xff,
        _ => (r >> 8) as u8,
    };
    (0..count).map(|_| one(next())).collect()
}

/// The same programs for this computer.
struct Native {
    library: *mut c_void,
}

impl Native {
    fn open(path: &Path) -> Native {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library has no constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Native { library }
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let symbol = CString::new(name).unwrap();
        // SAFETY: the library stays, and the name ends in a zero.
        let found = unsafe { libc::dlsym(self.library, symbol.as_ptr()) };
        assert!(!found.is_null(), "{name} is missing");
        found
    }

    fn run(&self, program: &str, io: &mut [u8]) {
        let global: *mut u8 = self.symbol("io").cast();
        // SAFETY: io and every program are defined as such in the programs' sources; io has this size
        // there, too, and nothing else uses it at this time.
        unsafe {
            let function: unsafe extern "C" fn(*mut u8) -> i32 =
                std::mem::transmute(self.symbol(program));
            global.copy_from_nonoverlapping(io.as_ptr(), io.len());
            function(std::ptr::null_mut());
            io.as_mut_ptr().copy_from_nonoverlapping(global, io.len());
        }
    }
}

/// The kernel's BPF program gives the same results as the C, compiled for the processor.
fn decides_alike(object: &Object, native: &Native, program: &str) {
    let loaded = object.progs_mut().find(|p| p.name() == program).unwrap();
    let map = object.maps().find(|m| m.name().to_string_lossy().ends_with(".bss")).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15;
    for case in 0..CASES {
        let before = bytes(map.value_size() as usize, &mut random);
        let mut expected = before.clone();
        native.run(program, &mut expected);
        map.update(&[0; 4], &before, MapFlags::ANY).unwrap();
        loaded.test_run(ProgramInput::default()).unwrap();
        let found = map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        assert!(found == expected, "{program}: case {case}\n{before:?}");
    }
}
