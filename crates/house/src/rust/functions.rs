// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a file.

use anyhow::Result;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::function::Function;

pub fn functions(text: &str) -> Result<Vec<Function>> {
    let parsed = syn::parse_file(text)
        .map_err(|e| anyhow::anyhow!("line {}: {e}", e.span().start().line))?;
    let mut finder = Finder::default();
    finder.visit_file(&parsed);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    found: Vec<Function>,
}

impl Finder {
    fn add(&mut self, signature: &syn::Signature, end: Span) {
        self.found.push(Function {
            name: signature.ident.to_string(),
            first_line: signature.span().start().line,
            last_line: end.end().line,
        });
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig, item.block.brace_token.span.close());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig, item.block.brace_token.span.close());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block.brace_token.span.close());
        }
        visit::visit_trait_item_fn(self, item);
    }
}
