// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings up CPUs on an emulator with virtual time. Linux 6.1 waits for a CPU without a PAUSE, and
//! QEMU 7.2 then runs no other CPU. So a second thread executes PAUSEs meanwhile.

use crate::machine::pin;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

const CPUS: &str = "/sys/devices/system/cpu";

/// Brings up all offline CPUs; returns their number.
pub fn all() -> Result<String, String> {
    pin(0)?;
    let done = AtomicBool::new(false);
    let brought = std::thread::scope(|scope| {
        // On the same CPU, as its affinity is inherited.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let brought = bring_up();
        done.store(true, Ordering::Relaxed);
        brought
    });
    brought.map(|count| format!("{count} CPUs brought up"))
}

fn bring_up() -> Result<u32, String> {
    let mut count = 0;
    for entry in fs::read_dir(CPUS).map_err(|e| format!("{CPUS}: {e}"))?.flatten() {
        let file = entry.path().join("online");
        // The first CPU has no such file.
        if fs::read_to_string(&file).is_ok_and(|text| text.trim() == "0") {
            fs::write(&file, "1").map_err(|e| format!("{}: {e}", file.display()))?;
            count += 1;
        }
    }
    Ok(count)
}
