// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guest addresses at exits, counted by the kernel.
//!
//! One histogram of `kvm_exit` counts two kinds of exit:
//! * **pause**: a PAUSE loop lasted longer than the processor's window. The address is that of the
//!   PAUSE.
//! * **interrupted**: the host was interrupted while the vCPU ran, by its tick or by another CPU
//!   that wants this one to look at its run queue. Every preemption of a vCPU in its guest begins
//!   with such an exit, but not every such exit ends in a preemption. So these are samples of where
//!   a vCPU is while it has a CPU, about one per tick. If a processor or emulator delays interrupts
//!   while the guest has them off, there are no samples with interrupts off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::Error;
use super::histogram::{Entry, Histogram, KEYS};
use super::instance::{Instance, TRACEFS};
use super::threads;

const EVENT: &str = "events/kvm/kvm_exit";
/// Fields of the tracepoint that are used as keys or in filters.
const FIELDS: [&str; 3] = ["guest_rip", "exit_reason", "isa"];

/// An exit's reason: the numbers of VMX and SVM, in the kernel's vmx.h and svm.h.
#[derive(Debug, Clone, Copy)]
struct Reason {
    vmx: u32,
    svm: u32,
}

const PAUSE: Reason = Reason { vmx: 40, svm: 0x77 };
const INTERRUPT: Reason = Reason { vmx: 1, svm: 0x60 };

impl Reason {
    /// The numbers are disjoint: no counted reason of VMX is a counted reason of SVM.
    fn is(self, exit_reason: u32) -> bool {
        exit_reason == self.vmx || exit_reason == self.svm
    }
}

/// The kernel accepts tables of 2^7 to 2^17 entries.
const TABLE_MIN: usize = 1 << 12;
const TABLE_MAX: usize = 1 << 17;
/// Limit of addresses per vCPU and second: every tick of 1000 Hz finds a new one.
const PER_SECOND: f64 = 1000.0;

/// Interval of checks of `stop`.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Addresses with their counts, most frequent first.
pub type Counts = Vec<(u64, u64)>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// Pause-loop exits.
    pub pause: Counts,
    /// Exits for interrupts of the host.
    pub interrupted: Counts,
    /// Both kinds for each thread that has any.
    pub by_thread: BTreeMap<i32, (Counts, Counts)>,
    /// Exits that are in none of the counts, because the kernel's table was full.
    pub dropped: u64,
}

impl Samples {
    /// Counts the exits of these threads for `duration`, or until `stop` is set
    /// ([`Error::Interrupted`]).
    pub fn collect(
        threads: &[i32],
        duration: Duration,
        stop: &AtomicBool,
    ) -> Result<Samples, Error> {
        let ready = Ready::new(Path::new(TRACEFS))?;
        let collector = ready.start(threads, entries(threads.len(), duration))?;
        collector.wait(duration, stop, &mut |_| {})?;
        collector.finish()
    }

    /// The part of these threads.
    pub fn of_threads(&self, threads: &[i32]) -> Samples {
        let mine = self.by_thread.iter().filter(|(thread, _)| threads.contains(thread));
        let mine = mine.map(|(thread, kinds)| (*thread, kinds.clone()));
        Samples::summed(mine.collect(), self.dropped)
    }

    fn of(histogram: &Histogram, threads: &BTreeSet<i32>) -> Samples {
        let mut all = BTreeMap::<i32, [BTreeMap<u64, u64>; 2]>::new();
        for &Entry { address, exit_reason, thread, count } in &histogram.entries {
            let kind = match exit_reason {
                reason if PAUSE.is(reason) => 0,
                reason if INTERRUPT.is(reason) => 1,
                _ => continue,
            };
            if threads.contains(&thread) {
                *all.entry(thread).or_default()[kind].entry(address).or_default() += count;
            }
        }
        let by_thread = all.into_iter().map(|(thread, kinds)| {
            let [pause, interrupted] = kinds.map(sorted);
            (thread, (pause, interrupted))
        });
        Samples::summed(by_thread.collect(), histogram.dropped)
    }

