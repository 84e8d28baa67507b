// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The locks of unspin that programs use, as raw mutexes of [`lock_api`].
//!
//! ```
//! static COUNTER: unspin_locks::Lease<u32> = unspin_locks::Lease::new(0);
//! *COUNTER.lock() += 1;
//! assert_eq!(*COUNTER.lock(), 1);
//! ```
//!
//! A lock stays held where its holder panics and forgets the guard. After a `fork()`, a lock that had
//! waiters may hang in the child (see `env.h` of the C headers).

use lock_api::{GuardSend, RawMutex, RawMutexTimed};
use std::cell::UnsafeCell;
use std::time::{Duration, Instant};

macro_rules! lock {
    ($(#[$doc:meta])* $raw:ident, $words:literal, $mutex:ident, $guard:ident,
     $lock:ident, $trylock:ident, $unlock:ident, $is_locked:ident) => {
        extern "C" {
            fn $lock(lock: *mut [u32; $words]);
            fn $trylock(lock: *mut [u32; $words]) -> bool;
            fn $unlock(lock: *mut [u32; $words]);
            fn $is_locked(lock: *mut [u32; $words]) -> bool;
        }

        $(#[$doc])*
        pub struct $raw(UnsafeCell<[u32; $words]>);

        // SAFETY: the C functions access the words by atomic operations only.
        unsafe impl Sync for $raw {}
        // SAFETY: as above; the words hold no address and no thread.
        unsafe impl Send for $raw {}

        // SAFETY: the C lock excludes all other holders, and is free when its words are zero.
        unsafe impl RawMutex for $raw {
            #[allow(clippy::declare_interior_mutable_const)]
            const INIT: $raw = $raw(UnsafeCell::new([0; $words]));
            type GuardMarker = GuardSend;

            fn lock(&self) {
                // SAFETY: the words live as long as `self`.
                unsafe { $lock(self.0.get()) }
            }

            fn try_lock(&self) -> bool {
                // SAFETY: as above.
                unsafe { $trylock(self.0.get()) }
            }

            unsafe fn unlock(&self) {
                $unlock(self.0.get());
            }

            fn is_locked(&self) -> bool {
                // SAFETY: as above.
                unsafe { $is_locked(self.0.get()) }
            }
        }

        /// A value behind that lock.
        pub type $mutex<T> = lock_api::Mutex<$raw, T>;
        /// The value while the lock is held.
        pub type $guard<'a, T> = lock_api::MutexGuard<'a, $raw, T>;
    };
}

/// Waits for no longer than that: `try_lock_for` and `try_lock_until` of the mutex.
macro_rules! timed {
    ($raw:ident, $words:literal, $lock_for:ident) => {
        extern "C" {
            fn $lock_for(lock: *mut [u32; $words], ns: u64) -> bool;
        }

        // SAFETY: as for `RawMutex`; true only if the lock is held.
        unsafe impl RawMutexTimed for $raw {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_for(&self, timeout: Duration) -> bool {
                let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
                // SAFETY: the words live as long as `self`.
                unsafe { $lock_for(self.0.get(), ns) }
            }

            fn try_lock_until(&self, timeout: Instant) -> bool {
                self.try_lock_for(timeout.saturating_duration_since(Instant::now()))
            }
        }
    };
}

lock!(
    /// `lease.h`: few threads compete for the lock at a time, the others sleep in line. 8 bytes.
    RawLease, 2, Lease, LeaseGuard,
    unspin_rust_lease_lock, unspin_rust_lease_trylock, unspin_rust_lease_unlock,
    unspin_rust_lease_is_locked
);
lock!(
    /// `tas_nap.h`: no order; who waits for long sleeps. 4 bytes.
    RawTasNap, 1, TasNap, TasNapGuard,
    unspin_rust_tas_nap_lock, unspin_rust_tas_nap_trylock, unspin_rust_tas_nap_unlock,
    unspin_rust_tas_nap_is_locked
);
lock!(
    /// `preemptable.h`: first come, first served, except that a waiter without a CPU is overtaken.
    /// Waiters spin. 4 bytes.
    RawPreemptable, 1, Preemptable, PreemptableGuard,
    unspin_rust_preemptable_lock, unspin_rust_preemptable_trylock, unspin_rust_preemptable_unlock,
    unspin_rust_preemptable_is_locked
);
timed!(RawLease, 2, unspin_rust_lease_lock_for);
timed!(RawTasNap, 1, unspin_rust_tas_nap_lock_for);

#[cfg(test)]
mod tests {
    use super::*;

    fn excludes<R: RawMutex + Sync + Send>() {
        let counter = lock_api::Mutex::<R, u32>::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut guard = counter.lock();
                        let before = *guard;
                        std::hint::black_box(&mut guard);
                        *guard = before + 1;
                    }
                });
            }
        });
        let guard = counter.lock();
        assert_eq!(*guard, 8000);
        assert!(counter.is_locked() && counter.try_lock().is_none());
        drop(guard);
        assert!(!counter.is_locked() && counter.try_lock().is_some());
    }

    fn gives_up<R: RawMutexTimed<Duration = Duration, Instant = Instant>>() {
        let mutex = lock_api::Mutex::<R, ()>::new(());
        let guard = mutex.lock();
        let (began, most) = (Instant::now(), Duration::from_millis(20));
        assert!(mutex.try_lock_for(most).is_none() && began.elapsed() >= most);
        assert!(mutex.try_lock_until(began).is_none());
        drop(guard);
        assert!(mutex.try_lock_for(most).is_some());
    }

    #[test]
    fn timed_locks_give_up() {
        gives_up::<RawLease>();
        gives_up::<RawTasNap>();
    }

    #[test]
    fn every_lock_excludes() {
        excludes::<RawLease>();
        excludes::<RawTasNap>();
        excludes::<RawPreemptable>();
    }
}
