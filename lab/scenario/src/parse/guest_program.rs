// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that Linux guests run.

use crate::parse::keys::{read_all, read_list, read_own_name, OfKeys};
use crate::schema::countable::countable;
use crate::schema::key::{Form, Key, List, Maybe};
use crate::schema::keys::guest_program as keys;
use crate::schema::linux::GuestProgram;
use unspin_text::Problems;
use unspin_text::{Reader, Table, Value};

/// Reads the description of a program. `file` is its name in errors, `name` in the scenario.
pub fn parse_guest_program(file: &str, name: &str, text: &str) -> Result<GuestProgram, Problems> {
    let reader = Reader::new(file, text);
    let doc = reader.parse();
    let program =
        if reader.is_clean() { read_program(&Table::top(&reader, &doc), name) } else { None };
    reader.finish(program)
}

fn read_program(top: &Table, expected_name: &str) -> Option<GuestProgram> {
    top.only_of(&keys::GUEST_PROGRAM);
    read_all!(GuestProgram {
        name: top.needed(&keys::NAME).and_then(|v| read_own_name(&v, expected_name)),
        title: line(top, &keys::TITLE),
        packages: words(top, &keys::PACKAGES),
        sources: words(top, &keys::SOURCES),
        flags: words(top, &keys::FLAGS),
        prepare: match top.at(&keys::PREPARE) {
            None => Some(String::new()),
            Some(v) => read_line(&v, keys::PREPARE.takes.0),
        },
        command: line(top, &keys::COMMAND),
        unit: line(top, &keys::UNIT),
        counts: counts(top),
        from: line(top, &keys::FROM),
    })
}

fn line(top: &Table, key: &Key<GuestProgram, Form>) -> Option<String> {
    read_line(&top.needed(key)?, key.takes.0)
}

fn read_line(v: &Value, form: &str) -> Option<String> {
    let s = v.str(form)?;
    if s.trim().is_empty() || s.contains('\n') {
        v.problem("not one line with text in it", form);
        return None;
    }
    Some(s.to_string())
}

fn words(top: &Table, key: &Key<GuestProgram, Maybe<List<Form>>>) -> Option<Vec<String>> {
    let Some(v) = top.at(key) else { return Some(Vec::new()) };
    let Maybe(list) = key.takes;
    read_list(&v, &list, |v| {
        let s = v.str(list.each.0)?;
        let is_word = !s.is_empty() && s.bytes().all(|b| b.is_ascii_graphic());
        if !is_word || s.contains("..") || s.starts_with('/') {
            v.problem(format!("{s:?} is not allowed"), list.of());
            return None;
        }
        Some(s.to_string())
    })
}

/// Accepts only functions that the library in the guest can count. The library would refuse others
/// at the program's start.
fn counts(top: &Table) -> Option<Vec<String>> {
    let counts = words(top, &keys::COUNTS)?;
    let at = top.at(&keys::COUNTS).and_then(|v| v.array(""));
    let known: Vec<(&str, ())> = countable().map(|name| (name, ())).collect();
    let all_known = at.into_iter().flatten().filter(|v| v.choice(&known).is_none()).count() == 0;
    all_known.then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"x\"\ntitle = \"Does x\"\npackages = [\"rt-tests\"]\n\
        command = \"x -n $vcpus\"\nunit = \"a message\"\ncounts = [\"write\"]\nfrom = \"rt-tests\"\n";

    #[test]
    fn a_wrong_description_is_refused() {
        let good = parse_guest_program("x.toml", "x", GOOD).unwrap();
        assert_eq!((good.command.as_str(), good.prepare.as_str()), ("x -n $vcpus", ""));
        let refused = |from: &str, to: &str, why: &str| {
            assert!(GOOD.contains(from), "{from}");
            let said = parse_guest_program("x.toml", "x", &GOOD.replace(from, to)).unwrap_err();
            assert!(said.to_string().contains(why), "{said}");
        };
        refused("name = \"x\"", "name = \"y\"", "is not the file's name");
        refused("\"a message\"", "\" \"", "`unit`: not one line");
        refused("[\"write\"]", "[]", "`counts`: empty");
        refused("[\"write\"]", "[\"write\", \"write\"]", "counts");
        refused("[\"write\"]", "[\"read\", \"wriite\"]", "`counts[1]`: \"wriite\" is not known");
        refused("[\"write\"]", "[\"wriite\"]", "did you mean `write`");
        refused("[\"write\"]", "[\"write,read\"]", "`counts[0]`: \"write,read\" is not known");
        refused("[\"write\"]", "[\"printf\"]", "pthread_mutex_lock");
        refused("[\"rt-tests\"]", "[\"../x\"]", "`packages[0]`");
        refused("[\"rt-tests\"]", "[\"a b\"]", "`packages[0]`");
        refused("command = \"x -n $vcpus\"\n", "", "command");
        refused("unit", "units", "unknown key");
        refused("title = \"Does x\"", "title = ", "x.toml");
    }
}
