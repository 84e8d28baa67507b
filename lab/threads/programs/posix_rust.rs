// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A Rust program that calls pthread's spin locks and mutexes itself, beside the standard library's,
//! which are not pthread's on Linux.

use std::cell::UnsafeCell;
use std::os::raw::{c_int, c_void};
use std::sync::{Condvar, Mutex};
use std::thread;

const THREADS: usize = 6;
const ROUNDS: usize = 5000;

extern "C" {
    fn pthread_spin_init(spin: *mut c_void, shared: c_int) -> c_int;
    fn pthread_spin_lock(spin: *mut c_void) -> c_int;
    fn pthread_spin_unlock(spin: *mut c_void) -> c_int;
    fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
}

/// Room for either lock, and what it protects. A mutex that is zero is a plain one.
#[repr(C, align(16))]
struct Counter(UnsafeCell<[u64; 8]>, UnsafeCell<usize>);

unsafe impl Sync for Counter {}

type Call = unsafe extern "C" fn(*mut c_void) -> c_int;

fn excludes(counter: &Counter, lock: Call, unlock: Call) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    unsafe {
                        assert_eq!(lock(counter.0.get().cast()), 0);
                        *counter.1.get() += 1;
                        assert_eq!(unlock(counter.0.get().cast()), 0);
                    }
                }
            });
        }
    });
    assert_eq!(unsafe { *counter.1.get() }, THREADS * ROUNDS);
}

fn main() {
    let spin = Counter(UnsafeCell::new([0; 8]), UnsafeCell::new(0));
    assert_eq!(unsafe { pthread_spin_init(spin.0.get().cast(), 0) }, 0);
    excludes(&spin, pthread_spin_lock, pthread_spin_unlock);
    let mutex = Counter(UnsafeCell::new([0; 8]), UnsafeCell::new(0));
    excludes(&mutex, pthread_mutex_lock, pthread_mutex_unlock);
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                let mut now = changed.wait_while(turn.lock().unwrap(), |now| *now != me).unwrap();
                *now += 1;
                changed.notify_all();
            });
        }
    });
    assert_eq!(*turn.lock().unwrap(), THREADS);
}
