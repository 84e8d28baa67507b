// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a path means in a module: the module or the item it leads to, through re-exports.

use super::tree::Tree;

/// `pub use` may lead round in a circle, and a path is never so long.
const STEPS_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Module(usize),
    Item {
        /// Where it is defined.
        module: usize,
        name: String,
        /// What follows it in the path: a variant, an associated function.
        rest: Vec<String>,
    },
}

impl Tree {
    /// `None` for what lies outside of the crate, or is not known.
    pub fn find(&self, module: usize, path: &[String]) -> Option<Found> {
        self.find_from(module, path, STEPS_MAX)
    }

    fn find_from(&self, module: usize, path: &[String], steps: usize) -> Option<Found> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.find_in(0, rest, steps),
            "self" => self.find_in(module, rest, steps),
            "super" => match rest.first().map(String::as_str) {
                Some("super") => self.find_from(self.modules[module].parent?, rest, steps),
                _ => self.find_in(self.modules[module].parent?, rest, steps),
            },
            _ => self.find_in(module, path, steps).or_else(|| self.find_macro(path)),
        }
    }

    fn find_in(&self, module: usize, path: &[String], steps: usize) -> Option<Found> {
        let steps = steps.checked_sub(1)?;
        let Some((first, rest)) = path.split_first() else {
            return Some(Found::Module(module));
        };
        let here = &self.modules[module];
        if here.names.contains(first) && (rest.is_empty() || !here.children.contains_key(first)) {
            return Some(Found::Item { module, name: first.clone(), rest: rest.to_vec() });
        }
        if let Some(&child) = here.children.get(first) {
            return self.find_in(child, rest, steps);
        }
        let named = here.imports.iter().filter(|i| i.name.as_ref() == Some(first));
        let found =
            named.filter(|i| i.target.first() != Some(first) || i.target.len() > 1).find_map(|i| {
                let path: Vec<String> = i.target.iter().chain(rest).cloned().collect();
                self.find_from(module, &path, steps)
            });
        found.or_else(|| self.find_through_globs(module, path, steps))
    }

    fn find_through_globs(&self, module: usize, path: &[String], steps: usize) -> Option<Found> {
        let globs = self.modules[module].imports.iter().filter(|i| i.name.is_none());
        globs.filter_map(|glob| self.find_from(module, &glob.target, steps)).find_map(|found| {
            match found {
                Found::Module(from) if from != module => self.find_in(from, path, steps),
                _ => None,
            }
        })
    }

    /// Macros are known in all modules after theirs.
    fn find_macro(&self, path: &[String]) -> Option<Found> {
        let [name] = path else { return None };
        let is_it = |item: &syn::Item| matches!(item, syn::Item::Macro(m) if m.ident.as_ref().is_some_and(|i| i == name));
        let module = self.modules.iter().position(|m| m.items.iter().any(is_it))?;
        Some(Found::Item { module, name: name.clone(), rest: Vec::new() })
    }

    pub fn file(&self, found: &Found) -> &str {
        match found {
            Found::Module(module) | Found::Item { module, .. } => &self.modules[*module].file,
        }
    }
}
