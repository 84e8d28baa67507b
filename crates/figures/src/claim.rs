// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the papers say: `papers/KEY/claims.toml`.

use crate::error::Error;
use crate::paper::KEYS;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    /// As claims are written.
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

/// A paper's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Where it appeared.
    place: String,
    #[serde(rename = "claim")]
    claims: Vec<Claim>,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claims {
    /// The papers' keys, and where each appeared, in the order in which they are shown.
    pub papers: Vec<(&'static str, String)>,
    pub all: Vec<Claim>,
}

impl Claims {
    /// Reads those of all papers; `root` holds `papers/`.
    ///
    /// # Errors
    /// A file that cannot be read or does not have the form; two claims of one id; one that does not
    /// begin with its paper's key.
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

    /// Those of one paper.
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
        section = '1'\nkind = 'predict'\nvalue = { b = 1.5, c = { d = 'best', e = [1, 2] } }\n";

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
    }
}
