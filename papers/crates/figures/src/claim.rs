// SPDX-License-Identifier: MIT OR Apache-2.0
//! The claims of the papers: `papers/KEY/claims.toml`.

use crate::error::Error;
use crate::paper::KEYS;
use crate::within::{self, Rule, Span};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// The permitted use of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A parameter, rule or set-up of a system.
    Define,
    /// Results of the paper's baseline: profiles may be fitted to them, once.
    Calibrate,
    /// Results of the paper's system: must be predicted without fitting.
    Predict,
}

impl Kind {
    /// The name in files of claims.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Define => "define",
            Kind::Calibrate => "calibrate",
            Kind::Predict => "predict",
        }
    }
}

/// One entry: values of one figure, table or passage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its key.
    #[serde(skip)]
    pub paper: &'static str,
    pub id: String,
    pub section: String,
    pub kind: Kind,
    pub value: Value,
    #[serde(default)]
    pub note: String,
    /// What is measured, and relative to what; required for kind `predict`.
    #[serde(default)]
    pub condition: String,
    /// The tolerances of our values, by their names. The general rule applies to other values.
    #[serde(default)]
    pub within: toml::Table,
    /// Why the claim is not blind: how our value was known when one of its programs was chosen.
    /// Empty if it was not known.
    #[serde(default)]
    pub seen: String,
}

/// The name of the value in a claim with a single statement or number.
pub(crate) const WHOLE: &str = "value";

impl Claim {
    /// Names of its values in their order. Keys of inner tables follow a dot. A list is one value.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        leaves("", &self.value, &mut names);
        names
    }

    /// The value with this name, or (`name[1]`) an element of a list.
    pub fn get(&self, name: &str) -> Option<&Value> {
        if name == WHOLE && !self.value.is_object() {
            return Some(&self.value);
        }
        let (keys, index) = element(name)?;
        let value = keys.split('.').try_fold(&self.value, |v, key| v.get(key))?;
        match index {
            Some(i) => value.get(i),
            None => Some(value),
        }
    }

    /// The tolerance in its `within` for the value with this name, or for an element of a list, if
    /// it is a range.
    pub fn span(&self, name: &str) -> Option<Span> {
        let (keys, index) = element(name)?;
        within::span(self.within_of(keys)?, index)
    }

    /// The tolerance in its `within` for this value, if it is a text with rules.
    pub fn rules(&self, name: &str) -> Vec<Rule> {
        self.statement(name).map_or(Vec::new(), within::rules)
    }

    /// The text in its `within` for this value.
    pub fn statement(&self, name: &str) -> Option<&str> {
        self.within_of(name)?.as_str()
    }

    fn within_of(&self, name: &str) -> Option<&toml::Value> {
        let mut keys = name.split('.');
        let first = self.within.get(keys.next()?)?;
        keys.try_fold(first, |v, key| v.get(key))
    }

    /// Checks the claim alone.
    fn check(&self) -> Result<(), String> {
        if self.kind == Kind::Predict && self.condition.trim().is_empty() {
            return Err("condition is missing: what is measured, against what".to_string());
        }
        if self.kind != Kind::Predict && !self.seen.is_empty() {
            return Err("seen is for what is predicted; leave it out".to_string());
        }
        let mut said = Vec::new();
        tolerances("", &self.within, &mut said);
        for (name, within) in said {
            let printed = self.get(&name).filter(|printed| !printed.is_object());
            let printed = printed.ok_or_else(|| {
                format!(
                    "within is of {name:?}, which is no value of it; {}",
                    self.names().join(", ")
                )
            })?;
            within::check(within, printed).map_err(|e| format!("within of {name:?}: {e}"))?;
        }
        Ok(())
    }
}

/// Splits `name[1]` into the value's name and the element's index.
fn element(name: &str) -> Option<(&str, Option<usize>)> {
    match name.strip_suffix(']').and_then(|n| n.split_once('[')) {
        Some((keys, index)) => Some((keys, Some(index.parse().ok()?))),
        None => Some((name, None)),
    }
}

/// Tolerances by the names of values.
fn tolerances<'a>(at: &str, table: &'a toml::Table, all: &mut Vec<(String, &'a toml::Value)>) {
    for (key, value) in table {
        let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        match value.as_table() {
            Some(table) => tolerances(&at, table, all),
            None => all.push((at, value)),
        }
    }
}

fn leaves(at: &str, value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                leaves(&at, value, names);
            }
        }
        _ if at.is_empty() => names.push(WHOLE.to_string()),
        _ => names.push(at.to_string()),
    }
}

/// The file of a paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Where it was published.
    place: String,
    #[serde(rename = "claim")]
    claims: Vec<Claim>,
}

/// The claims of all papers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claims {
    /// The papers' keys and places of publication, in the order of display.
    pub papers: Vec<(&'static str, String)>,
    pub all: Vec<Claim>,
}

