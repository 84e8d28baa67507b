// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics as text: OpenMetrics 1.0, or Prometheus's older text format 0.0.4 on request.

use std::fmt::{Display, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// The format for a client's `Accept` header: OpenMetrics if the header names it and prefers no other
    /// format that it names. Others, such as curl, may know only the older format.
    pub fn of_accept(accept: Option<&str>) -> Format {
        let open = quality(accept, "application/openmetrics-text");
        match open > 0.0 && open >= quality(accept, "text/plain") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The quality value of `wanted`, 0 to 1; 0 if the header does not name it, or not with a number.
fn quality(accept: Option<&str>, wanted: &str) -> f64 {
    let weight = |word: &str| {
        let (key, value) = word.split_once('=')?;
        key.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f64>().ok())
    };
    let of_part = |part: &str| {
        let mut words = part.split(';').map(str::trim);
        let of = words.next().unwrap_or_default();
        let q = words.find_map(weight).unwrap_or(Some(1.0)).filter(|q| q.is_finite());
        of.eq_ignore_ascii_case(wanted).then(|| q.unwrap_or(0.0).clamp(0.0, 1.0))
    };
    accept.unwrap_or_default().split(',').filter_map(of_part).fold(0.0, f64::max)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Never decreases. Its samples end in `_total`.
    Counter,
    Gauge,
    /// Always 1; its labels carry the information. Its samples end in `_info`.
    Info,
}

/// Writes families of metrics, each with its samples.
pub struct Text {
    text: String,
    format: Format,
    /// The name of this family's samples.
    name: String,
}

impl Text {
    pub fn new(format: Format) -> Text {
        Text { text: String::new(), format, name: String::new() }
    }

    /// Begins a family. `name` is without the suffix of its kind, `help` is a phrase.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.name = match kind {
            Kind::Counter => format!("{name}_total"),
            Kind::Gauge => name.to_string(),
            Kind::Info => format!("{name}_info"),
        };
        let (name, kind) = match (self.format, kind) {
            (Format::OpenMetrics, Kind::Counter) => (name, "counter"),
            (Format::OpenMetrics, Kind::Info) => (name, "info"),
            (Format::Prometheus, Kind::Counter) => (self.name.as_str(), "counter"),
            (_, Kind::Gauge) | (Format::Prometheus, Kind::Info) => (self.name.as_str(), "gauge"),
        };
        // In the older format, quotes in a help text are not escaped.
        let help = match self.format {
            Format::OpenMetrics => escaped(help),
            Format::Prometheus => escaped(help).replace("\\\"", "\""),
        };
        let _ = writeln!(self.text, "# TYPE {name} {kind}\n# HELP {name} {help}.");
    }

    /// Adds a sample to the last family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    pub fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses a sample's line as a scraper does.
    fn parse(line: &str) -> (String, Vec<(String, String)>, f64) {
        let (name, mut rest) = line.split_once('{').unwrap();
        let mut labels = Vec::new();
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c => c,
                    }),
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_string(), value));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        (name.to_string(), labels, rest.strip_prefix("} ").unwrap().parse().unwrap())
    }

    #[test]
    fn formats_differ_in_their_heads() {
        let both = [Format::OpenMetrics, Format::Prometheus].map(|format| {
            let mut text = Text::new(format);
            text.family("a_seconds", Kind::Counter, "so \"long\"");
            text.sample(&[("x", "1")], seconds(1_000_000_007));
            text.family("b", Kind::Info, "it");
            text.sample(&[], 1);
            text.end()
        });
        assert_eq!(
            both[0],
            "# TYPE a_seconds counter\n# HELP a_seconds so \\\"long\\\".\n\
             a_seconds_total{x=\"1\"} 1.000000007\n# TYPE b info\n# HELP b it.\nb_info 1\n# EOF\n"
        );
        assert_eq!(
            both[1],
            "# TYPE a_seconds_total counter\n# HELP a_seconds_total so \"long\".\n\
             a_seconds_total{x=\"1\"} 1.000000007\n# TYPE b_info gauge\n# HELP b_info it.\nb_info 1\n"
        );
    }

    #[test]
    fn openmetrics_is_for_those_who_name_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            prometheus,
            "Application/OpenMetrics-Text",
            "text/plain;q=1000, application/openmetrics-text",
            "text/plain; Q = 0.5, application/openmetrics-text; q = 0.6",
            "text/plain;q=0.2, \
                       application/openmetrics-text; version=1.0.0; q=0.3",
        ] {
            assert_eq!(Format::of_accept(Some(accept)), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "*/*",
            "",
            "text/plain;version=0.0.4",
            "text/html, */*",
            "Text/Plain",
            "application/openmetrics-text;q=0",
            "text/plain;q=0.6, \
                       application/openmetrics-text;q=0.5",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;Q=0",
            "application/openmetrics-text; q = 0",
            "application/openmetrics-text;q=NaN",
            "application/openmetrics-text;q=inf",
            "application/openmetrics-text;q=-1",
        ] {
            assert_eq!(Format::of_accept(Some(accept)), Format::Prometheus, "{accept}");
        }
        assert_eq!(Format::of_accept(None), Format::Prometheus);
    }

    proptest! {
        #[test]
        fn any_value_of_a_label_comes_back(first: String, second: String, number in 0..u64::MAX) {
            let mut text = Text::new(Format::OpenMetrics);
            text.family("f", Kind::Counter, "f");
            let head = text.text.len();
            text.sample(&[("one", &first), ("two", &second)], number);
            let line = &text.text[head..];
            prop_assert_eq!(line.matches('\n').count(), 1);
            let (name, labels, value) = parse(line.trim_end_matches('\n'));
            prop_assert_eq!(name, "f_total");
            prop_assert_eq!(labels, [("one".into(), first), ("two".into(), second)]);
            prop_assert_eq!(value, number as f64);
        }

        #[test]
        fn seconds_are_exact(ns: u64) {
            let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
            let text = seconds(ns);
            let (a, b) = text.split_once('.').unwrap();
            prop_assert_eq!((a.parse::<u64>().unwrap(), b.parse::<u64>().unwrap()), (whole, part));
            prop_assert_eq!(b.len(), 9);
        }
    }
}
