// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as a program of its own, small enough for the first file system of an emulated
//! computer.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let code = match args.split_first() {
        Some((command, rest)) if command == unspin_agent::AGENT_COMMAND => {
            unspin_agent::agent_main(rest)
        }
        Some((command, rest)) if command == unspin_vmm::VM_PROCESS_COMMAND => {
            unspin_vmm::vm_process_main(rest)
        }
        Some((command, rest)) if command == unspin_agent::SAY_COMMAND => {
            unspin_agent::say_main(rest)
        }
        _ => {
            eprintln!("{}", unspin_agent::USAGE);
            2
        }
    };
    std::process::exit(code);
}
