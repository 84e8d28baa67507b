// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab agent` and `unspin-lab vm-process`: processes that the program starts from itself.

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn agent(args: &Args) -> anyhow::Result<()> {
    exit(unspin_agent::agent_main(&args.args))
}

pub fn vm_process(args: &Args) -> anyhow::Result<()> {
    exit(unspin_vmm::vm_process_main(&args.args))
}

/// Exits; both commands have reported their errors themselves.
fn exit(code: i32) -> anyhow::Result<()> {
    std::process::exit(code)
}