impl Claims {
    /// Reads the claims of all papers; `root` holds `papers/`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or has the wrong form; two claims with one id; an id that does
    /// not begin with its paper's key; a prediction without its condition; tolerances for missing
    /// values or with the wrong form.
    pub fn read(root: &Path) -> Result<Claims, Error> {
        let mut claims = Claims::default();
        for key in KEYS {
            let path = root.join("papers").join(key).join("claims.toml");
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::Read { path: path.clone(), error })?;
            claims.add(key, &text).map_err(|text| Error::Wrong { path, text })?;
        }
        Ok(claims)
    }

    /// The claims of one paper.
    pub fn of<'a>(&'a self, paper: &'a str) -> impl Iterator<Item = &'a Claim> + 'a {
        self.all.iter().filter(move |claim| claim.paper == paper)
    }

    fn add(&mut self, paper: &'static str, text: &str) -> Result<(), String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        self.papers.push((paper, file.place));
        for claim in file.claims {
            if self.all.iter().any(|o| o.id == claim.id) {
                return Err(format!("two claims are called {:?}", claim.id));
            }
            if !claim.id.starts_with(&format!("{paper}_")) {
                return Err(format!("claim {:?}: its id begins with \"{paper}_\"", claim.id));
            }
            claim.check().map_err(|e| format!("claim {:?}: {e}", claim.id))?;
            self.all.push(Claim { paper, ..claim });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CLAIM: &str = "place = 'x 2000'\n[[claim]]\nid = 'p_a'\n\
        section = '1'\nkind = 'predict'\ncondition = 'two VMs'\nvalue = { b = 1.5, c = { d = 'best', e = [1, 2] } }\n";

    fn parse(text: &str) -> Result<Claims, String> {
        let mut claims = Claims::default();
        claims.add("p", text).map(|()| claims)
    }

    #[test]
    fn values_have_names() {
        let claims = parse(CLAIM).unwrap();
        let claim = &claims.all[0];
        assert_eq!(claim.names(), ["b", "c.d", "c.e"]);
        assert_eq!(claim.get("b"), Some(&json!(1.5)));
        assert_eq!(claim.get("c.e"), Some(&json!([1, 2])));
        assert_eq!(claim.get("c.e[1]"), Some(&json!(2)));
        for none in ["c.e[2]", "c.x", "value", "b[0]", "c.e[x]", "", "c.e]"] {
            assert_eq!(claim.get(none), None, "{none}");
        }
    }

    #[test]
    fn a_statement_is_a_value() {
        let text = CLAIM.replace("{ b = 1.5, c = { d = 'best', e = [1, 2] } }", "'same trend'");
        let claims = parse(&text).unwrap();
        assert_eq!(claims.all[0].names(), ["value"]);
        assert_eq!(claims.all[0].get("value"), Some(&json!("same trend")));
    }

    #[test]
    fn wrong_claims_are_refused() {
        let twice = format!("{CLAIM}{}", &CLAIM[CLAIM.find("[[").unwrap()..]);
        assert!(parse(&twice).unwrap_err().contains("two claims are called \"p_a\""));
        let other = CLAIM.replace("p_a", "q_a");
        assert!(parse(&other).unwrap_err().contains("its id begins with \"p_\""));
        assert!(parse(&CLAIM.replace("predict", "guess")).unwrap_err().contains("guess"));
        assert!(parse(&CLAIM.replace("place", "plaice")).unwrap_err().contains("plaice"));
        let said = parse(&CLAIM.replace("condition = 'two VMs'", "")).unwrap_err();
        assert!(said.contains("claim \"p_a\": condition is missing"), "{said}");
        let seen = CLAIM.replace("predict", "calibrate") + "seen = 'x'\n";
        assert!(parse(&seen).unwrap_err().contains("seen is for what is predicted"));
    }

    #[test]
    fn tolerances_are_of_values_and_have_a_form() {
        let of = |within: &str| parse(&format!("{CLAIM}within = {{ {within} }}\n"));
        let good =
            "b = [1.25, inf], c = { d = 'at least 0.98 of it; within 5 %', e = [[0, 2], [1, 3]] }";
        let claim = of(good).unwrap().all.remove(0);
        assert_eq!(claim.span("b"), Some(Span { low: 1.25, high: f64::INFINITY }));
        assert_eq!(claim.span("c.e[1]"), Some(Span { low: 1.0, high: 3.0 }));
        assert_eq!(claim.rules("c.d"), [Rule::AtLeast(0.98), Rule::Similar(0.05)]);
        assert_eq!((claim.span("c.d"), claim.rules("b")), (None, vec![]));
        for (wrong, why) in [
            ("g = [1, 2]", "within is of \"g\", which is no value of it; b, c.d, c.e"),
            ("c = { d = 'near' }", "says no tolerance; allowed: \"at least 0.98 of"),
            ("b = [2, 1]", "upside down"),
            ("b = [1.5, 1.5]", "of one value"),
            ("b = [nan, 2]", "upside down"),
            ("b = [2, 3]", "what the paper prints, 1.5, is not in [2, 3]"),
            ("b = [1, 2, 3]", "is neither [low, high] nor a text"),
            ("b = 0.1", "is neither [low, high] nor a text"),
            ("c = { e = [[0, 2]] }", "1 ranges for 2 values"),
            ("c = { e = [[0, 2], [3, 4]] }", "2, is not in [3, 4]"),
            ("c = [1, 2]", "within is of \"c\""),
        ] {
            let said = of(wrong).unwrap_err();
            assert!(said.contains("claim \"p_a\"") && said.contains(why), "{wrong}: {said}");
        }
    }
}
