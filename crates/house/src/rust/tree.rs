// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules of a target, as `mod` declares them, without those for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Attribute, Item};

use super::import::{self, Import};
use crate::files::normal;

/// The first module is the root.
#[derive(Debug)]
pub struct Tree {
    pub modules: Vec<Module>,
}

#[derive(Debug, Default)]
pub struct Module {
    /// Names from the root: `["schema", "key"]`.
    pub path: Vec<String>,
    /// Relative to the project's root. Modules inside a file share it.
    pub file: String,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// Names of what is defined here.
    pub names: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// What is neither `mod` nor `use`.
    pub items: Vec<Item>,
}

impl Tree {
    /// Reads the target whose root is that file, relative to `root`.
    pub fn read(root: &Path, file: &str) -> Result<Tree> {
        let mut reader = Reader { root, modules: Vec::new() };
        let dir = Path::new(file).parent().unwrap_or(Path::new("")).to_path_buf();
        reader.read_file(Path::new(file), &dir, Vec::new(), None)?;
        Ok(Tree { modules: reader.modules })
    }
}

struct Reader<'a> {
    root: &'a Path,
    modules: Vec<Module>,
}

impl Reader<'_> {
    /// `dir` is where its child modules lie.
    fn read_file(
        &mut self,
        file: &Path,
        dir: &Path,
        path: Vec<String>,
        parent: Option<usize>,
    ) -> Result<usize> {
        let full = self.root.join(file);
        let text = std::fs::read_to_string(&full).with_context(|| full.display().to_string())?;
        let parsed = syn::parse_file(&text)
            .map_err(|e| anyhow::anyhow!("{}:{}: {e}", full.display(), e.span().start().line))?;
        self.add(Place { file, dir, path, parent }, parsed.items)
    }

    fn add(&mut self, place: Place<'_>, items: Vec<Item>) -> Result<usize> {
        let index = self.modules.len();
        self.modules.push(Module {
            path: place.path.clone(),
            file: place.file.to_string_lossy().into_owned(),
            parent: place.parent,
            ..Module::default()
        });
        for item in items {
            if is_for_tests(attributes(&item)) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    let name = import::plain(&module.ident);
                    let child = self.child(&place, index, &name, module)?;
                    self.modules[index].children.insert(name, child);
                }
                Item::Use(item) => self.modules[index].imports.extend(import::flatten(&item)),
                item => {
                    self.modules[index].names.extend(names_of(&item));
                    self.modules[index].items.push(item);
                }
            }
        }
        Ok(index)
    }

    fn child(
        &mut self,
        place: &Place<'_>,
        parent: usize,
        name: &str,
        module: syn::ItemMod,
    ) -> Result<usize> {
        let mut path = place.path.clone();
        path.push(name.to_string());
        let parent = Some(parent);
        if let Some((_, items)) = module.content {
            let dir = place.dir.join(name);
            return self.add(Place { file: place.file, dir: &dir, path, parent }, items);
        }
        let beside = place.dir.join(format!("{name}.rs"));
        let inside = place.dir.join(name).join("mod.rs");
        let file = match path_attribute(&module.attrs) {
            Some(told) => normal(&place.file.parent().unwrap_or(Path::new("")).join(told)),
            None if self.root.join(&beside).is_file() => beside,
            None => inside,
        };
        self.read_file(&file, &place.dir.join(name), path, parent)
    }
}

struct Place<'a> {
    file: &'a Path,
    dir: &'a Path,
    path: Vec<String>,
    parent: Option<usize>,
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let value = attributes.iter().find_map(|a| match &a.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => Some(&pair.value),
        _ => None,
    })?;
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// `#[cfg(test)]`, `#[cfg(all(test, ...))]` or `#[test]`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| match &a.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string().replace(' ', "");
            text == "test" || text.starts_with("all(test,")
        }
        _ => false,
    })
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

fn names_of(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        Item::Macro(i) => match &i.ident {
            Some(name) => name,
            None => return Vec::new(),
        },
        Item::ForeignMod(i) => {
            let name = |item: &syn::ForeignItem| match item {
                syn::ForeignItem::Fn(f) => Some(import::plain(&f.sig.ident)),
                syn::ForeignItem::Static(s) => Some(import::plain(&s.ident)),
                _ => None,
            };
            return i.items.iter().filter_map(name).collect();
        }
        _ => return Vec::new(),
    };
    vec![import::plain(name)]
}
