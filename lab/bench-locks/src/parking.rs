// SPDX-License-Identifier: MIT OR Apache-2.0
//! parking_lot's mutex for c/peers.h.

use parking_lot::lock_api::RawMutex as _;
use parking_lot::RawMutex;

const _: () = assert!(std::mem::size_of::<RawMutex>() == 1, "c/peers.h keeps it in a byte");

/// Takes the lock.
///
/// # Safety
///
/// `mutex` is valid as long as it is used, and was initially zero.
#[no_mangle]
unsafe extern "C" fn unspin_peer_parking_lot_lock(mutex: *const RawMutex) {
    // SAFETY: as above; a zero byte is RawMutex::INIT, which a test checks.
    unsafe { (*mutex).lock() }
}

/// Releases the lock.
///
/// # Safety
/// As above, and the caller holds it.
#[no_mangle]
unsafe extern "C" fn unspin_peer_parking_lot_unlock(mutex: *const RawMutex) {
    // SAFETY: as above.
    unsafe { (*mutex).unlock() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_byte_is_a_free_lock() {
        // SAFETY: RawMutex is one byte (asserted above) of plain data.
        let byte: u8 = unsafe { std::mem::transmute(RawMutex::INIT) };
        assert_eq!(byte, 0);
    }
}
