// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of a target as far as they are written down: fields, methods, what functions return.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::{Fields, ImplItem, Item, ReturnType, Type};

use super::import::plain;
use super::names::Found;
use super::tree::Tree;

/// A type by the module that defines it and its name there.
pub type Key = (usize, String);

/// A type as written, and the module it is written in.
#[derive(Debug, Clone)]
pub struct Typed {
    pub module: usize,
    pub ty: Type,
}

#[derive(Debug, Default)]
pub struct Method {
    /// Where it may be defined: several where several types of a name have it.
    pub files: BTreeSet<String>,
    pub returns: Option<Typed>,
}

#[derive(Debug, Default)]
pub struct Types {
    fields: BTreeMap<Key, BTreeMap<String, Typed>>,
    methods: BTreeMap<Key, BTreeMap<String, Method>>,
    functions: BTreeMap<Key, Typed>,
    aliases: BTreeMap<Key, Typed>,
}

impl Types {
    pub fn of(tree: &Tree) -> Types {
        let mut types = Types::default();
        for (index, module) in tree.modules.iter().enumerate() {
            for item in &module.items {
                types.add_item(index, item);
            }
        }
        // Once aliases are known, so that an impl of one counts for its type.
        for (index, module) in tree.modules.iter().enumerate() {
            for item in &module.items {
                if let Item::Impl(item) = item {
                    types.add_impl(tree, index, item);
                }
            }
        }
        types
    }

    fn add_item(&mut self, module: usize, item: &Item) {
        match item {
            Item::Struct(item) => {
                let fields = self.fields.entry((module, plain(&item.ident))).or_default();
                let named = matches!(item.fields, Fields::Named(_));
                for (index, field) in item.fields.iter().enumerate() {
                    let name = match &field.ident {
                        Some(name) if named => plain(name),
                        _ => index.to_string(),
                    };
                    fields.insert(name, Typed { module, ty: field.ty.clone() });
                }
            }
            Item::Fn(item) => {
                if let ReturnType::Type(_, ty) = &item.sig.output {
                    let typed = Typed { module, ty: (**ty).clone() };
                    self.functions.insert((module, plain(&item.sig.ident)), typed);
                }
            }
            Item::Type(item) => {
                let typed = Typed { module, ty: (*item.ty).clone() };
                self.aliases.insert((module, plain(&item.ident)), typed);
            }
            _ => {}
        }
    }

    fn add_impl(&mut self, tree: &Tree, module: usize, item: &syn::ItemImpl) {
        let this = Typed { module, ty: (*item.self_ty).clone() };
        let Some(key) = self.key(tree, &this) else { return };
        // A trait's methods are the trait's: whoever calls them has named it.
        if item.trait_.is_some() {
            return;
        }
        let methods = self.methods.entry(key).or_default();
        for inner in &item.items {
            let ImplItem::Fn(function) = inner else { continue };
            let method = methods.entry(plain(&function.sig.ident)).or_default();
            method.files.insert(tree.modules[module].file.clone());
            if let ReturnType::Type(_, ty) = &function.sig.output {
                method.returns = with_self(ty, &this.ty).map(|ty| Typed { module, ty });
            }
        }
    }

    /// The type of this crate that it is, behind references and boxes.
    pub fn key(&self, tree: &Tree, typed: &Typed) -> Option<Key> {
        let typed = self.bare(tree, typed.clone());
        let found = tree.find(typed.module, &path_of(&typed.ty)?)?;
        match found {
            Found::Item { module, name, rest } if rest.is_empty() => Some((module, name)),
            _ => None,
        }
    }

    /// Without references, boxes and aliases.
    pub fn bare(&self, tree: &Tree, mut typed: Typed) -> Typed {
        for _ in 0..16 {
            let inner = match &typed.ty {
                Type::Reference(ty) => (*ty.elem).clone(),
                Type::Paren(ty) => (*ty.elem).clone(),
                Type::Group(ty) => (*ty.elem).clone(),
                Type::Ptr(ty) => (*ty.elem).clone(),
                Type::Path(_) => match self.behind(tree, &typed) {
                    Some(inner) => {
                        typed = inner;
                        continue;
                    }
                    None => return typed,
                },
                _ => return typed,
            };
            typed.ty = inner;
        }
        typed
    }

    fn behind(&self, tree: &Tree, typed: &Typed) -> Option<Typed> {
        let path = path_of(&typed.ty)?;
        if let ["Box" | "Rc" | "Arc"] = path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            return inside(typed);
        }
        match tree.find(typed.module, &path)? {
            Found::Item { module, name, rest } if rest.is_empty() => {
                self.aliases.get(&(module, name)).cloned()
            }
            _ => None,
        }
    }

    pub fn field(&self, key: &Key, name: &str) -> Option<&Typed> {
        self.fields.get(key)?.get(name)
    }

    pub fn method(&self, key: &Key, name: &str) -> Option<&Method> {
        self.methods.get(key)?.get(name)
    }

    pub fn function(&self, key: &Key) -> Option<&Typed> {
        self.functions.get(key)
    }
}

/// What a container holds: the last of its parameters, or for results the first.
pub fn inside(typed: &Typed) -> Option<Typed> {
    let ty = match &typed.ty {
        Type::Array(ty) => (*ty.elem).clone(),
        Type::Slice(ty) => (*ty.elem).clone(),
        Type::Path(ty) => {
            let last = ty.path.segments.last()?;
            let syn::PathArguments::AngleBracketed(list) = &last.arguments else { return None };
            let mut types = list.args.iter().filter_map(|a| match a {
                syn::GenericArgument::Type(ty) => Some(ty.clone()),
                _ => None,
            });
            if last.ident == "Result" {
                types.next()?
            } else {
                types.next_back()?
            }
        }
        _ => return None,
    };
    Some(Typed { module: typed.module, ty })
}

pub fn path_of(ty: &Type) -> Option<Vec<String>> {
    match ty {
        Type::Path(ty) if ty.qself.is_none() => {
            Some(ty.path.segments.iter().map(|s| plain(&s.ident)).collect())
        }
        _ => None,
    }
}

/// The type with `Self` replaced.
fn with_self(ty: &Type, this: &Type) -> Option<Type> {
    fn replace(
        tokens: proc_macro2::TokenStream,
        this: &proc_macro2::TokenStream,
    ) -> proc_macro2::TokenStream {
        use proc_macro2::{Group, TokenTree};
        let mut out = proc_macro2::TokenStream::new();
        for token in tokens {
            match token {
                TokenTree::Ident(word) if word == "Self" => out.extend(this.clone()),
                TokenTree::Group(group) => {
                    let inner = replace(group.stream(), this);
                    out.extend([TokenTree::Group(Group::new(group.delimiter(), inner))]);
                }
                token => out.extend([token]),
            }
        }
        out
    }
    syn::parse2(replace(ty.to_token_stream(), &this.to_token_stream())).ok()
}
