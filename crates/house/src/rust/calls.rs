// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrows from methods and fields: whoever calls a method knows the file that defines it, and whoever
//! reads a field the file of its type, though no path names them.
//!
//! Types are followed as far as they are written down: parameters, fields, what functions return.

use std::collections::BTreeMap;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, Item, Pat, Token};

use super::import::plain;
use super::names::Found;
use super::tree::{attributes, is_for_tests, Tree};
use super::types::{inside, Key, Typed, Types};
use crate::arrow::{Arrow, Arrows, Kind};

/// Methods of std that give what is inside, or a reference to it.
const OPENS: [&str; 22] = [
    "as_deref",
    "as_deref_mut",
    "as_mut",
    "as_ref",
    "borrow",
    "borrow_mut",
    "drain",
    "expect",
    "first",
    "first_mut",
    "get",
    "get_mut",
    "into_iter",
    "iter",
    "iter_mut",
    "last",
    "last_mut",
    "take",
    "unwrap",
    "unwrap_or_default",
    "values",
    "values_mut",
];

pub fn arrows(tree: &Tree) -> Arrows {
    let types = Types::of(tree);
    let mut arrows = Arrows::default();
    for (module, here) in tree.modules.iter().enumerate() {
        for item in &here.items {
            let this = match item {
                Item::Impl(item) => Some(Typed { module, ty: (*item.self_ty).clone() }),
                _ => None,
            };
            let known = BTreeMap::new();
            let mut caller =
                Caller { tree, types: &types, module, this, known, arrows: &mut arrows };
            caller.visit_item(item);
        }
    }
    arrows
}

struct Caller<'a> {
    tree: &'a Tree,
    types: &'a Types,
    module: usize,
    /// The type of the impl.
    this: Option<Typed>,
    /// The variables whose type is known.
    known: BTreeMap<String, Typed>,
    arrows: &'a mut Arrows,
}

impl Caller<'_> {
    fn key(&self, typed: &Typed) -> Option<Key> {
        self.types.key(self.tree, typed)
    }

    /// The key, and as a type again.
    fn typed(&self, key: &Key) -> Option<Typed> {
        Some(Typed { module: key.0, ty: syn::parse_str(&key.1).ok()? })
    }

    fn type_of(&self, expr: &Expr) -> Option<Typed> {
        match expr {
            Expr::Path(path) => {
                let name = path.path.get_ident()?;
                self.known.get(&plain(name)).cloned()
            }
            Expr::Field(field) => {
                let key = self.key(&self.type_of(&field.base)?)?;
                self.types.field(&key, &member(&field.member)).cloned()
            }
            Expr::Index(index) => inside(&self.types.bare(self.tree, self.type_of(&index.expr)?)),
            Expr::Reference(inner) => self.type_of(&inner.expr),
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Group(inner) => self.type_of(&inner.expr),
            Expr::Unary(inner) => self.type_of(&inner.expr),
            Expr::Try(inner) => inside(&self.type_of(&inner.expr)?),
            Expr::MethodCall(call) => self.type_of_call(call),
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => self.type_returned(&path.path),
                _ => None,
            },
            Expr::Struct(made) => {
                let path: Vec<String> = segments(&made.path);
                if path == ["Self"] {
                    return self.this.clone();
                }
                match self.tree.find(self.module, &path)? {
                    Found::Item { module, name, .. } => self.typed(&(module, name)),
                    Found::Module(_) => None,
                }
            }
            _ => None,
        }
    }

    fn type_of_call(&self, call: &syn::ExprMethodCall) -> Option<Typed> {
        let on = self.type_of(&call.receiver)?;
        let name = plain(&call.method);
        if let Some(key) = self.key(&on) {
            if let Some(method) = self.types.method(&key, &name) {
                return method.returns.clone();
            }
            return (name == "clone" || name.starts_with("as_")).then_some(on);
        }
        let bare = self.types.bare(self.tree, on);
        OPENS.contains(&name.as_str()).then(|| inside(&bare).unwrap_or(bare))
    }

    fn type_returned(&self, path: &syn::Path) -> Option<Typed> {
        let (key, rest) = self.item(path)?;
        match rest.first() {
            Some(name) => self.types.method(&key, name)?.returns.clone(),
            None => self.types.function(&key).cloned().or_else(|| self.typed(&key)),
        }
    }

    /// What a path leads to, and what follows.
    fn item(&self, path: &syn::Path) -> Option<(Key, Vec<String>)> {
        let path = segments(path);
        if path[0] == "Self" {
            return Some((self.key(self.this.as_ref()?)?, path[1..].to_vec()));
        }
        match self.tree.find(self.module, &path)? {
            Found::Item { module, name, rest } => Some(((module, name), rest)),
            Found::Module(_) => None,
        }
    }

    fn add_method(&mut self, key: &Key, name: &str, line: usize) {
        let Some(method) = self.types.method(key, name) else { return };
        let from = &self.tree.modules[self.module].file;
        if method.files.contains(from) {
            return;
        }
        for to in &method.files {
            let what = format!("{}::{name}()", key.1);
            self.arrows.add(Arrow {
                from: from.clone(),
                to: to.clone(),
                line,
                what,
                kind: Kind::Implied,
            });
        }
    }

    /// A pattern that is bound to a value of that type.
    fn bind(&mut self, pattern: &Pat, typed: Typed) {
        match pattern {
            Pat::Ident(name) => {
                self.known.insert(plain(&name.ident), typed);
            }
            Pat::Reference(inner) => self.bind(&inner.pat, typed),
            Pat::TupleStruct(one) if one.elems.len() == 1 => {
                let bare = self.types.bare(self.tree, typed);
                if let Some(inner) = inside(&bare) {
                    self.bind(&one.elems[0], inner);
                }
            }
            _ => {}
        }
    }

    fn bind_parameters(&mut self, signature: &syn::Signature) {
        self.known.clear();
        for input in &signature.inputs {
            match input {
                syn::FnArg::Receiver(_) => {
                    if let Some(this) = self.this.clone() {
                        self.known.insert("self".to_string(), this);
                    }
                }
                syn::FnArg::Typed(typed) => {
                    let ty = (*typed.ty).clone();
                    self.bind(&typed.pat, Typed { module: self.module, ty });
                }
            }
        }
    }
}

