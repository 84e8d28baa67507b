// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the BPF programs. Generates the states and the exit reasons that lead to them, so that
//! unspin-diagnosis alone defines them.

mod bpf;

use bpf::Program;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use unspin_diagnosis::{exits, State};

/// The C name of a state, such as `STATE_EXIT_PAUSE`.
fn constant(state: State) -> String {
    format!("STATE_{}", state.name().to_uppercase().replace([':', '-'], "_"))
}

/// Number of codes in a table.
const EXITS: u16 = 256;

/// A table from each code to the state that it leads to.
fn table(text: &mut String, name: &str, entries: &[(u16, State)]) {
    let _ = writeln!(text, "static const __u8 {name}[EXITS] = {{");
    for code in 0..EXITS {
        let named = entries.iter().find(|(of, _)| *of == code);
        let state = named.map_or(State::ExitOther, |(_, state)| *state);
        let _ = writeln!(text, "\t{},", constant(state));
    }
    let _ = writeln!(text, "}};");
}

fn header() -> String {
    let mut text = String::from("enum {\n");
    for state in State::ALL {
        let _ = writeln!(text, "\t{},", constant(*state));
    }
    let _ = writeln!(text, "\tSTATES,\n\tEXITS = {EXITS},");
    let _ = writeln!(text, "\tSVM_SECOND_FIRST = {},\n}};", exits::SVM_SECOND_FIRST);
    table(&mut text, "vmx_exits", exits::VMX);
    let second = exits::SVM_SECOND_FIRST;
    let (first, rest): (Vec<_>, Vec<_>) = exits::SVM.iter().partition(|(code, _)| *code < second);
    table(&mut text, "svm_exits", &first);
    let rest: Vec<_> = rest.iter().map(|(code, state)| (code - second, *state)).collect();
    table(&mut text, "svm_second_exits", &rest);
    text
}

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    let include = out.join("include");
    std::fs::create_dir_all(&include).unwrap();
    std::fs::write(include.join("states.h"), header()).unwrap();
    let program = Program { source: Path::new("src/bpf/probe.bpf.c"), folders: &[], flags: &[] };
    program.compile(&out, &out.join("probe.bpf.o")).unwrap_or_else(|error| panic!("{error}"));
}
