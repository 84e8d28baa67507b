// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plot of any series: lines if every x is a number, bars if they are names.

use crate::show::bars::{draw, Bar};
use crate::show::place::distinct;
use crate::show::svg::{colour, curve, Axis, Svg, LEFT, RIGHT, WIDTH};

/// A line, or the bars of one colour.
#[derive(Debug, Clone, PartialEq)]
pub struct PlotSeries {
    pub name: String,
    pub points: Vec<(String, f64)>,
}

/// What to draw.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plot {
    pub title: String,
    /// Names of the axes.
    pub x: String,
    pub y: String,
    pub series: Vec<PlotSeries>,
}

/// Draws the plot. Negative values are drawn at zero, NaN is left out.
pub fn plot_svg(plot: &Plot) -> String {
    let mut svg = Svg::of_width(WIDTH, 0.0);
    let names: Vec<&str> = plot.series.iter().map(|s| s.name.as_str()).collect();
    let top = svg.legend(&names);
    let bottom = top + 250.0;
    svg.height = bottom + 44.0;
    let values = || plot.series.iter().flat_map(|s| &s.points).map(|(_, y)| *y);
    let most = values().filter(|y| y.is_finite()).fold(0.0, f64::max);
    let axis = Axis::new(most, bottom, top + 6.0);
    axis.draw(&mut svg, |v| if v >= 100.0 { format!("{v:.0}") } else { format!("{v:.2}") });
    svg.text((LEFT + WIDTH - RIGHT) / 2.0, bottom + 38.0, "middle", &plot.x);
    svg.text(LEFT, top, "start", &plot.y);
    let xs: Option<Vec<f64>> = (plot.series.iter().flat_map(|s| &s.points))
        .map(|(x, _)| x.parse().ok().filter(|x: &f64| x.is_finite()))
        .collect();
    match xs {
        Some(xs) if !xs.is_empty() => lines(&mut svg, plot, &names, &axis, &xs, bottom),
        _ => bars(&mut svg, plot, &names, &axis),
    }
    svg.finish(&plot.title)
}

fn lines(svg: &mut Svg, plot: &Plot, names: &[&str], axis: &Axis, xs: &[f64], bottom: f64) {
    let least = xs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Windows, for example, span several powers of two.
    let is_log = least > 0.0 && most / least > 16.0;
    let scale = |x: f64| if is_log { x.ln() } else { x };
    let width = (scale(most) - scale(least)).max(f64::MIN_POSITIVE);
    let at =
        |x: f64| LEFT + 10.0 + (scale(x) - scale(least)) / width * (WIDTH - LEFT - RIGHT - 20.0);
    let mut marks: Vec<f64> = xs.to_vec();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let every = marks.len().div_ceil(14);
    for x in marks.iter().step_by(every) {
        svg.text(at(*x), bottom + 18.0, "middle", &format!("{x}"));
    }
    for (i, s) in plot.series.iter().enumerate() {
        let points: Vec<String> = (s.points.iter())
            .filter_map(|(x, y)| Some((x.parse::<f64>().ok()?, *y)))
            .filter(|(_, y)| y.is_finite())
            .map(|(x, y)| format!("{:.1},{:.1}", at(x), axis.y(y)))
            .collect();
        curve(svg, colour(names, i), &points.join(" "), &s.name);
    }
}

fn bars(svg: &mut Svg, plot: &Plot, names: &[&str], axis: &Axis) {
    let groups = distinct(plot.series.iter().flat_map(|s| &s.points).map(|(x, _)| x.as_str()));
    let mut all = Vec::new();
    for (n, s) in plot.series.iter().enumerate() {
        for (x, value) in s.points.iter().filter(|(_, y)| y.is_finite()) {
            let at = groups.iter().position(|g| g == x).unwrap_or(0);
            let tip = format!("{x} {}: {value:.3}", s.name);
            all.push((at, n, Bar { value: *value, ends: None, tip }));
        }
    }
    draw(svg, axis, &groups, names, &all);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(&str, f64)]) -> String {
        let points = points.iter().map(|(x, y)| (x.to_string(), *y)).collect();
        let series = vec![PlotSeries { name: "a<b".to_string(), points }];
        plot_svg(&Plot { title: "t".into(), x: "x".into(), y: "y".into(), series })
    }

    #[test]
    fn numbers_make_lines_and_names_make_bars() {
        let line = plot(&[("512", 1.0), ("32768", 0.5)]);
        assert_eq!((line.matches("<polyline").count(), line.matches("<title>").count()), (1, 2));
        let bars = plot(&[("ebizzy", 1.0), ("dbench", 0.5)]);
        assert_eq!((bars.matches("<polyline").count(), bars.matches("<rect").count()), (0, 3));
        assert!(bars.contains("a&lt;b") && !bars.contains("a<b"));
    }

    #[test]
    fn what_is_no_number_is_not_drawn() {
        let text = plot(&[("1", f64::NAN), ("2", 1.0), ("3", f64::INFINITY)]);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert!(!plot(&[]).contains("NaN"));
    }
}
