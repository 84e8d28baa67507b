// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program for `unspin run`: eight threads count under locks of parking_lot and of the standard
//! library, which do not use pthread's.

use std::thread;

fn main() {
    let parked = parking_lot::Mutex::new(0u64);
    let standard = std::sync::Mutex::new(0u64);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    *parked.lock() += 1;
                    *standard.lock().expect("no thread panics") += 1;
                }
            });
        }
    });
    println!("counted {}", *parked.lock() + *standard.lock().expect("no thread panics"));
}
