// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `bpf/ready.h`, compiled for this computer, against a model that checks each moment.

use crate::layout::{Process, Runs, Together, Vcpu, NO_WAIT, ON, READY, WANTING};
use crate::{sum, wait};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Turns what the programs include into functions. A hook lets another CPU act just after a word was
/// changed.
const SHIM: &str = r#"
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;
#define __always_inline inline __attribute__((always_inline))
#define barrier() __asm__ volatile("" ::: "memory")
static _Thread_local void (*meanwhile)(void);
static __u64 add(__u64 *word, __u64 more)
{
	__u64 before = __sync_fetch_and_add(word, more);
	void (*does)(void) = meanwhile;

	meanwhile = 0;
	if (does)
		does();
	return before;
}
#define __sync_fetch_and_add add
#include "ready.h"
static _Thread_local void (*hear)(__u32, __u32, __u64);
static void took(__u32 vm, struct process *who, __u64 time) { hear(vm, who->tgid, time); }
static void not_named(__u32 vm, __u64 time) { hear(vm, 0, time); }
__u64 until(struct together *vm, int by, __u64 now) { return ran_until(vm, by, now); }
void begins(struct runs *cpu, __u32 tgid, __u64 now)
{
	struct process whose = { .tgid = tgid };

	run_begins(cpu, &whose, now);
}
void ends(struct runs *cpu, __u32 vm, __u64 begin, __u64 end, __u64 left, void *hears)
{
	hear = hears;
	count_takers(cpu, vm, begin, end, left);
}
static _Thread_local __u64 *other_word, *other_time, other_now;
static _Thread_local struct together *other_vm;
static _Thread_local int other_by;
static void other_wants(void) { want(other_word, other_time, other_by, other_now); }
static void other_runs(void) { ran_until(other_vm, other_by, other_now); }
void wants(__u64 *word, __u64 *time, int by, int by_other, __u64 now)
{
	other_word = word, other_time = time, other_by = by_other, other_now = now;
	meanwhile = by_other ? other_wants : 0;
	want(word, time, by, now);
}
void runs_meanwhile(struct together *vm, int by, int by_other, __u64 now)
{
	other_vm = vm, other_by = by_other, other_now = now;
	meanwhile = by_other ? other_runs : 0;
	ran_until(vm, by, now);
}
"#;

type Hears = extern "C" fn(u32, u32, u64);

type Found = *mut libc::c_void;
type Until = extern "C" fn(*mut Together, i32, u64) -> u64;
type Begins = extern "C" fn(*mut Runs, u32, u64);
type Ends = extern "C" fn(*mut Runs, u32, u64, u64, u64, Hears);
type Wants = extern "C" fn(*mut u64, *mut u64, i32, i32, u64);
type RunsMeanwhile = extern "C" fn(*mut Together, i32, i32, u64);

struct InC {
    until: Until,
    begins: Begins,
    ends: Ends,
    wants: Wants,
    runs_meanwhile: RunsMeanwhile,
}

fn in_c() -> &'static InC {
    static LOADED: OnceLock<InC> = OnceLock::new();
    LOADED.get_or_init(|| {
        let dir = unspin_scratch::Scratch::new();
        let (source, library) = (dir.write("ready.c", SHIM), dir.join("ready.so"));
        let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/bpf");
        let mut clang = Command::new("clang");
        clang.args(["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-I"]).arg(include);
        assert!(clang.arg(&source).arg("-o").arg(&library).status().unwrap().success());
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: it was just compiled, and runs no code when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        let find = |name: &str| {
            let name = CString::new(name).unwrap();
            // SAFETY: the library stays loaded.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!found.is_null());
            found
        };
        // SAFETY: the functions have these types.
        unsafe {
            InC {
                until: std::mem::transmute::<Found, Until>(find("until")),
                begins: std::mem::transmute::<Found, Begins>(find("begins")),
                ends: std::mem::transmute::<Found, Ends>(find("ends")),
                wants: std::mem::transmute::<Found, Wants>(find("wants")),
                runs_meanwhile: std::mem::transmute::<Found, RunsMeanwhile>(find("runs_meanwhile")),
            }
        }
    })
}

/// By VM and process; process 0 is unknown.
type Taken = BTreeMap<(u32, u32), u64>;

/// The start time: some time after boot.
const BEGIN: u64 = 1 << 40;

thread_local! {
    static TAKEN: RefCell<Taken> = const { RefCell::new(BTreeMap::new()) };
}

extern "C" fn took(vm: u32, tgid: u32, time: u64) {
    assert!(time > 0);
    TAKEN.with_borrow_mut(|taken| *taken.entry((vm, tgid)).or_default() += time);
}

const CPUS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    On(usize),
    Ready(usize),
    Asleep,
}

