// SPDX-License-Identifier: MIT OR Apache-2.0
//! `completions`: shell completions for bash, zsh, fish and others.

use crate::out;
use clap::{Arg, Command};
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args, name: &'static str, command: &Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let mut command = typed(name, command);
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    out::print(&match args.shell {
        Shell::Bash => text + &without_space(name),
        Shell::Fish => text + &words(name, &command),
        _ => text,
    })
}

/// The command as people type it, without hidden subcommands and options.
fn typed(name: &'static str, command: &Command) -> Command {
    let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let about = command.get_about().cloned().unwrap_or_default();
    let bare = Command::new(name).about(about);
    let bare = match command.get_version() {
        Some(version) => bare.version(leaked(version)),
        None => bare,
    };
    bare.args(args.cloned().map(alone))
        .subcommands(subs.map(|sub| typed(leaked(sub.get_name()), sub)))
}

/// The argument without relations to other arguments, which may be hidden.
fn alone(arg: Arg) -> Arg {
    let bare = Arg::new(arg.get_id().clone())
        .help(first_line(&arg))
        .action(arg.get_action().clone())
        .value_parser(arg.get_value_parser().clone())
        .value_hint(arg.get_value_hint())
        .required(arg.is_required_set());
    let bare = match arg.get_short() {
        Some(short) => bare.short(short),
        None => bare,
    };
    let bare = match arg.get_long() {
        Some(long) => bare.long(leaked(long)),
        None => bare,
    };
    match (arg.get_value_names(), arg.get_num_args()) {
        (Some(names), Some(count)) => bare.value_names(names.to_vec()).num_args(count),
        (Some(names), None) => bare.value_names(names.to_vec()),
        _ => bare,
    }
}

fn first_line(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    help.lines().next().unwrap_or_default().trim_end_matches(':').to_string()
}

/// clap needs names that live as long as the program, which ends soon.
fn leaked(name: &str) -> &'static str {
    Box::leak(name.to_string().into_boxed_str())
}

/// For bash: adds no space after a word such as `mode=`, whose value follows.
fn without_space(name: &str) -> String {
    format!(
        "\n__{name}_key() {{\n    _{name} \"$@\"\n    [[ ${{COMPREPLY[0]-}} != *= ]] || compopt -o \
         nospace\n}}\ncomplete -F __{name}_key -o nosort -o bashdefault -o default {name}\n"
    )
}

/// For fish: the words of positional arguments, which clap leaves out.
fn words(name: &str, command: &Command) -> String {
    let of_sub = |sub: &Command| {
        let values = sub.get_positionals().flat_map(Arg::get_possible_values);
        let words: Vec<String> = values.map(|value| value.get_name().to_string()).collect();
        let condition = format!("__fish_seen_subcommand_from {}", sub.get_name());
        let line = format!("complete -c {name} -n \"{condition}\" -f -a \"{}\"\n", words.join(" "));
        (!words.is_empty()).then_some(line)
    };
    command.get_subcommands().filter_map(of_sub).collect()
}
