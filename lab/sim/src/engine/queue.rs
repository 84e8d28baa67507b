// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event queue: timers with at most one pending event each, ordered by time.
//!
//! A 4-ary heap in an array. An entry is one 128-bit number, time above sequence number above
//! timer, so that one compare orders events, and those of one time by when they were armed
//! (ns-3's key of time and uid). A table says where each timer's entry is, which makes re-arming
//! and cancelling O(log n). Popping leaves the root empty, because the popped timer is nearly
//! always armed again at once: that then fills the root and costs one walk down instead of two.

/// Number of a timer, below the queue's size.
pub type Timer = u32;

const ARITY: usize = 4;
const TIMER_BITS: u32 = 24;
const SEQUENCE_BITS: u32 = 40;
/// Largest number of timers in a queue.
pub const TIMERS_MAX: usize = 1 << TIMER_BITS;
const ABSENT: u32 = u32::MAX;
/// The empty root: before every event.
const HOLE: u128 = 0;
/// Entries after the last one. They compare after every event, so that the last entry always has
/// siblings.
const EMPTY: u128 = u128::MAX;

/// Pending events. Never allocates after [`Queue::new`].
#[derive(Debug, Clone)]
pub struct Queue {
    /// `len` entries, followed by at least [`ARITY`] times [`EMPTY`].
    heap: Box<[u128]>,
    len: usize,
    /// The index in `heap` of each timer's entry.
    place: Vec<u32>,
    sequence: u64,
    has_hole: bool,
    /// Time of the last event popped.
    now_ns: u64,
}

fn entry(time_ns: u64, sequence: u64, timer: Timer) -> u128 {
    u128::from(time_ns) << 64 | u128::from(sequence << TIMER_BITS | u64::from(timer))
}

fn timer_of(entry: u128) -> Timer {
    entry as u32 & (TIMERS_MAX as u32 - 1)
}

fn time_of(entry: u128) -> u64 {
    (entry >> 64) as u64
}

impl Queue {
    /// A queue of `timers` timers, all idle, at time 0.
    ///
    /// # Panics
    /// Above [`TIMERS_MAX`] timers.
    pub fn new(timers: usize) -> Queue {
        assert!(timers <= TIMERS_MAX, "{timers} timers; a queue has at most {TIMERS_MAX}");
        Queue {
            heap: vec![EMPTY; timers + 1 + ARITY].into_boxed_slice(),
            len: 0,
            place: vec![ABSENT; timers],
            sequence: 0,
            has_hole: false,
            now_ns: 0,
        }
    }

    /// When `timer` will go off, if it is armed.
    pub fn time_of(&self, timer: Timer) -> Option<u64> {
        let at = self.place[timer as usize];
        (at != ABSENT).then(|| time_of(self.heap[at as usize]))
    }

    /// Sets `timer` to go off at `time_ns`, which replaces an earlier setting. It goes off after
    /// every event that was armed earlier for the same time.
    ///
    /// # Panics
    /// If the time has passed, or after 2^40 events.
    pub fn arm(&mut self, timer: Timer, time_ns: u64) {
        assert!(time_ns >= self.now_ns, "time runs back: {time_ns} ns after {} ns", self.now_ns);
        assert!(self.sequence < 1 << SEQUENCE_BITS, "more than 2^40 events in one run");
        self.sequence += 1;
        // Sequence numbers start at 1, so that no entry equals the hole.
        let new = entry(time_ns, self.sequence, timer);
        let at = self.place[timer as usize];
        if at == ABSENT {
            if self.has_hole {
                self.has_hole = false;
                self.sift_down(0, new);
            } else {
                self.len += 1;
                self.sift_up(self.len - 1, new);
            }
        } else {
            self.settle(at as usize, new);
        }
    }

    /// Makes `timer` idle.
    pub fn cancel(&mut self, timer: Timer) {
        let at = self.place[timer as usize];
        if at == ABSENT {
            return;
        }
        self.place[timer as usize] = ABSENT;
        self.remove(at as usize);
    }

    /// The earliest event: its time and its timer, which becomes idle.
    pub fn pop(&mut self) -> Option<(u64, Timer)> {
        if self.has_hole {
            self.has_hole = false;
            self.remove(0);
        }
        if self.len == 0 {
            return None;
        }
        let first = std::mem::replace(&mut self.heap[0], HOLE);
        self.has_hole = true;
        let timer = timer_of(first);
        self.place[timer as usize] = ABSENT;
        self.now_ns = time_of(first);
        Some((self.now_ns, timer))
    }

