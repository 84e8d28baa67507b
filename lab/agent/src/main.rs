// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as a program of its own, small enough for the first file system of an emulated
//! computer.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let code = unspin_agent::command_main(&args).unwrap_or_else(|| {
        eprintln!("{}", unspin_agent::USAGE);
        2
    });
    std::process::exit(code);
}