#[derive(Debug, Clone)]
struct Task {
    /// The number of its VM, for a vCPU.
    vm: Option<u32>,
    tgid: u32,
    place: Place,
    vcpu: Vcpu,
    /// According to the model.
    costop: u64,
}

/// Two VMs, a process with two threads, and one with one.
fn tasks() -> Vec<Task> {
    let all = [(Some(0), 100, 3), (Some(1), 200, 2), (None, 300, 2), (None, 400, 1)];
    let task = |vm: Option<u32>, tgid| {
        let vcpu = Vcpu { vm: vm.unwrap_or(0), place: 2, ..Vcpu::new() };
        Task { vm, tgid, place: Place::Asleep, vcpu, costop: 0 }
    };
    all.iter().flat_map(|(vm, tgid, many)| vec![task(*vm, *tgid); *many]).collect()
}

struct Machine {
    now: u64,
    tasks: Vec<Task>,
    running: [Option<usize>; CPUS],
    vms: [Together; 2],
    cpus: [Runs; CPUS],
    /// According to the model.
    taken: Taken,
}

impl Machine {
    fn new() -> Machine {
        TAKEN.with_borrow_mut(BTreeMap::clear);
        let (running, vms, cpus) =
            ([None; CPUS], [Together::default(); 2], [Runs::default(); CPUS]);
        Machine { now: BEGIN, tasks: tasks(), running, vms, cpus, taken: Taken::new() }
    }

    fn on(&self, vm: u32) -> bool {
        self.running.iter().flatten().any(|task| self.tasks[*task].vm == Some(vm))
    }

    fn passes(&mut self, time: u64) {
        for index in 0..self.tasks.len() {
            let (Some(vm), Place::Ready(cpu)) = (self.tasks[index].vm, self.tasks[index].place)
            else {
                continue;
            };
            if self.on(vm) {
                self.tasks[index].costop += time;
            }
            if let Some(runs) = self.running[cpu].filter(|_| time > 0) {
                *self.taken.entry((vm, self.tasks[runs].tgid)).or_default() += time;
            }
        }
        self.now += time;
    }

    fn until(&mut self, vm: u32, by: i32) -> u64 {
        (in_c().until)(&mut self.vms[vm as usize], by, self.now)
    }

    fn wakes(&mut self, task: usize, cpu: usize) {
        if self.tasks[task].place != Place::Asleep {
            return;
        }
        self.tasks[task].place = Place::Ready(cpu);
        if let Some(vm) = self.tasks[task].vm {
            let ran = self.until(vm, 0);
            let vcpu = &mut self.tasks[task].vcpu;
            (vcpu.ran_before, vcpu.cpu) = (ran, cpu as u32);
            // With equal times the programs could not know that it slept.
            (vcpu.place, vcpu.since, vcpu.woken_at) = (READY, self.now, self.now);
        }
    }

    fn ends_wait(&mut self, task: usize, cpu: usize) {
        let vcpu = &self.tasks[task].vcpu;
        let (vm, begin) = (vcpu.vm, vcpu.since);
        (in_c().ends)(&mut self.cpus[cpu], vm, begin, self.now, self.now - begin, took);
    }

    fn moves(&mut self, task: usize, to: usize) {
        let Place::Ready(from) = self.tasks[task].place else { return };
        if self.tasks[task].vm.is_some() {
            self.ends_wait(task, from);
            let vcpu = &mut self.tasks[task].vcpu;
            (vcpu.since, vcpu.cpu) = (self.now, to as u32);
        }
        self.tasks[task].place = Place::Ready(to);
    }

    /// A CPU switches from its task, which then sleeps or is ready, to the next.
    fn switches(&mut self, cpu: usize, next: Option<usize>, sleeps: bool) {
        let waits_here = |task: &usize| self.tasks[*task].place == Place::Ready(cpu);
        let next = next.filter(waits_here);
        let prev = self.running[cpu];
        let of = |task: Option<usize>| task.and_then(|task| self.tasks[task].vm);
        let (old, new) = (of(prev), of(next));
        let ran_out = old.map(|vm| self.until(vm, -1)).unwrap_or(0);
        let ran_in = new.map(|vm| self.until(vm, 1)).unwrap_or(0);
        let tgid = next.map_or(0, |task| self.tasks[task].tgid);
        (in_c().begins)(&mut self.cpus[cpu], tgid, self.now);
        if let Some(prev) = prev {
            let task = &mut self.tasks[prev];
            task.place = if sleeps { Place::Asleep } else { Place::Ready(cpu) };
            let vcpu = &mut task.vcpu;
            (vcpu.place, vcpu.since, vcpu.cpu) =
                (if sleeps { 2 } else { READY }, self.now, cpu as u32);
            vcpu.ran_before = ran_out;
        }
        self.running[cpu] = next;
        if let Some(next) = next {
            self.tasks[next].place = Place::On(cpu);
            if new.is_some() {
                self.ends_wait(next, cpu);
                let vcpu = &mut self.tasks[next].vcpu;
                vcpu.costop += ran_in - vcpu.ran_before;
                (vcpu.ran_before, vcpu.place, vcpu.since) = (NO_WAIT, ON, self.now);
            }
        }
    }

