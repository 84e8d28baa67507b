// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole screen: head, list, overlays and keys.

use super::app::{App, Over, Page};
use super::line::Column;
use super::paint::{cause_style, put, rows, MARKED};
use super::{bar, detail, help, table};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget};
use std::time::Duration;
use unspin_diagnosis::Cause;
use unspin_text::printable_lines;

const HEAD: u16 = 3;

pub fn draw(app: &mut App, every: Duration, area: Rect, buffer: &mut Buffer) {
    let last = area.height.saturating_sub(1);
    head(app, every, rows(area, 0, HEAD.min(last)), buffer);
    let middle = rows(area, HEAD, last);
    let list = match app.page {
        Page::Vms => middle,
        Page::Vcpus(_) => detail::split(app, middle, buffer),
    };
    table::draw(app, list, buffer);
    match app.over {
        Over::Help => help::draw(rows(area, 0, last), buffer),
        Over::Sort(marked) => menu(marked, middle, buffer),
        Over::List | Over::Filter => {}
    }
    foot(app, rows(area, last, area.height), buffer);
}

fn head(app: &App, every: Duration, area: Rect, buffer: &mut Buffer) {
    let what = match &app.after {
        None => "looking for VMs".to_string(),
        Some(sample) => {
            let vcpus: usize = sample.vms.iter().map(|vm| vm.process.vcpus.len()).sum();
            let module = if sample.facts.has_module() { "module loaded" } else { "no module" };
            let left_out = match sample.left_out {
                0 => String::new(),
                many => format!(" ({many} over the limit, not watched)"),
            };
            format!("{} VMs{left_out}, {vcpus} vCPUs, {module}", sample.vms.len())
        }
    };
    let pause = if app.is_paused { ", PAUSED" } else { "" };
    let text = format!("unspin top: {what}, every {} s{pause}", every.as_secs_f64());
    put(buffer, area, &text, Style::new().add_modifier(Modifier::BOLD));
    Text::from(legend()).render(rows(area, 1, 2), buffer);
    let third = match (app.page, &app.vm) {
        (Page::Vcpus(_), Some(vm)) => vm.title.clone(),
        _ if app.over == Over::Filter => format!("Filter: {}_", app.filter),
        _ if !app.filter.is_empty() => format!("Filter: {}", app.filter),
        _ => String::new(),
    };
    put(buffer, rows(area, 2, 3), &printable_lines(&third), Style::new());
}

/// Each cause with its letter in its name: `Contention Spin-switch ... mOnitor`.
fn legend() -> Vec<Span<'static>> {
    let part = |cause: &Cause| {
        let (letter, _) = bar::look(*cause);
        let (before, after) =
            cause.name().split_once(letter.to_ascii_lowercase()).unwrap_or_default();
        let letter = Span::styled(letter.to_string(), cause_style(*cause));
        [Span::raw(before), letter, Span::raw(format!("{after} "))]
    };
    Cause::ALL.iter().flat_map(part).collect()
}

fn foot(app: &App, area: Rect, buffer: &mut Buffer) {
    const F1: (&str, &str) = ("F1", "Help");
    const SORT: [(&str, &str); 4] =
        [("F6", "SortBy"), ("I", "Invert"), ("Z", "Pause"), ("F10", "Quit")];
    let keys: Vec<(&str, &str)> = match (app.over, app.page) {
        (Over::Help, _) => vec![("any key", "Back"), ("F10", "Quit")],
        (Over::Sort(_), _) => vec![("Enter", "Sort"), ("Esc", "Cancel")],
        (Over::Filter, _) => vec![("Enter", "Done"), ("Esc", "Clear")],
        (Over::List, Page::Vms) => [&[F1, ("F4", "Filter"), ("F5", "vCPUs")], &SORT[..]].concat(),
        (Over::List, Page::Vcpus(_)) => [&[F1, ("Esc", "VMs")], &SORT[..]].concat(),
    };
    let spans = keys
        .into_iter()
        .flat_map(|(key, what)| [Span::raw(key), Span::styled(format!("{what:<7}"), MARKED)]);
    Text::from_iter(spans).render(area, buffer);
}

fn menu(marked: usize, area: Rect, buffer: &mut Buffer) {
    let height = (Column::ALL.len() as u16 + 2).min(area.height);
    let area = Rect { width: 24.min(area.width), height, ..area };
    let line = |(i, column): (usize, &Column)| {
        let style = if i == marked { MARKED } else { Style::new() };
        Text::styled(format!("{:<22}", column.title()), style)
    };
    let lines: Vec<Text> = Column::ALL.iter().enumerate().map(line).collect();
    // Keep the marked line visible if not all lines fit.
    let scroll = (marked + 1).saturating_sub(height.saturating_sub(2).into()) as u16;
    Clear.render(area, buffer);
    let block = Block::bordered().title("Sort by");
    Paragraph::new(lines).block(block).scroll((scroll, 0)).render(area, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::top::app::tests::keys;
    use crate::watch::Synthetic;
    use proptest::prelude::*;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    fn app(vms: usize, vcpus: u32) -> App {
        let source = Synthetic::new(vms, vcpus);
        let mut app = App::new(Column::Lost, String::new());
        for second in [10, 11] {
            app.feed(source.at(Duration::from_secs(second)));
        }
        app
    }

    fn picture(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(app, Duration::from_secs(1), area, &mut buffer);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_string()).collect()
    }

    fn press(app: &mut App, key: KeyCode) {
        app.press(KeyEvent::new(key, KeyModifiers::NONE));
    }

    #[test]
    fn eighty_columns_have_all_that_matters() {
        let mut app = app(6, 4);
        let lines = picture(&mut app, 80, 24);
        let all = lines.join("\n");
        assert_eq!(lines[0], "unspin top: 6 VMs, 24 vCPUs, module loaded, every 1 s");
        for words in [
            "VM ",
            "vCPUs",
            "guest",
            "idle",
            "lost",
            "%RDY",
            "%CSTP",
            "mostly to",
            "Contention",
            "cacHe",
            "mOnitor",
            "F10Quit",
        ] {
            assert!(all.contains(words), "{words}: {all}");
        }
        let web = lines.iter().find(|line| line.starts_with("web1")).unwrap();
        assert!(web.contains("[CC ") && web.ends_with(" contention"), "{all}");
        press(&mut app, KeyCode::End);
        press(&mut app, KeyCode::Enter);
        let all = picture(&mut app, 80, 24).join("\n");
        for words in ["vCPU 3", "Esc", "No cause takes", "halted"] {
            assert!(all.contains(words), "{words}: {all}");
        }
        press(&mut app, KeyCode::F(1));
        let all = picture(&mut app, 80, 24).join("\n");
        for words in ["F10 q", "Z p Space", "ends with advice"] {
            assert!(all.contains(words), "{words}: {all}");
        }
    }

    #[test]
    fn wide_terminals_have_every_cause() {
        let lines = picture(&mut app(6, 4), 200, 60);
        let titles = lines.iter().find(|line| line.starts_with("VM ")).unwrap();
        assert!(Cause::ALL.iter().all(|cause| titles.contains(cause.name())), "{titles}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_draws_at_any_size_whatever_was_pressed(
            keys in keys(),
            vms in 0..30usize,
            vcpus in 1..40u32,
            width in 0..260u16,
            height in 0..90u16,
        ) {
            let mut app = app(vms, vcpus);
            for key in keys {
                press(&mut app, key);
                let all = picture(&mut app, width, height).concat();
                prop_assert!(!all.chars().any(char::is_control), "{all}");
            }
        }
    }
}
