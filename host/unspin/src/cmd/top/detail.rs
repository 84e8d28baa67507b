// SPDX-License-Identifier: MIT OR Apache-2.0
//! The facts about one VM, below its vCPUs: diagnosis, states and advice.

use super::app::App;
use super::paint::rows;
use crate::cmd::diagnose::show::OfVm;
use crate::cmd::diagnose::table::STATE_SHARE_MIN;
use crate::fit::percent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line as Text;
use ratatui::widgets::{Block, Borders, Paragraph, Widget, Wrap};
use unspin_text::printable_lines;

/// Lines that it always gets, if the screen has as many.
const LINES_MIN: u16 = 11;

/// Draws it at the bottom of an area. Returns the rest of the area, for the vCPUs.
pub fn split(app: &App, area: Rect, buffer: &mut Buffer) -> Rect {
    let Some(vm) = &app.vm else { return area };
    let wanted = u16::try_from(app.lines.len() + 1).unwrap_or(u16::MAX);
    let list = wanted.min(area.height.saturating_sub(LINES_MIN).max(area.height / 2));
    let text = |(text, style): (String, Style)| Text::styled(printable_lines(&text), style);
    Paragraph::new(lines(app, vm).into_iter().map(text).collect::<Vec<_>>())
        .wrap(Wrap { trim: false })
        .block(Block::new().borders(Borders::TOP))
        .render(rows(area, list, area.height), buffer);
    rows(area, 0, list)
}

fn lines(app: &App, vm: &OfVm) -> Vec<(String, Style)> {
    let states = vm.did.times.spent().filter_map(|(state, _)| {
        let share = vm.did.share(&[state]);
        (share >= STATE_SHARE_MIN).then(|| format!("{} {}", state.name(), percent(share)))
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        (vm.sentence(), Style::new().add_modifier(Modifier::BOLD)),
        (vm.in_words(), Style::new()),
        (format!("States: {states}."), Style::new()),
    ];
    lines.splice(2..2, vm.takers().map(|takers| (takers, Style::new())));
    let shaped = app.shaped.iter().flat_map(|shaped| shaped.document.of_process(vm.pid));
    lines.extend(shaped.map(|line| (line, Style::new())));
    let scheduled = app.scheduled.iter().filter_map(|of| of.document.of_process(vm.pid));
    lines.extend(scheduled.map(|line| (line, Style::new())));
    for advice in &vm.advice {
        lines.push((format!("* {}: {}", advice.what, advice.expected), Style::new()));
    }
    lines
}