    fn step(&mut self, (what, task, cpu, sleeps, time): (u8, usize, usize, bool, u64)) {
        self.passes(time);
        match what {
            0 => self.wakes(task, cpu),
            1 => self.moves(task, cpu),
            2 => self.switches(cpu, None, sleeps),
            _ => self.switches(cpu, Some(task), sleeps),
        }
    }

    /// The counts, including unfinished waits, as the process reads them.
    fn counted(&self) -> (Vec<u64>, Taken) {
        let mut taken = TAKEN.with_borrow(Clone::clone);
        let vcpus = self.tasks.iter().filter(|task| task.vm.is_some());
        let costop = vcpus.map(|task| {
            let vcpu = &task.vcpu;
            if let Some(begin) = wait::waits_since(vcpu) {
                let mut add = |whose: &Process, time| {
                    *taken.entry((vcpu.vm, whose.tgid as u32)).or_default() += time;
                };
                let cpu = &self.cpus[vcpu.cpu as usize];
                let lost = wait::takers(cpu, begin, self.now, &mut add);
                if lost > 0 {
                    *taken.entry((vcpu.vm, 0)).or_default() += lost;
                }
            }
            let ran = sum::at(self.vms[vcpu.vm as usize].ran, self.now);
            wait::costop(vcpu, ran)
        });
        (costop.collect(), taken)
    }

    fn expected(&self) -> Vec<u64> {
        self.tasks.iter().filter(|task| task.vm.is_some()).map(|task| task.costop).collect()
    }
}

