// SPDX-License-Identifier: MIT OR Apache-2.0
//! A heat map: panels of cells. The colour of a cell shows a ratio, on a logarithmic scale around
//! 1.

use crate::show::svg::escape;
use std::fmt::Write;

/// One value of a panel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cell {
    /// A ratio; 1 is white.
    pub value: f64,
    /// An uncertain value is grey.
    pub certain: bool,
}

/// Rows by name, one cell per column; `None` was not measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub title: String,
    pub rows: Vec<(String, Vec<Option<Cell>>)>,
}

const CELL_WIDTH: usize = 52;
const CELL_HEIGHT: usize = 18;
const NAMES_WIDTH: usize = 150;
const GAP: usize = 16;
const TOP: usize = 28;
/// The ratio with the darkest colour; its inverse has the darkest colour of the other kind.
const DARKEST: f64 = 4.0;

/// The picture as SVG, with two panels per row.
pub(crate) fn heat_map(title: &str, columns: &[String], panels: &[Panel]) -> String {
    let rows = panels.iter().map(|p| p.rows.len()).max().unwrap_or(0);
    let panel_width = NAMES_WIDTH + columns.len() * CELL_WIDTH + GAP;
    let panel_height = (rows + 2) * CELL_HEIGHT + GAP;
    let (width, height) =
        (panel_width * panels.len().min(2), TOP + panel_height * panels.len().div_ceil(2));
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"13\">{}</text>",
        escape(title)
    );
    for (i, panel) in panels.iter().enumerate() {
        let (x, y) = (i % 2 * panel_width, TOP + i / 2 * panel_height);
        panel_at(&mut svg, x, y, columns, panel);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel_at(svg: &mut String, left: usize, top: usize, columns: &[String], panel: &Panel) {
    let cells = left + NAMES_WIDTH;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        left + 8,
        top + 14,
        escape(&panel.title)
    );
    for (i, name) in columns.iter().enumerate() {
        let x = cells + i * CELL_WIDTH + CELL_WIDTH / 2;
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            top + CELL_HEIGHT + 12,
            escape(name)
        );
    }
    for (j, (name, row)) in panel.rows.iter().enumerate() {
        let y = top + (j + 2) * CELL_HEIGHT;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            cells - 6,
            y + 13,
            escape(name)
        );
        for (i, cell) in row.iter().enumerate() {
            let Some(cell) = cell else { continue };
            let x = cells + i * CELL_WIDTH;
            let ink = if cell.certain { "#000" } else { "#777" };
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL_WIDTH}\" height=\"{CELL_HEIGHT}\" fill=\"{}\" \
                 stroke=\"#fff\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{:.2}</text>",
                colour(cell.value),
                x + CELL_WIDTH / 2,
                y + 13,
                cell.value
            );
        }
    }
}

/// Blue above 1, orange below: distinguishable with red-green blindness.
fn colour(ratio: f64) -> String {
    let depth = (ratio.max(1e-9).ln() / DARKEST.ln()).clamp(-1.0, 1.0);
    let end = if depth > 0.0 { [86.0, 160.0, 211.0] } else { [230.0, 140.0, 60.0] };
    let [r, g, b] = end.map(|c: f64| 255.0 + (c - 255.0) * depth.abs());
    format!("#{:02x}{:02x}{:02x}", r as u8, g as u8, b as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_say_which_side_of_one() {
        assert_eq!(colour(1.0), "#ffffff");
        assert_eq!(colour(DARKEST), colour(100.0));
        assert_eq!(colour(0.0), colour(1.0 / DARKEST));
        assert_ne!(colour(2.0), colour(0.5));
        assert_ne!(colour(2.0), colour(1.1));
    }
}
