// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of VMs, or of a VM's vCPUs: a line each, as far as there is room.

use super::app::{App, Page};
use super::bar;
use super::line::{total, Line};
use super::paint::{cause_style, put, rows, MARKED, TITLES};
use crate::fit::cut_apart;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unspin_diagnosis::Cause;

/// From this width on there is a column per cause.
const ALL_CAUSES_WIDTH: u16 = 186;
/// From this width on there is a column for %MLMTD.
const LIMIT_WIDTH: u16 = 90;

const NUMBER: u16 = 6;
const WORD: u16 = 7;
const CAUSE: u16 = 12;

struct Columns {
    name: Rect,
    numbers: Rect,
    words: Rect,
    causes: Option<Rect>,
    bar: Rect,
    dominant: Rect,
}

/// Takes up to `width` columns from the left of an area.
fn take(left: &mut Rect, width: u16) -> Rect {
    let width = width.min(left.width);
    let taken = Rect { width, ..*left };
    left.x += width;
    left.width -= width;
    taken
}

impl Columns {
    fn new(area: Rect) -> Columns {
        let is_wide = area.width >= ALL_CAUSES_WIDTH;
        let mut left = area;
        let name = take(&mut left, if is_wide { 36 } else { 17 });
        let numbers = take(&mut left, 4 * NUMBER);
        let words = if area.width >= LIMIT_WIDTH { 3 * WORD } else { 2 * WORD };
        let words = take(&mut left, words);
        let causes = is_wide.then(|| take(&mut left, CAUSE * Cause::ALL.len() as u16));
        let bar_width = left.width.saturating_sub(CAUSE);
        let bar = take(&mut left, bar_width);
        Columns { name, numbers, words, causes, bar, dominant: left }
    }

    fn at(&self, y: u16) -> Columns {
        let at = |area: Rect| Rect { y, height: 1, ..area };
        Columns {
            name: at(self.name),
            numbers: at(self.numbers),
            words: at(self.words),
            causes: self.causes.map(at),
            bar: at(self.bar),
            dominant: at(self.dominant),
        }
    }
}

/// Numbers side by side, each right-aligned in its column.
fn numbers(buffer: &mut Buffer, area: Rect, width: u16, texts: &[String], style: Style) {
    let mut left = area;
    for text in texts {
        let column = take(&mut left, width);
        put(buffer, column, &format!("{text:>0$}", usize::from(width)), style);
    }
}

fn plain(percent: Option<f64>) -> String {
    percent.map_or_else(|| "?".into(), |percent| format!("{percent:.1}"))
}

pub fn draw(app: &mut App, area: Rect, buffer: &mut Buffer) {
    app.page_lines = area.height.saturating_sub(1).into();
    let columns = Columns::new(area);
    titles(app.page, &columns, rows(area, 0, 1), buffer);
    let body = rows(area, 1, area.height);
    if app.lines.is_empty() {
        let text = match &app.after {
            Some(sample) if sample.vms.is_empty() => "no VM runs on this host",
            Some(_) if app.has_figures() && !app.filter.is_empty() => "no VM name matches",
            _ => "watching",
        };
        return put(buffer, body, text, Style::new());
    }
    let first = (app.at + 1).saturating_sub(body.height.into());
    let names = names(&app.lines, columns.name);
    let shown = app.lines.iter().zip(&names).enumerate().skip(first).take(body.height.into());
    for (y, (index, (line, name))) in (body.y..).zip(shown) {
        let style = if index == app.at { MARKED } else { Style::new() };
        buffer.set_style(Rect { y, height: 1, ..body }, style);
        draw_line(line, name, &columns.at(y), style, buffer);
    }
}

/// The names of lines, cut to the column so that they stay distinguishable.
fn names(lines: &[Line], column: Rect) -> Vec<String> {
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let selectors: Vec<String> = lines.iter().map(|line| format!("pid:{}", line.id)).collect();
    cut_apart(&names, &selectors, column.width.saturating_sub(1).into())
}

fn titles(page: Page, columns: &Columns, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let columns = columns.at(area.y);
    buffer.set_style(area, TITLES);
    let name = if page == Page::Vms { "VM" } else { "vCPU" };
    put(buffer, columns.name, name, TITLES);
    let texts = ["vCPUs", "guest", "idle", "lost"].map(String::from);
    numbers(buffer, columns.numbers, NUMBER, &texts, TITLES);
    let texts = ["%RDY", "%CSTP", "%MLMTD"].map(String::from);
    numbers(buffer, columns.words, WORD, &texts, TITLES);
    if let Some(area) = columns.causes {
        numbers(buffer, area, CAUSE, &Cause::ALL.map(|cause| cause.name().to_string()), TITLES);
    }
    put(buffer, columns.bar, "  lost to", TITLES);
    put(buffer, columns.dominant, " mostly to", TITLES);
}

fn draw_line(line: &Line, name: &str, columns: &Columns, style: Style, buffer: &mut Buffer) {
    let of_name = Rect { width: columns.name.width.saturating_sub(1), ..columns.name };
    put(buffer, of_name, name, style);
    let shares = [line.guest, line.idle, total(&line.lost)]
        .map(|share| plain(share.map(|share| 100.0 * share)));
    let texts = [&[line.vcpus.to_string()], &shares[..]].concat();
    numbers(buffer, columns.numbers, NUMBER, &texts, style);
    let words = [line.words.ready_pct, line.words.costop_pct, line.words.limit_pct];
    let words = words.map(plain);
    numbers(buffer, columns.words, WORD, &words, style);
    if let Some(area) = columns.causes {
        let texts: Vec<String> =
            line.lost.iter().map(|lost| plain(lost.map(|share| 100.0 * share))).collect();
        numbers(buffer, area, CAUSE, &texts, style);
    }
    draw_bar(line, columns.bar, style, buffer);
    put(buffer, columns.dominant, &format!(" {}", line.mostly()), style);
}

/// ` [CCCSS     ]`: the brackets enclose the whole wall time.
fn draw_bar(line: &Line, area: Rect, style: Style, buffer: &mut Buffer) {
    let Some(width) = area.width.checked_sub(3) else { return };
    put(buffer, area, &format!(" [{}]", " ".repeat(width.into())), style);
    let mut left = Rect { x: area.x + 2, width, ..area };
    for (cause, cells) in bar::cells(&line.lost, width) {
        let part = take(&mut left, cells);
        let text = bar::look(cause).0.to_string().repeat(cells.into());
        put(buffer, part, &text, cause_style(cause));
    }
}
