// SPDX-License-Identifier: MIT OR Apache-2.0
//! `man`: the manual pages.

use crate::exit::Usage;
use crate::out;
use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

/// The end of each page.
const EXIT_STATUS: &[u8] = br#".SH "EXIT STATUS"
.TP
\fB0\fR
Success.
.TP
\fB1\fR
Failure; standard error has the reason.
.TP
\fB2\fR
Wrong usage, or an error in a file.
.TP
\fB77\fR
Not possible on this computer; standard error has the reason.
"#;

/// Examples: a line each, with a command line and its effect, as in `unspin top  # Show all VMs, live.`
#[derive(Clone, Copy)]
pub struct Examples {
    /// Those on the page of the command itself.
    pub command: &'static str,
    /// Those on the pages of its subcommands.
    pub subcommands: &'static str,
}

/// Between a command line and its effect.
const EFFECT: &str = "  # ";

impl Examples {
    /// The examples of a subcommand, such as `lab boot`, or "" for the command itself.
    fn of(self, sub: &str) -> Vec<(&'static str, &'static str)> {
        let (text, sub): (_, Vec<&str>) = match sub {
            "" => (self.command, Vec::new()),
            _ => (self.subcommands, sub.split(' ').collect()),
        };
        let is_its = |line: &str| line.split(' ').skip(1).take(sub.len()).eq(sub.iter().copied());
        let all = text.lines().filter_map(|line| line.split_once(EFFECT));
        all.filter(|(line, _)| is_its(line)).collect()
    }
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write one page per command to this directory, which must exist.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &Args, command: Command, examples: Examples) -> anyhow::Result<()> {
    match &args.dir {
        Some(dir) if !dir.is_dir() => Err(Usage(format!(
            "{}: no such directory; {name} man DIR writes all pages to an existing directory, and \
             man {name}-SUBCOMMAND shows one page",
            dir.display(),
            name = command.get_name(),
        ))
        .into()),
        Some(dir) => {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            write_all(command, "", dir, examples)
                .with_context(|| format!("cannot write manual pages to {}", dir.display()))
        }
        None => {
            let roff = page(command.clone(), "", examples)?;
            match io::stdout().is_terminal() {
                true if is_shown(&roff) => Ok(()),
                true => out::print(&command.clone().render_long_help().to_string()),
                false => out::print(&String::from_utf8_lossy(&roff)),
            }
        }
    }
}

/// Whether man(1) is there and shows the page.
fn is_shown(roff: &[u8]) -> bool {
    let man = process::Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = man else { return false };
    // The reader may leave before the end.
    let _ = man.stdin.take().map(|mut stdin| stdin.write_all(roff));
    man.wait().is_ok_and(|status| status.success())
}

/// Writes a page for each visible command. `name` is the subcommand's, as in [`Examples`].
fn write_all(command: Command, name: &str, dir: &Path, examples: Examples) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_all(sub.clone(), &below(name, sub), dir, examples)?;
    }
    let file = dir.join(Man::new(command.clone()).get_filename());
    fs::write(file, page(command, name, examples)?)
}

/// The name of a subcommand of the one that is called `name`.
fn below(name: &str, sub: &Command) -> String {
    format!("{name} {}", sub.get_name()).trim_start().to_string()
}

/// Subcommands without an example, and invalid examples.
pub fn wrong_examples(command: &Command, examples: Examples) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut subs: Vec<(String, &Command)> = vec![(String::new(), command)];
    while let Some((name, of)) = subs.pop() {
        for sub in of.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        {
            let name = below(&name, sub);
            // A command that only groups others needs no example.
            if sub.get_subcommands().next().is_none() {
                all.push(name.clone());
            }
            subs.push((name, sub));
        }
    }
    let missing = all.iter().filter(|name| examples.of(name).is_empty());
    let missing = missing.map(|name| format!("no example: {name:?}"));
    let each = examples.command.lines().chain(examples.subcommands.lines());
    let wrong = each.filter_map(|example| {
        let (line, says) = example.split_once(EFFECT).unwrap_or((example, ""));
        let words = line.split(" | ").next().unwrap_or(line).replace('\'', "");
        let words: Vec<&str> = words.split_whitespace().take_while(|word| *word != ">").collect();
        match command.clone().try_get_matches_from(&words) {
            Err(e) => Some(format!("{line}: {e}")),
            Ok(_) if words[0] != command.get_name() || !says.ends_with('.') => Some(example.into()),
            Ok(_) => None,
        }
    });
    missing.chain(wrong).collect()
}

fn page(command: Command, sub: &str, examples: Examples) -> io::Result<Vec<u8>> {
    let notes = command.get_after_long_help().or_else(|| command.get_after_help());
    let notes = notes.map(ToString::to_string).unwrap_or_default();
    let has_version = command.get_version().is_some();
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_subcommands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if has_options {
        man.render_options_section(&mut text)?;
    }
    if has_subcommands {
        man.render_subcommands_section(&mut text)?;
    }
    text.extend_from_slice(EXIT_STATUS);
    if !notes.is_empty() {
        text.extend_from_slice(b".SH NOTES\n");
        text.extend_from_slice(filled(&notes).as_bytes());
    }
    // The page of a group of subcommands has none.
    let is_group = has_subcommands && !sub.is_empty();
    let its = if is_group { Vec::new() } else { examples.of(sub) };
    if !its.is_empty() {
        text.extend_from_slice(b".SH EXAMPLES\n");
    }
    for (line, says) in its {
        let (line, says) = (escaped(line), escaped(says));
        text.extend_from_slice(format!(".TP\n\\fB{line}\\fR\n{says}\n").as_bytes());
    }
    if has_version {
        man.render_version_section(&mut text)?;
    }
    Ok(text)
}

/// Paragraphs as roff. Lines that begin with spaces are a list, and keep their line breaks.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut is_list = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        if indented != is_list {
            out += if indented { ".PP\n.nf\n" } else { ".fi\n.PP\n" };
            is_list = indented;
        }
        match line {
            "" => out += ".PP\n",
            _ => out += &(escaped(line) + "\n"),
        }
    }
    if is_list {
        out += ".fi\n";
    }
    out
}

/// A line of text, escaped for roff.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roff_interprets_nothing_of_the_notes() {
        let text = filled(".dot --x\n\nA \\ b\n  [vm]  all\n  'q\nend");
        assert_eq!(
            text,
            "\\&.dot \\-\\-x\n.PP\nA \\e b\n.PP\n.nf\n  [vm]  all\n  'q\n.fi\n.PP\nend\n"
        );
    }
}
