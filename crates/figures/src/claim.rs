// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the papers say: `figures/targets.toml`.

use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What a claim may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A parameter, rule or set-up of a system.
    Define,
    /// What the paper's baseline did: profiles may be fitted to it, once.
    Calibrate,
    /// What the paper's system did: must come out without fitting.
    Predict,
}

impl Kind {
    /// As `targets.toml` spells it.
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
    pub paper: String,
    pub id: String,
    pub section: String,
    pub kind: Kind,
    pub value: Value,
    #[serde(default)]
    pub note: String,
}

/// The name of the value of a claim that is one statement or one number.
pub(crate) const WHOLE: &str = "value";

impl Claim {
    /// Names of its values, in their order: keys, those of inner tables after a dot. A list is one
    /// value.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        leaves("", &self.value, &mut names);
        names
    }

    /// The value of that name, or (`name[1]`) an element of a list.
    pub fn get(&self, name: &str) -> Option<&Value> {
        if name == WHOLE && !self.value.is_object() {
            return Some(&self.value);
        }
        let (keys, index) = match name.strip_suffix(']').and_then(|n| n.split_once('[')) {
            Some((keys, index)) => (keys, Some(index.parse::<usize>().ok()?)),
            None => (name, None),
        };
        let value = keys.split('.').try_fold(&self.value, |v, key| v.get(key))?;
        match index {
            Some(i) => value.get(i),
            None => Some(value),
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

/// All of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Where each paper appeared.
    pub papers: BTreeMap<String, String>,
    #[serde(rename = "claim")]
    pub all: Vec<Claim>,
}

impl Claims {
    /// Reads them.
    ///
    /// # Errors
    /// A file that cannot be read or does not have the form; two claims of one id; a claim of no
    /// known paper.
    pub fn read(path: &Path) -> Result<Claims, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Read { path: path.to_path_buf(), error })?;
        Claims::parse(&text).map_err(|text| Error::Wrong { path: path.to_path_buf(), text })
    }

    fn parse(text: &str) -> Result<Claims, String> {
        let claims: Claims = toml::from_str(text).map_err(|e| e.to_string())?;
        for (i, c) in claims.all.iter().enumerate() {
            if claims.all[..i].iter().any(|o| o.id == c.id) {
                return Err(format!("two claims are called {:?}", c.id));
            }
            if !claims.papers.contains_key(&c.paper) {
                return Err(format!("claim {:?} is of paper {:?}, not in [papers]", c.id, c.paper));
            }
        }
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CLAIM: &str = "[papers]\np = 'x 2000'\n[[claim]]\npaper = 'p'\nid = 'a'\n\
        section = '1'\nkind = 'predict'\nvalue = { b = 1.5, c = { d = 'best', e = [1, 2] } }\n";

    #[test]
    fn values_have_names() {
        let claims = Claims::parse(CLAIM).unwrap();
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
        let claims = Claims::parse(
            &CLAIM.replace("{ b = 1.5, c = { d = 'best', e = [1, 2] } }", "'same trend'"),
        )
        .unwrap();
        assert_eq!(claims.all[0].names(), ["value"]);
        assert_eq!(claims.all[0].get("value"), Some(&json!("same trend")));
    }

    #[test]
    fn wrong_claims_are_refused() {
        let twice = format!("{CLAIM}{}", &CLAIM[CLAIM.find("[[").unwrap()..]);
        assert!(Claims::parse(&twice).unwrap_err().contains("two claims are called \"a\""));
        let paper = CLAIM.replace("paper = 'p'", "paper = 'q'");
        assert!(Claims::parse(&paper).unwrap_err().contains("not in [papers]"));
        assert!(Claims::parse(&CLAIM.replace("predict", "guess")).unwrap_err().contains("guess"));
    }
}