    /// The sum over all these threads.
    fn summed(by_thread: BTreeMap<i32, (Counts, Counts)>, dropped: u64) -> Samples {
        let sum = |kind: fn(&(Counts, Counts)) -> &Counts| {
            let mut sum = BTreeMap::<u64, u64>::new();
            for &(address, count) in by_thread.values().flat_map(kind) {
                *sum.entry(address).or_default() += count;
            }
            sorted(sum)
        };
        let (pause, interrupted) = (sum(|kinds| &kinds.0), sum(|kinds| &kinds.1));
        Samples { pause, interrupted, by_thread, dropped }
    }
}

/// The number of different addresses to expect.
pub fn entries(threads: usize, duration: Duration) -> usize {
    (threads as f64 * duration.as_secs_f64() * PER_SECOND) as usize
}

fn sorted(counts: BTreeMap<u64, u64>) -> Counts {
    let mut counts: Counts = counts.into_iter().collect();
    counts.sort_by_key(|&(address, count)| (std::cmp::Reverse(count), address));
    counts
}

/// A kernel that can count exits for this process. Dropping it leaves nothing behind. The instance used
/// for the check is then used for counting, because each instance takes memory per CPU.
#[derive(Debug)]
pub struct Ready {
    instance: Instance,
}

impl Ready {
    /// Checks the kernel with this tracefs. The error says what it lacks.
    pub fn new(tracefs: &Path) -> Result<Ready, Error> {
        let instance = Instance::make(tracefs)?;
        check(&instance)?;
        Ok(Ready { instance })
    }

    /// Starts counting the exits of these threads. `entries`: the number of different addresses for
    /// which the table should have room, within the kernel's limits.
    pub fn start(self, threads: &[i32], entries: usize) -> Result<Collector, Error> {
        if threads.is_empty() {
            return Err(Error::NoThreads);
        }
        let Ready { instance } = self;
        instance.trigger(&format!("{EVENT}/trigger"), &trigger(threads, entries))?;
        Ok(Collector { instance, threads: threads.iter().copied().collect() })
    }
}

/// Counting in progress. Dropping it ends counting and leaves nothing behind.
#[derive(Debug)]
pub struct Collector {
    instance: Instance,
    threads: BTreeSet<i32>,
}

impl Collector {
    /// Counts for `duration`, or until `stop` is set ([`Error::Interrupted`]). Passes the elapsed time
    /// to `each` from time to time.
    pub fn wait(
        &self,
        duration: Duration,
        stop: &AtomicBool,
        each: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let passed = begin.elapsed();
            each(passed.min(duration));
            match duration.checked_sub(passed).filter(|left| !left.is_zero()) {
                Some(left) => std::thread::sleep(left.min(LOOK_EVERY)),
                None => return Ok(()),
            }
        }
    }

    /// Ends counting and returns the counts. Fails if anything remains behind.
    pub fn finish(self) -> Result<Samples, Error> {
        let file = format!("{EVENT}/hist");
        let text = self.instance.read(&file)?;
        let histogram = Histogram::parse(&text)
            .map_err(|line| Error::Histogram { path: self.instance.path(&file), line })?;
        self.instance.remove()?;
        Ok(Samples::of(&histogram, &self.threads))
    }
}

/// Whether the kernel can count these exits.
fn check(instance: &Instance) -> Result<(), Error> {
    let event = instance.path(EVENT);
    if !event.is_dir() {
        return Err(Error::NoKvm { path: event });
    }
    if !event.join("hist").exists() {
        return Err(Error::NoHistograms);
    }
    let format = instance.read(&format!("{EVENT}/format"))?;
    let has = |field: &str| {
        let mut declared = format.lines().filter_map(|line| line.trim().strip_prefix("field:"));
        declared
            .any(|line| line.split(';').next().is_some_and(|d| d.ends_with(&format!(" {field}"))))
    };
    match FIELDS.into_iter().find(|field| !has(field)) {
        Some(field) => Err(Error::NoField { field }),
        None => Ok(()),
    }
}

