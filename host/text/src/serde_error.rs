// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of serde about a TOML file, in the form of [`Reader`](crate::Reader).

use crate::names::nearest;
use crate::problem::Problems;
use crate::reader::{Reader, Table, Value};
use std::ops::Range;

/// The error of reading `text` into a type, placed at its key, with the allowed values. `file` is the
/// file's name in the error.
pub fn toml_problems(file: &str, text: &str, error: &toml::de::Error) -> Problems {
    let reader = Reader::new(file, text);
    {
        let doc = reader.parse();
        if reader.is_clean() {
            let span = error.span().unwrap_or(0..0);
            let mut key =
                path_at(Table::top(&reader, &doc).values().collect(), &span).unwrap_or_default();
            let said = plain(error.message().trim());
            if let Some(missing) = said.missing {
                key = if key.is_empty() { missing } else { format!("{key}.{missing}") };
            }
            let near = said.word.as_deref().and_then(|w| nearest(w, said.known.iter().copied()));
            reader.problem(span, key, said.message, said.allowed, near);
        }
    }
    reader.problems()
}

/// The path of the innermost value whose text has `span`.
fn path_at(values: Vec<Value<'_, '_>>, span: &Range<usize>) -> Option<String> {
    for v in values {
        let has = v.span().start <= span.start && span.end <= v.span().end;
        let inner = match () {
            _ if v.is_table() => v.table("").and_then(|t| path_at(t.values().collect(), span)),
            _ if v.is_array() => v.array("").and_then(|a| path_at(a, span)),
            _ => None,
        };
        if inner.is_some() || has {
            return inner.or(Some(v.path));
        }
    }
    None
}

#[derive(Default)]
struct Said<'e> {
    message: String,
    allowed: String,
    /// The missing key.
    missing: Option<String>,
    /// An unknown word.
    word: Option<String>,
    known: Vec<&'e str>,
}

fn plain(message: &str) -> Said<'_> {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let in_ticks = |text: &str| text.split('`').nth(1).unwrap_or_default().to_string();
    let known = || expected.split('`').skip(1).step_by(2).collect::<Vec<&str>>();
    let of_type = what.strip_prefix("invalid type: ").map(|found| (found, "not allowed here"));
    let of_value = || what.strip_prefix("invalid value: ").map(|found| (found, "out of range"));
    if let Some((found, is)) = of_type.or_else(of_value) {
        let message = format!("{} is {is}", thing(found));
        return Said { message, allowed: allowed(expected), ..Said::default() };
    }
    if what.starts_with("missing field ") {
        let missing = Some(in_ticks(what));
        return Said { message: "missing".into(), missing, ..Said::default() };
    }
    if what.starts_with("unknown field ") {
        let (known, word) = (known(), Some(in_ticks(what)));
        let message = format!("unknown key {:?}", in_ticks(what));
        return Said { message, allowed: known.join(", "), word, known, ..Said::default() };
    }
    if what.starts_with("unknown variant ") {
        let (known, word) = (known(), Some(in_ticks(what)));
        let message = format!("{:?} is not known", in_ticks(what));
        let allowed = crate::names::quoted(&known);
        return Said { message, allowed, word, known, ..Said::default() };
    }
    Said { message: message.to_string(), ..Said::default() }
}

/// The value that was found, from serde's wording.
fn thing(found: &str) -> String {
    let value = || found.split('`').nth(1).unwrap_or(found);
    match found {
        "map" => "a table".to_string(),
        "sequence" => "a list".to_string(),
        _ if found.starts_with("integer `") => format!("the integer {}", value()),
        _ if found.starts_with("floating point `") => format!("the fraction {}", value()),
        _ if found.starts_with("boolean `") => value().to_string(),
        _ if found.starts_with("string ") => format!("the {found}"),
        _ => found.to_string(),
    }
}

/// The allowed values, from serde's wording.
fn allowed(expected: &str) -> String {
    let whole = |most: u64| format!("an integer from 0 to {most}");
    match expected {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "an integer from 0".to_string(),
        "i8" | "i16" | "i32" | "i64" => "an integer".to_string(),
        "f32" | "f64" => "a number".to_string(),
        "a boolean" => "true or false".to_string(),
        "a sequence" => "a list".to_string(),
        "a map" => "a table".to_string(),
        _ if expected.starts_with("struct ") => "a table".to_string(),
        _ if expected.starts_with("enum ") => "a string".to_string(),
        _ => expected.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct File {
        units: u32,
        #[serde(default)]
        share: f64,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        order: Order,
        #[serde(default)]
        phase: Vec<Phase>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Order {
        #[default]
        Same,
        Rotating,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Phase {
        ms: f64,
    }

    #[test]
    fn every_error_names_its_key_and_what_is_allowed() {
        for (text, words) in [
            ("units = {}", "x:1:9: `units`: a table is not allowed here\n    allowed: an integer from 0 to 4294967295"),
            ("units = -1", "`units`: the integer -1 is out of range\n    allowed: an integer from 0"),
            ("units = \"4\"", "`units`: the string \"4\" is not allowed here\n    allowed: an integer"),
            ("units = 1\nshare = []", "x:2:9: `share`: a list is not allowed here\n    allowed: a number"),
            ("units = 1\nnames = [\"a\", 5]", "`names[1]`: the integer 5 is not allowed here\n    allowed: a string"),
            ("units = 1\nnames = true", "`names`: true is not allowed here\n    allowed: a list"),
            ("units = 1\norder = \"rotatin\"", "`order`: \"rotatin\" is not known\n    allowed: \"same\" or \"rotating\"\n    did you mean `rotating`?"),
            ("share = 1.0", "`units`: missing"),
            ("units = 1\n[[phase]]\n", "`phase[0].ms`: missing"),
            ("units = 1\n[[phase]]\nms = \"1\"", "`phase[0].ms`: the string \"1\" is not allowed here\n    allowed: a number"),
            ("unit = 1", "unknown key \"unit\"\n    allowed: units, share, names, order, phase\n    did you mean `units`?"),
            ("units = ", "not TOML"),
        ] {
            let error = toml::from_str::<File>(text).unwrap_err();
            let said = toml_problems("x", text, &error).to_string();
            assert!(said.contains(words), "{text}\n{said}\n({})", error.message());
            assert!(!said.contains("expected") || said.contains("not TOML"), "{said}");
        }
    }
}
