// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of a refresh with 500 vCPUs: looking at threads, reading the kernel's counts, judging
//! causes, and drawing.

use super::app::App;
use super::draw;
use super::line::Column;
use crate::watch::facts::Detail;
use crate::watch::{Kernel, Source, Synthetic};
use ratatui::backend::TestBackend;
use ratatui::Terminal;
use std::sync::mpsc::{channel, Sender};
use std::time::Duration;
use unspin_cli::fake::Fake;

const VMS: usize = 125;
const VCPUS: usize = 4;
const REFRESHES: u32 = 20;

/// Limit as a share of a core, with a refresh per second.
const COST_MAX: f64 = 0.05;

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time` only.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Threads that sleep until the returned senders are dropped, and their ids.
fn sleepers(count: usize) -> (Vec<Sender<()>>, Vec<u32>) {
    let (told, ids) = channel();
    let sleeper = |_| {
        let (stop, stopped) = channel::<()>();
        let told = told.clone();
        std::thread::spawn(move || {
            // SAFETY: it has no arguments and cannot fail.
            told.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = stopped.recv();
        });
        stop
    };
    let stops = (0..count).map(sleeper).collect();
    (stops, ids.iter().take(count).collect())
}

/// Fills the programs' maps with threads of this test, which the programs take for vCPUs.
fn of_kernel(fake: &Fake, threads: &[u32]) -> anyhow::Result<Kernel> {
    for (vm, threads) in threads.chunks(VCPUS).enumerate() {
        let pid = 1_000_000 + vm;
        fake.vm(&format!("{pid}-0"), &format!("guest=vm{vm},debug-threads=on"));
        for (index, tid) in threads.iter().enumerate() {
            fake.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("CPU {index}/KVM"));
        }
        for file in ["ple_exits", "wasteful_spin_cycles", "user_samples", "user_spins"] {
            fake.write(&format!("sys/vms/{pid}-0/{file}"), "1000");
        }
    }
    Kernel::new(fake.host(), &fake.path("sys"), Detail::Takers)
}

#[test]
fn a_refresh_of_500_vcpus_is_cheap() {
    let fake = Fake::new();
    let (_stops, threads) = sleepers(VMS * VCPUS);
    let mut source: Box<dyn Source> = match of_kernel(&fake, &threads) {
        Ok(kernel) => Box::new(kernel),
        Err(e) => {
            println!("SKIPPED: reading the maps of BPF programs is not in the cost of top: {e}");
            Box::new(Synthetic::new(VMS, VCPUS as u32))
        }
    };
    for (width, height) in [(80, 24), (200, 60)] {
        let mut app = App::new(Column::Lost, String::new());
        let mut screen = Terminal::new(TestBackend::new(width, height)).unwrap();
        let every = Duration::from_secs(1);
        let mut refresh = |app: &mut App| {
            app.feed(source.sample().unwrap());
            screen.draw(|frame| draw::draw(app, every, frame.area(), frame.buffer_mut())).unwrap();
        };
        refresh(&mut app);
        let before = cpu_time();
        for _ in 0..REFRESHES {
            refresh(&mut app);
        }
        let each = ((cpu_time() - before) / REFRESHES).as_secs_f64();
        assert_eq!(app.lines.len(), VMS);
        println!(
            "top, 500 vCPUs, {width}x{height}: {:.2} ms of CPU time per refresh, {:.2} % of a core at 1 s",
            each * 1e3,
            each * 100.0,
        );
        // Without optimization the time means nothing.
        assert!(cfg!(debug_assertions) || each <= COST_MAX, "{each} s");
    }
}
