// SPDX-License-Identifier: MIT OR Apache-2.0
//! One page that holds everything and fetches nothing.

use crate::show::charts::charts;
use crate::show::place::{origin, percent};
use crate::show::svg::Kind;
use crate::summary::Document;
use minijinja::{context, Environment, Value};

const PAGE: &str = include_str!("page.html");

/// The page of all documents.
pub fn html(docs: &[Document]) -> String {
    let mut env = Environment::new();
    env.add_filter("percent", |x: Option<f64>| percent(x));
    env.add_filter("fixed", |x: Option<f64>, places: usize| {
        x.map_or("–".to_string(), |x| format!("{x:.places$}"))
    });
    env.add_filter(
        "known",
        |v: Value| {
            if v.is_none() || v.is_undefined() {
                Value::from("–")
            } else {
                v
            }
        },
    );
    let docs: Vec<Value> = docs.iter().map(view).collect();
    let page =
        env.template_from_named_str("page.html", PAGE).and_then(|t| t.render(context! { docs }));
    match page {
        Ok(p) => p,
        Err(e) => format!(
            "<!doctype html><title>unspin</title><pre>the page could not be made: {e:#}</pre>"
        ),
    }
}

fn view(d: &Document) -> Value {
    let charts = charts(d);
    let of = |kind: Kind| -> Vec<Value> {
        charts
            .iter()
            .filter(|c| c.kind == kind)
            .map(|c| context! { title => c.title, svg => Value::from_safe_string(c.svg.clone()) })
            .collect()
    };
    context! {
        s => Value::from_serialize(&d.summary),
        origin => origin(&d.summary),
        baseline => d.summary.arms.first().map(|r| r.key.baseline.clone()),
        performance => of(Kind::Performance),
        inefficiency => of(Kind::Inefficiency),
        window => of(Kind::Window),
        yields => of(Kind::Yields),
        waits => of(Kind::Waits),
    }
}
