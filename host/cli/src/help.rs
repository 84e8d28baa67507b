// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first page of `--help`: subcommands in groups, by purpose. clap itself supports groups for
//! options only.

use crate::out;
use clap::{ArgMatches, Command, Error};
use std::fmt::Write;

/// The title of a group and its subcommands.
pub type Groups = &'static [(&'static str, &'static [&'static str])];

/// The command with the list of its subcommands in groups.
pub fn grouped(mut command: Command, groups: Groups) -> Command {
    command.build();
    let list = list(&command, groups);
    let heads = *command.get_styles().get_header();
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{heads}Options:{heads:#}\n{{options}}{{after-help}}"
    ))
}

fn list(command: &Command, groups: Groups) -> String {
    let width = command.get_subcommands().map(|c| c.get_name().len()).max().unwrap_or(0);
    let (heads, literals) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let mut text = String::new();
    for (head, names) in groups {
        let subs: Vec<_> = names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        // A build may be without all subcommands of a group.
        if subs.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{heads}{head}:{heads:#}");
        for sub in subs {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let name = sub.get_name();
            let _ = writeln!(text, "  {literals}{name:width$}{literals:#}  {about}");
        }
        text.push('\n');
    }
    text
}

/// The arguments of this process. Prints usage errors or help, and ends the process in these cases.
pub fn matches(command: Command) -> ArgMatches {
    command.try_get_matches().unwrap_or_else(|e| end(&e))
}

/// Prints clap's message and ends the process. clap quotes arguments unchanged; a message that
/// would control the terminal is printed without colours.
pub fn end(e: &Error) -> ! {
    let text = e.render().to_string();
    let safe = out::printable_lines(&text);
    if !e.use_stderr() || safe == text {
        e.exit();
    }
    say!("{}", safe.trim_end());
    std::process::exit(e.exit_code())
}

/// Subcommands that `--help` does not show exactly once, and names in groups that are no subcommand.
pub fn misplaced(command: &Command, groups: Groups) -> Vec<String> {
    let text = command.clone().render_help().to_string();
    let shown = |name: &str| text.matches(&format!("\n  {name} ")).count() == 1;
    let subs = command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name);
    let known = |name: &&str| command.find_subcommand(name).is_some();
    let named = groups.iter().flat_map(|(_, names)| *names).copied();
    let unshown = subs.filter(|name| !shown(name));
    unshown.chain(named.filter(|name| !known(name))).map(String::from).collect()
}