    /// Fills the place `at` with the last entry.
    fn remove(&mut self, at: usize) {
        self.len -= 1;
        let last = std::mem::replace(&mut self.heap[self.len], EMPTY);
        if at < self.len {
            self.settle(at, last);
        }
    }

    fn settle(&mut self, at: usize, new: u128) {
        if at > 0 && new < self.heap[(at - 1) / ARITY] {
            self.sift_up(at, new);
        } else {
            self.sift_down(at, new);
        }
    }

    fn put(&mut self, at: usize, entry: u128) {
        self.heap[at] = entry;
        self.place[timer_of(entry) as usize] = at as u32;
    }

    fn sift_up(&mut self, mut at: usize, new: u128) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent] < new {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, new);
    }

    fn sift_down(&mut self, mut at: usize, new: u128) {
        loop {
            let first = at * ARITY + 1;
            if first >= self.len {
                break;
            }
            let children = self.heap[first..].first_chunk().expect("EMPTY is behind the last");
            let which = earliest(children);
            let least = children[which];
            if new < least {
                break;
            }
            self.put(at, least);
            at = first + which;
        }
        self.put(at, new);
    }
}

/// The earliest of four events, without branches: these could not be predicted, and a misprediction
/// costs more than all comparisons of a step.
fn earliest(of: &[u128; ARITY]) -> usize {
    let left = usize::from(of[1] < of[0]);
    let right = 2 + usize::from(of[3] < of[2]);
    let is_right = usize::from(of[right] < of[left]).wrapping_neg();
    (left ^ ((left ^ right) & is_right)) % ARITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A simple queue for comparison: a list that is searched at every pop.
    #[derive(Default)]
    struct Oracle {
        armed: u64,
        pending: Vec<(u64, u64, Timer)>,
    }

    impl Oracle {
        fn arm(&mut self, timer: Timer, time: u64) {
            self.cancel(timer);
            self.armed += 1;
            self.pending.push((time, self.armed, timer));
        }

        fn cancel(&mut self, timer: Timer) {
            self.pending.retain(|(_, _, t)| *t != timer);
        }

        fn pop(&mut self) -> Option<(u64, Timer)> {
            self.pending.sort_unstable();
            if self.pending.is_empty() {
                return None;
            }
            let (time, _, timer) = self.pending.remove(0);
            Some((time, timer))
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Arm(Timer, u64),
        Cancel(Timer),
        Pop,
    }

    fn op(timers: u32) -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..timers, 0..40u64).prop_map(|(timer, after)| Op::Arm(timer, after)),
            1 => (0..timers).prop_map(Op::Cancel),
            3 => Just(Op::Pop),
        ]
    }

    fn agree(timers: u32, ops: &[Op]) {
        let mut queue = Queue::new(timers as usize);
        let mut oracle = Oracle::default();
        for op in ops {
            match *op {
                Op::Arm(timer, after) => {
                    let time = queue.now_ns + after;
                    queue.arm(timer, time);
                    oracle.arm(timer, time);
                    assert_eq!(queue.time_of(timer), Some(time));
                }
                Op::Cancel(timer) => {
                    queue.cancel(timer);
                    oracle.cancel(timer);
                    assert_eq!(queue.time_of(timer), None);
                }
                Op::Pop => assert_eq!(queue.pop(), oracle.pop()),
            }
        }
        while let Some(event) = oracle.pop() {
            assert_eq!(queue.pop(), Some(event));
        }
        assert_eq!(queue.pop(), None);
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_list(ops in prop::collection::vec(op(7), 0..400)) {
            agree(7, &ops);
        }

        #[test]
        fn it_is_a_sorted_list_where_it_is_deep(ops in prop::collection::vec(op(200), 0..2000)) {
            agree(200, &ops);
        }
    }

    #[test]
    fn events_of_one_time_come_in_the_order_they_were_armed() {
        let mut queue = Queue::new(3);
        for timer in [2, 0, 1, 0] {
            queue.arm(timer, 5);
        }
        let order: Vec<Timer> = std::iter::from_fn(|| queue.pop()).map(|(_, t)| t).collect();
        assert_eq!(order, [2, 1, 0]);
    }

    #[test]
    #[should_panic(expected = "time runs back")]
    fn the_past_is_refused() {
        let mut queue = Queue::new(2);
        queue.arm(0, 7);
        queue.pop();
        queue.arm(1, 6);
    }
}
