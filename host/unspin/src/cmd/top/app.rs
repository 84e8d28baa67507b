// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the display, and the effect of keys.

use super::line::{is_called, Column, Line};
use crate::cmd::diagnose::show::OfVm;
use crate::cmd::written::Written;
use crate::cmd::{schedule, shape};
use crate::watch::{Running, Sample};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const FILTER_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Vms,
    /// The vCPUs of the VM of this process.
    Vcpus(u32),
}

/// The part that receives keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    List,
    Help,
    /// The choice of a sort column, with the index of the marked one.
    Sort(usize),
    Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Stay,
    Quit,
    Redraw,
    /// Until a key resumes it.
    Stop,
}

pub struct App {
    /// The last two samples.
    before: Option<Sample>,
    pub after: Option<Sample>,
    pub lines: Vec<Line>,
    /// The last decisions of `unspin shape`, if it runs.
    pub shaped: Option<Written<shape::Document>>,
    /// What `unspin schedule` does, if it runs.
    pub scheduled: Option<Written<schedule::Document>>,
    /// The facts about the VM whose vCPUs are shown.
    pub vm: Option<OfVm>,
    pub page: Page,
    pub over: Over,
    pub sort: Column,
    pub is_reversed: bool,
    pub filter: String,
    pub is_paused: bool,
    /// The id of the marked line, and its last position.
    marked: Option<u32>,
    pub at: usize,
    /// The position in the list of VMs while vCPUs are shown.
    vm_at: usize,
    /// Lines of a page when it was last drawn.
    pub page_lines: usize,
}

impl App {
    pub fn new(sort: Column, filter: String) -> App {
        App {
            before: None,
            after: None,
            lines: Vec::new(),
            shaped: None,
            scheduled: None,
            vm: None,
            page: Page::Vms,
            over: Over::List,
            sort,
            is_reversed: false,
            filter,
            is_paused: false,
            marked: None,
            at: 0,
            vm_at: 0,
            page_lines: 1,
        }
    }

    pub fn feed(&mut self, sample: Sample) {
        self.before = self.after.replace(sample);
        self.make_lines();
    }

    /// Whether there are figures; these need two samples.
    pub fn has_figures(&self) -> bool {
        self.before.is_some()
    }

    fn is_chosen(&self, vm: &Running) -> bool {
        is_called(&vm.process, &self.filter)
    }