fn step() -> impl Strategy<Value = (u8, usize, usize, bool, u64)> {
    (0..8u8, 0..8usize, 0..CPUS, any::<bool>(), 0..1000u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// For waits no longer than the recorded stretches.
    #[test]
    fn each_moment_of_a_wait_is_whose_the_cpu_is(
        steps in prop::collection::vec(step(), 0..=crate::layout::RUNS),
    ) {
        let mut machine = Machine::new();
        for each in steps {
            machine.step(each);
        }
        let (costop, taken) = machine.counted();
        prop_assert_eq!(costop, machine.expected());
        prop_assert_eq!(taken, machine.taken);
    }

    /// For any waits: no taker gets more than it had, missing time is counted as missing, and co-stop is
    /// exact.
    #[test]
    fn long_waits_have_takers_that_are_not_named(
        steps in prop::collection::vec(step(), 0..600),
    ) {
        let mut machine = Machine::new();
        for each in steps {
            machine.step(each);
        }
        let (costop, taken) = machine.counted();
        prop_assert_eq!(costop, machine.expected());
        for (who, time) in taken.iter().filter(|((_, tgid), _)| *tgid > 0) {
            prop_assert!(machine.taken.get(who).is_some_and(|true_time| time <= true_time), "{who:?}");
        }
        for vm in 0..2 {
            let all = |taken: &Taken| -> u64 {
                taken.iter().filter(|((of, _), _)| *of == vm).map(|(_, time)| time).sum()
            };
            prop_assert!(all(&taken) >= all(&machine.taken), "{taken:?} of {:?}", machine.taken);
        }
    }

    /// A throttled wait leaves only its rest for takers.
    #[test]
    fn no_more_is_taken_than_is_left(
        times in prop::collection::vec((1..1000u64, 0..4u32), 1..80),
        (begin, left) in (0..40_000u64, 0..40_000u64),
    ) {
        TAKEN.with_borrow_mut(BTreeMap::clear);
        let (mut cpu, mut now) = (Runs::default(), 0);
        for (time, tgid) in times {
            (in_c().begins)(&mut cpu, tgid, now);
            now += time;
        }
        let begin = begin.min(now);
        (in_c().ends)(&mut cpu, 0, begin, now, left, took);
        let sum: u64 = TAKEN.with_borrow(|taken| taken.values().sum());
        prop_assert!(sum <= left && sum <= now - begin);
        let mut all = 0;
        let lost = wait::takers(&cpu, begin, now, &mut |_, time| all += time);
        prop_assert_eq!(sum, (all + lost).min(left));
    }

    /// A CPU that switches while another reads its stretches, or with a clock that is ahead.
    #[test]
    fn what_cannot_be_read_is_lost_and_no_more_than_all(
        times in prop::collection::vec((1..1000u64, 0..4u32), 1..80),
        (begin, wait) in (0..40_000u64, 1..40_000u64),
    ) {
        let (mut cpu, mut now) = (Runs::default(), 0);
        for (time, tgid) in times {
            (in_c().begins)(&mut cpu, tgid, now);
            now += time;
        }
        let mut all = 0;
        let lost = wait::takers(&cpu, begin, begin + wait, &mut |_, time| all += time);
        prop_assert!(all + lost <= wait, "{all} and {lost} of {wait}");
        // Overlapping stretches, as in a torn read.
        for run in &mut cpu.last {
            (run.begin, run.end) = (0, now);
        }
        all = 0;
        let lost = wait::takers(&cpu, begin, begin + wait, &mut |_, time| all += time);
        prop_assert!(all + lost <= wait, "{all} and {lost} of {wait}");
        TAKEN.with_borrow_mut(BTreeMap::clear);
        cpu.begun += 1;
        (in_c().ends)(&mut cpu, 1, begin, begin + wait, wait, took);
        let taken = TAKEN.with_borrow(Clone::clone);
        prop_assert_eq!(taken, Taken::from([((1, 0), wait)]));
    }

    /// vCPUs start and stop wanting a CPU, sometimes two at once.
    #[test]
    fn each_stretch_is_of_the_number_that_wanted_a_cpu(
        steps in prop::collection::vec((any::<bool>(), 0..3u8, 0..1u64 << 32), 1..150),
        begin in prop_oneof![Just(1u64 << 32), 1u64 << 32..1 << 60],
    ) {
        let (mut word, mut time, mut expected) = (0, [0u64; WANTING], [0u64; WANTING]);
        let (mut many, mut now) = (0i64, begin);
        time[0] = begin.wrapping_neg();
        for (more, other, ns) in steps {
            now += ns;
            expected[many.min(64) as usize] += ns;
            let said = time.map(|sum| sum::at(sum, now));
            prop_assert_eq!(said, expected);
            let by = if more || many == 0 { 1 } else { -1 };
            let by_other = match other {
                0 => 0,
                1 if many + i64::from(by) > 0 && many > 0 => -1,
                _ => 1,
            };
            (in_c().wants)(&mut word, time.as_mut_ptr(), by, by_other, now);
            many += i64::from(by + by_other);
            prop_assert_eq!(word, many as u64);
        }
    }

    /// vCPUs of a VM run and stop, sometimes two at once.
    #[test]
    fn a_vm_runs_while_one_of_its_vcpus_does(
        steps in prop::collection::vec((any::<bool>(), 0..3u8, 0..1u64 << 32), 1..60),
        begin in prop_oneof![Just(1u64 << 32), 1u64 << 32..1 << 60],
    ) {
        let (mut vm, mut on, mut now, mut ran) = (Together::default(), 0i32, begin, 0);
        for (more, other, ns) in steps {
            now += ns;
            ran += if on > 0 { ns } else { 0 };
            prop_assert_eq!((in_c().until)(&mut vm, 0, now), ran);
            prop_assert_eq!(sum::at(vm.ran, now), ran);
            let by = if more || on == 0 { 1 } else { -1 };
            let by_other = match other {
                0 => 0,
                1 if on + by > 0 && on > 0 => -1,
                _ => 1,
            };
            (in_c().runs_meanwhile)(&mut vm, by, by_other, now);
            on += by + by_other;
            prop_assert_eq!(vm.on, on as u64);
            prop_assert_eq!(sum::at(vm.ran, now), ran);
        }
    }

    /// A sum is read while two CPUs have changed the number but not yet added their times, or by a CPU whose
    /// clock is behind.
    #[test]
    fn a_sum_is_right_while_it_changes(
        (began, lasted) in (1u64 << 40..1 << 41, 0..1u64 << 38),
        (later, behind) in (0..1u64 << 20, 0..1u64 << 20),
    ) {
        let near = |sum: u64, now: u64, expected: u64| {
            let said = sum::at(sum, now);
            prop_assert!(said.abs_diff(expected) < 1 << 22, "{said}, not {expected}");
            Ok(())
        };
        let end = began + lasted;
        let again = end + later;
        let now = again - behind;
        // It began, ended, and began again. One of the last two may be missing.
        near(began.wrapping_neg(), now, lasted)?;
        near(end.wrapping_sub(began), now, lasted)?;
        near(began.wrapping_neg().wrapping_sub(again), now, lasted)?;
        near(end.wrapping_sub(began).wrapping_sub(again), now, lasted)?;
        // It ended again, and the beginning before that is missing.
        near(end.wrapping_sub(began).wrapping_add(again), now, lasted)?;
    }
}
