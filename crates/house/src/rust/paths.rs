// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrows from paths: in `use`, and wherever else one stands, in macros too.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;

use super::import::{self, Import};
use super::names::Found;
use super::tree::Tree;
use crate::arrow::{Arrow, Arrows};

#[derive(Debug, PartialEq, Eq)]
struct PathUse {
    path: Vec<String>,
    line: usize,
    /// `name!`
    is_macro: bool,
}

#[derive(Debug, Default)]
struct Seen {
    paths: Vec<PathUse>,
    /// `use` inside functions.
    imports: Vec<Import>,
}

pub fn arrows(tree: &Tree) -> Arrows {
    let mut arrows = Arrows::default();
    for (index, module) in tree.modules.iter().enumerate() {
        let mut seen = Seen::default();
        for item in &module.items {
            scan(item.to_token_stream(), &mut seen);
        }
        for import in module.imports.iter().chain(&seen.imports) {
            if import.name.is_some() {
                add(tree, index, &import.target, import.line, &mut arrows);
            }
        }
        for used in &seen.paths {
            let (first, rest) = used.path.split_first().expect("a path has a name");
            let local = seen.imports.iter().find(|i| i.name.as_ref() == Some(first));
            if let Some(local) = local {
                let path: Vec<String> = local.target.iter().chain(rest).cloned().collect();
                add(tree, index, &path, used.line, &mut arrows);
            } else if used.path.len() > 1 || used.is_macro || by_glob(tree, index, &seen, first) {
                add(tree, index, &used.path, used.line, &mut arrows);
            }
        }
    }
    arrows
}

/// A name alone is an arrow of its own only where `use a::*` brought it.
fn by_glob(tree: &Tree, module: usize, seen: &Seen, name: &String) -> bool {
    let here = &tree.modules[module];
    here.imports.iter().chain(&seen.imports).any(|i| i.name.is_none())
        && !here.names.contains(name)
        && !here.children.contains_key(name)
}

fn add(tree: &Tree, module: usize, path: &[String], line: usize, arrows: &mut Arrows) {
    let Some(found @ Found::Item { .. }) = tree.find(module, path) else { return };
    let (from, to) = (tree.modules[module].file.clone(), tree.file(&found).to_string());
    arrows.add(Arrow { from, to, line, what: path.join("::") });
}

fn scan(tokens: TokenStream, seen: &mut Seen) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        at = match &tokens[at] {
            TokenTree::Punct(p) if p.as_char() == '#' => after_attribute(&tokens, at, seen),
            TokenTree::Punct(p) if p.as_char() == '\'' => at + 2, // a lifetime
            TokenTree::Ident(word) if word == "use" => after_use(&tokens, at, seen),
            TokenTree::Ident(word) if word == "pub" => after_visibility(&tokens, at),
            TokenTree::Ident(_) => after_path(&tokens, at, seen),
            TokenTree::Group(group) => {
                scan(group.stream(), seen);
                at + 1
            }
            _ => at + 1,
        };
    }
}

fn group(tokens: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn is_punct(tokens: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == mark)
}

/// Behind what is for tests the thing it stands at is left out.
fn after_attribute(tokens: &[TokenTree], at: usize, seen: &mut Seen) -> usize {
    let inner = usize::from(is_punct(tokens, at + 1, '!'));
    let Some(attribute) = group(tokens, at + 1 + inner, Delimiter::Bracket) else { return at + 1 };
    let text = attribute.stream().to_string().replace(' ', "");
    let mut next = at + 2 + inner;
    if text != "test" && text != "cfg(test)" && !text.starts_with("cfg(all(test,") {
        if text.starts_with("serde(") {
            paths_in_strings(attribute.stream(), seen);
        }
        return next;
    }
    while next < tokens.len() {
        let ends = is_punct(tokens, next, ';')
            || is_punct(tokens, next, ',')
            || group(tokens, next, Delimiter::Brace).is_some();
        next += 1;
        if ends {
            break;
        }
    }
    next
}

/// `#[serde(with = "crate::a")]`
fn paths_in_strings(tokens: TokenStream, seen: &mut Seen) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => paths_in_strings(group.stream(), seen),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let path: Vec<String> =
                    text.trim_matches('"').split("::").map(str::to_string).collect();
                if path.len() > 1 {
                    let line = literal.span().start().line;
                    seen.paths.push(PathUse { path, line, is_macro: false });
                }
            }
            _ => {}
        }
    }
}

fn after_use(tokens: &[TokenTree], at: usize, seen: &mut Seen) -> usize {
    let Some(length) = (at..tokens.len()).position(|i| is_punct(tokens, i, ';')) else {
        return at + 1;
    };
    let stream: TokenStream = tokens[at..=at + length].iter().cloned().collect();
    if let Ok(item) = syn::parse2::<syn::ItemUse>(stream) {
        seen.imports.extend(import::flatten(&item));
    }
    at + length + 1
}

/// `pub(in crate::a)` is no use of a.
fn after_visibility(tokens: &[TokenTree], at: usize) -> usize {
    let restricted = group(tokens, at + 1, Delimiter::Parenthesis).is_some_and(|group| {
        let first = group.stream().into_iter().next();
        matches!(first, Some(TokenTree::Ident(w)) if w == "crate" || w == "super" || w == "in" || w == "self")
    });
    at + 1 + usize::from(restricted)
}

fn after_path(tokens: &[TokenTree], at: usize, seen: &mut Seen) -> usize {
    let TokenTree::Ident(first) = &tokens[at] else { return at + 1 };
    let mut path = vec![import::plain(first)];
    let mut next = at + 1;
    while is_punct(tokens, next, ':') && is_punct(tokens, next + 1, ':') {
        let Some(TokenTree::Ident(step)) = tokens.get(next + 2) else { break };
        path.push(import::plain(step));
        next += 3;
    }
    // a field or method, the rest of `Vec::<u8>::new`, or the name of a field
    let follows = at > 0 && (is_punct(tokens, at - 1, '.') && !is_range(tokens, at))
        || at > 1 && is_punct(tokens, at - 1, ':') && is_punct(tokens, at - 2, ':');
    let names_field =
        path.len() == 1 && is_punct(tokens, next, ':') && !is_punct(tokens, next + 1, ':');
    if !follows && !names_field {
        let is_macro = is_punct(tokens, next, '!') && !is_punct(tokens, next + 1, '=');
        seen.paths.push(PathUse { path, line: first.span().start().line, is_macro });
    }
    next
}

/// `..name`
fn is_range(tokens: &[TokenTree], at: usize) -> bool {
    at > 1 && is_punct(tokens, at - 2, '.') || at > 2 && is_punct(tokens, at - 3, '.')
}
