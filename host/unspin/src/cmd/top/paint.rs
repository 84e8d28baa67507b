// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drawing helpers: colours, parts of areas, lines of text.

use super::bar;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use unspin_diagnosis::Cause;

/// htop's style of marked lines and titles.
pub const MARKED: Style = Style::new().fg(Color::Black).bg(Color::Cyan);
pub const TITLES: Style = Style::new().fg(Color::Black).bg(Color::Green);

/// Writes text into the first line of an area, cut at the end of the area.
pub fn put(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    if !area.is_empty() {
        buffer.set_stringn(area.x, area.y, text, area.width.into(), style);
    }
}

/// The lines `from` up to `to` of an area, as far as it has them.
pub fn rows(area: Rect, from: u16, to: u16) -> Rect {
    let (from, to) = (from.min(area.height), to.min(area.height));
    Rect { y: area.y + from, height: to.saturating_sub(from), ..area }
}

pub fn cause_style(cause: Cause) -> Style {
    Style::new().fg(Color::Black).bg(bar::look(cause).1)
}