fn trigger(threads: &[i32], entries: usize) -> String {
    let size = entries.clamp(TABLE_MIN, TABLE_MAX).next_power_of_two();
    let of = |isa: u32, reason: fn(Reason) -> u32| {
        let (pause, interrupt) = (reason(PAUSE), reason(INTERRUPT));
        format!("(isa=={isa}&&(exit_reason=={pause}||exit_reason=={interrupt}))")
    };
    // KVM_ISA_VMX and KVM_ISA_SVM.
    let exits = [of(1, |r| r.vmx), of(2, |r| r.svm)].join("||");
    format!("hist:keys={KEYS}:size={size} if ({exits})&&({})", threads::filter(threads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use unspin_scratch::Scratch;

    fn parsed(text: &str, threads: &[i32]) -> Samples {
        let histogram = Histogram::parse(text).unwrap();
        Samples::of(&histogram, &threads.iter().copied().collect())
    }

    fn line(address: u64, reason: u32, thread: i32, count: u64) -> String {
        format!(
            "{{ guest_rip: {address:x}, exit_reason: {reason:10}, common_pid: {thread:10} }} \
             hitcount: {count:10}\n"
        )
    }

    #[test]
    fn kinds_and_threads_are_kept_apart() {
        let text = [
            line(0xffff_ffff_8100_0010, 40, 7, 5),
            line(0xffff_ffff_8100_0010, 40, 8, 4),
            line(0xffff_ffff_8100_0020, 0x77, 8, 20),
            line(0x5555_0000, 1, 7, 3),
            line(0x5555_0000, 0x60, 7, 1),
            line(0x6666_0000, 12, 7, 99),
            line(0x6666_0000, 40, 9, 99),
        ];
        let samples = parsed(&(text.concat() + "Totals:\n    Dropped: 2\n"), &[7, 8]);
        let (a, b) = (0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020);
        assert_eq!(samples.pause, [(b, 20), (a, 9)]);
        assert_eq!(samples.interrupted, [(0x5555_0000, 4)]);
        assert_eq!(samples.dropped, 2);
        assert_eq!(samples.by_thread[&7], (vec![(a, 5)], vec![(0x5555_0000, 4)]));
        assert_eq!(samples.by_thread[&8], (vec![(b, 20), (a, 4)], vec![]));
        assert_eq!(samples.by_thread.len(), 2);
    }

    proptest! {
        /// The threads' parts add up to the whole, for any division.
        #[test]
        fn parts_of_threads_are_the_whole(
            rows in prop::collection::vec((0..6u64, prop::bool::ANY, 1..9i32, 1..1000u64), 0..40),
            first in prop::collection::btree_set(1..9i32, 0..8),
        ) {
            let text: String = rows.iter()
                .map(|&(at, pause, thread, n)| line(at, if pause { 40 } else { 1 }, thread, n))
                .collect();
            let all: Vec<i32> = (1..9).collect();
            let whole = parsed(&text, &all);
            prop_assert_eq!(&whole.of_threads(&all), &whole);
            let (mine, others): (Vec<i32>, Vec<i32>) = all.iter().partition(|t| first.contains(t));
            let parts = [whole.of_threads(&mine), whole.of_threads(&others)];
            prop_assert_eq!(&parts[0], &parsed(&text, &mine));
            let total = |counts: &Counts| counts.iter().map(|c| c.1).sum::<u64>();
            let sums: [fn(&Samples) -> &Counts; 2] = [|s| &s.pause, |s| &s.interrupted];
            for of in sums {
                prop_assert_eq!(parts.iter().map(|p| total(of(p))).sum::<u64>(), total(of(&whole)));
            }
        }
    }

    #[test]
    fn the_trigger_says_what_is_counted() {
        let exits = "((isa==1&&(exit_reason==40||exit_reason==1))||\
                     (isa==2&&(exit_reason==119||exit_reason==96)))";
        for (entries, size) in [(0, 4096), (5000, 8192), (usize::MAX, 131_072)] {
            let expected = format!("hist:keys={KEYS}:size={size} if {exits}&&(common_pid==7)");
            assert_eq!(trigger(&[7], entries), expected);
        }
        // A trigger may have the length of a page.
        let many: Vec<i32> = (0..2000).map(|i| i32::MAX - 2 * i).collect();
        assert!(trigger(&many, 0).len() < 4096);
    }

    /// A directory in place of an instance, with the event's files.
    fn instance_of_files(files: &[(&str, &str)]) -> (Scratch, Instance) {
        let tracefs = Scratch::new();
        tracefs.dir("instances");
        let instance = Instance::make(&tracefs).unwrap();
        for (file, text) in files {
            tracefs.write(instance.path(file), text);
        }
        (tracefs, instance)
    }

    const FORMAT: &str = "format:\n\tfield:unsigned int exit_reason;\toffset:8;\n\
        \tfield:unsigned long guest_rip;\toffset:16;\n\tfield:u32 isa;\toffset:24;\n\n\
        print fmt: \"vcpu %u\", REC->vcpu_id\n";

    #[test]
    fn what_a_kernel_lacks_is_named() {
        let (format, hist) = ("events/kvm/kvm_exit/format", "events/kvm/kvm_exit/hist");
        let older = FORMAT.replace("unsigned long guest_rip", "unsigned long guest_rip_before");
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let cases: [Case; 4] = [
            (&[("events/sched/x", "")], Some("kvm_intel")),
            (&[(format, FORMAT)], Some("CONFIG_HIST_TRIGGERS")),
            (&[(format, &older), (hist, "")], Some("guest_rip")),
            (&[(format, FORMAT), (hist, "")], None),
        ];
        for (files, lacks) in cases {
            let (_tracefs, instance) = instance_of_files(files);
            match (check(&instance), lacks) {
                (Err(error), Some(lacks)) => {
                    assert!(error.to_string().contains(lacks), "{error}");
                    assert!(error.is_of_this_computer());
                }
                (result, lacks) => assert!(result.is_ok() && lacks.is_none(), "{result:?}"),
            }
        }
    }

    #[test]
    fn counting_lasts_as_long_as_asked_or_until_it_is_stopped() {
        let (tracefs, instance) = instance_of_files(&[]);
        let collector = Collector { instance, threads: BTreeSet::new() };
        let stop = AtomicBool::new(false);
        let (begin, mut told) = (Instant::now(), Vec::new());
        let duration = LOOK_EVERY * 3;
        collector.wait(duration, &stop, &mut |passed| told.push(passed)).unwrap();
        assert!(begin.elapsed() >= duration);
        assert!(told.len() > 2 && told.is_sorted(), "{told:?}");
        assert_eq!(told.last(), Some(&duration));
        let hour = Duration::from_secs(3600);
        let mut looks = 0;
        let ended = collector.wait(hour, &stop, &mut |_| {
            looks += 1;
            stop.store(looks == 2, Ordering::Relaxed);
        });
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        drop(collector);
        assert_eq!(fs::read_dir(tracefs.join("instances")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_to_count_is_an_error() {
        let (_tracefs, instance) = instance_of_files(&[]);
        let nobody = Ready { instance }.start(&[], 1);
        assert!(matches!(nobody, Err(Error::NoThreads)), "{nobody:?}");
        let nowhere = Ready::new(Path::new("/nonexistent"));
        assert!(matches!(nowhere, Err(Error::NoTracefs { .. })), "{nowhere:?}");
    }

    #[test]
    fn the_instance_that_was_checked_counts() {
        let trigger_file = &format!("{EVENT}/trigger");
        let (tracefs, instance) = instance_of_files(&[(trigger_file, "")]);
        let collector = Ready { instance }.start(&[7], 1).unwrap();
        assert_eq!(fs::read_dir(tracefs.join("instances")).unwrap().count(), 1);
        assert_eq!(collector.instance.read(trigger_file).unwrap(), trigger(&[7], 1));
    }

    #[test]
    fn a_check_leaves_nothing_behind() {
        let (tracefs, instance) = instance_of_files(&[]);
        drop(instance);
        let lacking = Ready::new(&tracefs);
        assert!(matches!(lacking, Err(Error::NoKvm { .. })), "{lacking:?}");
        assert_eq!(fs::read_dir(tracefs.join("instances")).unwrap().count(), 0);
    }
}
