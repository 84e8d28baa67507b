// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal while top uses it. It is restored in every case.

use anyhow::{bail, Context};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    disable_raw_mode, enable_raw_mode, EnterAlternateScreen, LeaveAlternateScreen,
};
use ratatui::Terminal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;
use std::fs::File;
use std::io::{stdin, stdout, IsTerminal, Stdout};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

pub struct Signals {
    end: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Signals {
    pub fn take() -> anyhow::Result<Signals> {
        let flag = |signals: &[i32]| {
            let flag = Arc::new(AtomicBool::new(false));
            for signal in signals {
                let taken = signal_hook::flag::register(*signal, Arc::clone(&flag));
                taken.context("cannot take signals")?;
            }
            anyhow::Ok(flag)
        };
        let end = flag(&[SIGINT, SIGTERM, SIGHUP])?;
        Ok(Signals { end, stop: flag(&[SIGTSTP])?, go_on: flag(&[SIGCONT])? })
    }

    pub fn is_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Requests a stop as SIGTSTP does: the terminal sends no such signal while top uses it.
    pub fn ask_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops if requested. Returns whether the terminal must be set up again, because other programs
    /// used it while we were stopped, by this signal or by SIGSTOP.
    pub fn had_stop(&self) -> anyhow::Result<bool> {
        if self.stop.swap(false, Ordering::Relaxed) {
            give_back();
            emulate_default_handler(SIGTSTP).context("cannot stop")?;
            self.go_on.store(true, Ordering::Relaxed);
        }
        Ok(self.go_on.swap(false, Ordering::Relaxed))
    }
}

/// Where the terminal library reads keys.
fn keys() -> anyhow::Result<OwnedFd> {
    if stdin().is_terminal() {
        return stdin().as_fd().try_clone_to_owned().context("cannot read keys");
    }
    Ok(File::open("/dev/tty").context("cannot open the terminal, /dev/tty")?.into())
}

/// Restores the terminal when dropped.
pub struct Taken {
    pub screen: Terminal<CrosstermBackend<Stdout>>,
    keys: OwnedFd,
}

impl Taken {
    pub fn new() -> anyhow::Result<Taken> {
        give_back_in_panics();
        let keys = keys()?;
        end_with_the_terminal(keys.as_raw_fd());
        take()?;
        let screen = Terminal::new(CrosstermBackend::new(stdout()));
        let screen = screen.inspect_err(|_| give_back()).context("cannot draw on the terminal")?;
        Ok(Taken { screen, keys })
    }

    /// Waits up to `left` for a key, a new size of the terminal or a signal. Returns whether there is
    /// an event. Fails if the terminal was closed, because the library would then read for ever.
    pub fn wait(&self, left: Duration) -> anyhow::Result<bool> {
        let mut keys = libc::pollfd { fd: self.keys.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = left.as_millis().min(i32::MAX as u128) as i32;
        // SAFETY: one structure, which outlives the call.
        let found = unsafe { libc::poll(&mut keys, 1, ms) };
        if keys.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
            bail!("the terminal was closed");
        }
        // The interrupting signal (found < 0) may be a change of the terminal's size.
        Ok(found != 0 && event::poll(Duration::ZERO).context("cannot read keys")?)
    }

    /// Sets up the terminal again after other programs used it.
    pub fn take_again(&mut self) -> anyhow::Result<()> {
        take()?;
        self.screen.clear().context("cannot clear the terminal")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Ends the program if the terminal is closed while the library reads it: the library would read for
/// ever. While it does not read, [`Taken::wait`] notices first.
fn end_with_the_terminal(fd: RawFd) {
    const SOONER: Duration = Duration::from_secs(2);
    std::thread::spawn(move || {
        let mut keys = libc::pollfd { fd, events: 0, revents: 0 };
        // SAFETY: one structure, which outlives the call. Signals interrupt it.
        while unsafe { libc::poll(&mut keys, 1, -1) } <= 0 {}
        std::thread::sleep(SOONER);
        std::process::exit(crate::exit::FAILED.into());
    });
}

fn take() -> anyhow::Result<()> {
    let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
    taken.inspect_err(|_| give_back()).context("cannot take the terminal")
}

/// A failure here cannot be reported.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Restores the terminal before a panic's message, which would be lost with the alternate screen.
fn give_back_in_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}
