// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Two threads count to 200,000. tests/counter.rs includes this file.

static COUNTER: unspin_locks::Lease<u64> = unspin_locks::Lease::new(0);

fn count() {
    for _ in 0..100_000 {
        *COUNTER.lock() += 1;
    }
}

fn main() {
    let other = std::thread::spawn(count);
    count();
    other.join().expect("it does not panic");
    println!("{}", *COUNTER.lock());
}