    fn make_lines(&mut self) {
        if let (Page::Vcpus(pid), Some(after)) = (self.page, &self.after) {
            if !after.vms.iter().any(|vm| vm.process.pid == pid) {
                self.leave();
            }
        }
        let (mut lines, mut of_vm) = (Vec::new(), None);
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let is_shown = |vm: &&Running| match self.page {
                Page::Vms => self.is_chosen(vm),
                Page::Vcpus(pid) => vm.process.pid == pid,
            };
            for vm in after.vms.iter().filter(is_shown) {
                let Some(watched) = vm.between(&before.seen, &after.seen) else { continue };
                match self.page {
                    Page::Vms => lines.push(Line::of_vm(&watched, before, after)),
                    Page::Vcpus(_) => {
                        lines = Line::of_vcpus(&watched, before, after);
                        of_vm = Some(OfVm::new(&watched, before, after));
                    }
                }
            }
        }
        self.sort.sort(&mut lines, self.is_reversed);
        (self.lines, self.vm) = (lines, of_vm);
        self.mark_again();
    }

    /// Keeps the mark on its VM at the VM's new position, or at the old position if the VM has
    /// ended.
    fn mark_again(&mut self) {
        let same = self.lines.iter().position(|line| Some(line.id) == self.marked);
        self.mark(same.unwrap_or(self.at));
    }

    fn mark(&mut self, at: usize) {
        self.at = at.min(self.lines.len().saturating_sub(1));
        self.marked = self.lines.get(self.at).map(|line| line.id);
    }

    fn leave(&mut self) {
        if let Page::Vcpus(pid) = self.page {
            self.page = Page::Vms;
            (self.at, self.marked) = (self.vm_at, Some(pid));
        }
    }

    fn enter(&mut self) {
        if let (Page::Vms, Some(pid)) = (self.page, self.marked) {
            self.page = Page::Vcpus(pid);
            self.vm_at = self.at;
            (self.at, self.marked) = (0, None);
            self.make_lines();
        }
    }

    fn sort_by(&mut self, column: Column) {
        self.is_reversed = column == self.sort && !self.is_reversed;
        self.sort = column;
        self.make_lines();
    }

    pub fn press(&mut self, key: KeyEvent) -> Then {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Then::Quit,
                KeyCode::Char('l') => return Then::Redraw,
                KeyCode::Char('z') => return Then::Stop,
                _ => return Then::Stay,
            }
        }
        match self.over {
            Over::List => return self.press_list(key.code),
            Over::Help if key.code == KeyCode::F(10) => return Then::Quit,
            Over::Help => self.over = Over::List,
            Over::Sort(marked) => self.press_sort(key.code, marked),
            Over::Filter => self.press_filter(key.code),
        }
        Then::Stay
    }

    fn press_list(&mut self, key: KeyCode) -> Then {
        use KeyCode::*;
        match key {
            F(10) | Char('q') => return Then::Quit,
            F(1) | Char('h' | '?') => self.over = Over::Help,
            F(4) | Char('\\' | '/') if self.page == Page::Vms => self.over = Over::Filter,
            F(6) | Char('>' | '<' | '.' | ',') => {
                let marked = Column::ALL.iter().position(|column| *column == self.sort);
                self.over = Over::Sort(marked.unwrap_or(0));
            }
            F(5) | Enter | Right => self.enter(),
            Esc | Backspace | Left => {
                self.leave();
                self.make_lines();
            }
            Char('Z' | 'p' | ' ') => self.is_paused = !self.is_paused,
            Char('I') => {
                self.is_reversed = !self.is_reversed;
                self.make_lines();
            }
            Char('P') => self.sort_by(Column::Guest),
            Char('L') => self.sort_by(Column::Lost),
            Char('N') => self.sort_by(Column::Name),
            _ => self.move_mark(key),
        }
        Then::Stay
    }

    fn move_mark(&mut self, key: KeyCode) {
        let page = self.page_lines.max(1);
        let at = match key {
            KeyCode::Up | KeyCode::Char('k') => self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.at + 1,
            KeyCode::PageUp => self.at.saturating_sub(page),
            KeyCode::PageDown => self.at + page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => return,
        };
        self.mark(at);
    }

    fn press_sort(&mut self, key: KeyCode, marked: usize) {
        let last = Column::ALL.len() - 1;
        self.over = match key {
            KeyCode::Up | KeyCode::Char('k') => Over::Sort(marked.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Over::Sort((marked + 1).min(last)),
            KeyCode::Home => Over::Sort(0),
            KeyCode::End => Over::Sort(last),
            KeyCode::Enter | KeyCode::F(6) => {
                if Column::ALL[marked] != self.sort {
                    self.sort_by(Column::ALL[marked]);
                }
                Over::List
            }
            KeyCode::Esc | KeyCode::F(10) | KeyCode::Char('q') => Over::List,
            _ => Over::Sort(marked),
        };
    }

    fn press_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter | KeyCode::F(4) => self.over = Over::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.over = Over::List;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < FILTER_MAX && !c.is_control() => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.make_lines();
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::watch::Synthetic;
    use proptest::prelude::*;
    use std::time::Duration;

    fn app(vms: usize) -> App {
        let source = Synthetic::new(vms, 4);
        let mut app = App::new(Column::Lost, String::new());
        app.feed(source.at(Duration::from_secs(10)));
        assert!(!app.has_figures() && app.lines.is_empty());
        app.feed(source.at(Duration::from_secs(11)));
        app
    }

    fn press(app: &mut App, key: KeyCode) -> Then {
        app.press(KeyEvent::new(key, KeyModifiers::NONE))
    }

    fn type_in(app: &mut App, text: &str) {
        for c in text.chars() {
            press(app, KeyCode::Char(c));
        }
    }

    fn names(app: &App) -> Vec<&str> {
        app.lines.iter().map(|line| line.name.as_str()).collect()
    }

    #[test]
    fn lines_are_sorted_filtered_and_drilled_into() {
        let mut app = app(12);
        assert_eq!(&names(&app)[..2], ["hpc1", "hpc2"], "they lose most");
        type_in(&mut app, "N");
        assert!(names(&app)[0].starts_with("calm \\u{1b}[31m"));
        type_in(&mut app, "I");
        assert_eq!(names(&app)[0], "web2");
        press(&mut app, KeyCode::F(4));
        type_in(&mut app, "Dq");
        assert!(app.lines.is_empty(), "keys go to the filter");
        press(&mut app, KeyCode::Backspace);
        press(&mut app, KeyCode::Enter);
        assert_eq!(names(&app), ["db2", "db1"]);
        press(&mut app, KeyCode::Down);
        press(&mut app, KeyCode::F(5));
        assert_eq!(names(&app), ["vCPU 3", "vCPU 2", "vCPU 1", "vCPU 0"]);
        assert!(app.vm.as_ref().unwrap().sentence().contains("spinning in the guest kernel"));
        press(&mut app, KeyCode::Esc);
        assert_eq!((names(&app)[app.at], app.page), ("db1", Page::Vms));
    }

    #[test]
    fn a_column_is_chosen_from_a_menu() {
        let mut app = app(6);
        press(&mut app, KeyCode::F(6));
        press(&mut app, KeyCode::Down);
        press(&mut app, KeyCode::Enter);
        assert_eq!((app.sort, app.over), (Column::Contention, Over::List));
        assert_eq!(names(&app)[0], "web1");
    }

    #[test]
    fn the_mark_stays_on_its_vm() {
        let source = Synthetic::new(12, 1);
        let mut app = App::new(Column::Name, String::new());
        for second in [1, 2] {
            app.feed(source.at(Duration::from_secs(second)));
        }
        press(&mut app, KeyCode::End);
        assert_eq!(names(&app)[app.at], "web2");
        press(&mut app, KeyCode::Enter);
        // The VM ends while its vCPUs are shown.
        let fewer = Synthetic::new(6, 1);
        app.feed(fewer.at(Duration::from_secs(3)));
        assert_eq!((app.page, names(&app)[app.at]), (Page::Vms, "web1"));
        // No VM is left, and others start.
        app.feed(Synthetic::new(0, 1).at(Duration::from_secs(4)));
        assert!(app.lines.is_empty());
        for second in [5, 6] {
            app.feed(source.at(Duration::from_secs(second)));
        }
        assert_eq!(app.lines.len(), 12);
    }

    pub fn keys() -> impl Strategy<Value = Vec<KeyCode>> {
        use KeyCode::*;
        let named =
            [Up, Down, PageUp, PageDown, Home, End, Enter, Esc, Left, Right, Backspace, Tab];
        let key = prop_oneof![
            prop::sample::select(named.to_vec()),
            (1..12u8).prop_map(F),
            prop::char::range(' ', '~').prop_map(Char),
            any::<char>().prop_map(Char),
        ];
        prop::collection::vec(key, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_keys_confuse_it(keys in keys(), vms in 0..8usize) {
            let mut app = app(vms);
            let more = Synthetic::new(vms / 2, 2);
            for (time, key) in (12..).zip(keys) {
                press(&mut app, key);
                if key == KeyCode::Char('a') {
                    app.feed(more.at(Duration::from_secs(time)));
                }
                prop_assert!(app.at < app.lines.len().max(1));
                prop_assert!(app.filter.chars().count() <= FILTER_MAX);
                if app.page == Page::Vms {
                    prop_assert!(app.vm.is_none());
                }
            }
        }
    }
}
