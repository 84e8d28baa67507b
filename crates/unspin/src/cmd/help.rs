// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first page of `unspin --help`: subcommands under the heads of those who need them. clap has
//! heads for options only.

use clap::Command;
use std::fmt::Write;

const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Operate a host",
        &[
            "load", "unload", "status", "diagnose", "top", "export", "spinners", "set", "shape",
            "apply",
        ],
    ),
    ("Measure", &["plan", "bench", "report", "replay", "generate"]),
    ("Predict", &["model", "figures", "agree"]),
    ("Locks in programs", &["run"]),
    ("Emulated computers, and the shell", &["lab", "completions", "man", "help"]),
];

/// The command with the list of its subcommands in groups.
pub fn grouped(mut command: Command) -> Command {
    command.build();
    let list = list(&command);
    let heads = *command.get_styles().get_header();
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{heads}Options:{heads:#}\n{{options}}{{after-help}}"
    ))
}

fn list(command: &Command) -> String {
    let width = command.get_subcommands().map(|c| c.get_name().len()).max().unwrap_or(0);
    let (heads, literals) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let mut text = String::new();
    for (head, names) in GROUPS {
        let _ = writeln!(text, "{heads}{head}:{heads:#}");
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let name = sub.get_name();
            let _ = writeln!(text, "  {literals}{name:width$}{literals:#}  {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_subcommand_is_in_one_group() {
        let command = super::super::command();
        let shown: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(grouped.len(), shown.len());
        assert_eq!(BTreeSet::from_iter(grouped), BTreeSet::from_iter(shown));
    }

    #[test]
    fn help_shows_all_of_them() {
        let text = super::super::command().render_help().to_string();
        for (head, names) in GROUPS {
            assert!(text.contains(&format!("{head}:\n")), "{text}");
            for name in names {
                assert!(text.contains(&format!("\n  {name} ")), "{name}: {text}");
            }
        }
    }
}