fn member(member: &syn::Member) -> String {
    match member {
        syn::Member::Named(name) => plain(name),
        syn::Member::Unnamed(index) => index.index.to_string(),
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|s| plain(&s.ident)).collect()
}

impl<'a> Visit<'a> for Caller<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        let outer = self.known.clone();
        self.bind_parameters(&item.sig);
        visit::visit_item_fn(self, item);
        self.known = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.bind_parameters(&item.sig);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        visit::visit_local(self, local);
        let typed = match (&local.pat, &local.init) {
            (Pat::Type(typed), _) => {
                let typed_here = Typed { module: self.module, ty: (*typed.ty).clone() };
                self.bind(&typed.pat, typed_here);
                return;
            }
            (_, Some(init)) => self.type_of(&init.expr),
            _ => None,
        };
        match typed {
            Some(typed) => self.bind(&local.pat, typed),
            None => {
                if let Pat::Ident(name) = &local.pat {
                    self.known.remove(&plain(&name.ident)); // another of that name
                }
            }
        }
    }

    fn visit_expr_let(&mut self, expr: &'a syn::ExprLet) {
        if let Some(typed) = self.type_of(&expr.expr) {
            self.bind(&expr.pat, typed);
        }
        visit::visit_expr_let(self, expr);
    }

    fn visit_expr_for_loop(&mut self, expr: &'a syn::ExprForLoop) {
        if let Some(typed) = self.type_of(&expr.expr) {
            let bare = self.types.bare(self.tree, typed);
            let typed = inside(&bare).unwrap_or(bare);
            self.bind(&expr.pat, typed);
        }
        visit::visit_expr_for_loop(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'a syn::ExprMatch) {
        let typed = self.type_of(&expr.expr);
        for arm in &expr.arms {
            if let Some(typed) = typed.clone() {
                self.bind(&arm.pat, typed);
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if let Some(key) = self.type_of(&call.receiver).and_then(|t| self.key(&t)) {
            self.add_method(&key, &plain(&call.method), call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_field(&mut self, field: &'a syn::ExprField) {
        if let Some(key) = self.type_of(&field.base).and_then(|t| self.key(&t)) {
            let name = member(&field.member);
            if self.types.field(&key, &name).is_some() {
                let from = self.tree.modules[self.module].file.clone();
                let to = self.tree.modules[key.0].file.clone();
                let line = field.member.span().start().line;
                let what = format!("{}.{name}", key.1);
                self.arrows.add(Arrow { from, to, line, what, kind: Kind::Implied });
            }
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        if let Some((key, rest)) = self.item(&path.path) {
            if let Some(name) = rest.first() {
                self.add_method(&key, name, path.span().start().line);
            }
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        let arguments = called.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        // What it makes lives no longer than this: the visitor keeps names, not places.
        for argument in arguments.iter().flatten() {
            Visit::visit_expr(self, argument);
        }
    }
}
