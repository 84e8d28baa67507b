// SPDX-License-Identifier: MIT OR Apache-2.0
//! A single page with all contents, which loads nothing else.

use crate::show::bands;
use crate::show::charts::charts;
use crate::show::place::{count, origin, percent, places, rows_at};
use crate::show::shares::shares;
use crate::show::svg::Kind;
use crate::show::verdict::verdict;
use crate::show::windows::{adapting, still};
use crate::summary::{Document, Place, Row, Summary};
use minijinja::{context, Environment, Value};

const PAGE: &str = include_str!("page.html");

/// The page of all documents.
pub fn html(docs: &[Document]) -> String {
    let mut env = Environment::new();
    env.add_filter("count", |n: usize, what: &str| count(n as u32, what));
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
            .map(|c| {
                let svg = Value::from_safe_string(c.svg.clone());
                context! { title => c.title, is_wide => c.is_wide(), svg }
            })
            .collect()
    };
    let s = &d.summary;
    let whole: Vec<&Row> = s.arms.iter().filter(|r| r.key.is_whole()).collect();
    let still_at = |place: &Place| {
        let at = bands::heading(place);
        still(&rows_at(s, place)).into_iter().map(move |what| format!("{at}: {what}"))
    };
    context! {
        adapting => Value::from_serialize(adapting(&whole)),
        shares => Value::from_serialize(shares(s)),
        still => places(s).iter().flat_map(still_at).collect::<Vec<String>>(),
        s => Value::from_serialize(s),
        origin => origin(s),
        verdict => verdict(s),
        made => if s.machine == "sim" { "Simulated" } else { "Measured" },
        baseline => s.arms.first().map(|r| r.key.baseline.clone()),
        performance => of(Kind::Performance),
        bands => of(Kind::Bands),
        band_head => bands::HEAD,
        band_places => band_places(s),
        worlds => bands::made(s),
        inefficiency => of(Kind::Inefficiency),
        window => of(Kind::Window),
        yields => of(Kind::Yields),
        waits => of(Kind::Waits),
    }
}

/// Tables and sentences about bands, point by point.
fn band_places(s: &Summary) -> Vec<Value> {
    let of = |place: &Place| {
        let lines = bands::lines(s, place);
        let sentences = bands::sentences(s, place);
        (!lines.is_empty()).then(|| context! { heading => bands::heading(place), lines, sentences })
    };
    places(s).iter().filter_map(of).collect()
}
