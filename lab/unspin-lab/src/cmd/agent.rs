// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab agent` and `unspin-lab vm-process`: processes that the program starts from itself.

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Runs one of the two, which reports its errors itself.
pub fn run(args: &Args, main: fn(&[String]) -> i32) -> ! {
    std::process::exit(main(&args.args))
}
