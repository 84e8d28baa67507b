// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of a machine: one JSON object per line.

pub use crate::begin::{Begin, Shard};
pub use crate::responses::{Responses, RESPONSE_BUCKETS};
pub use crate::world::{ModelError, World, WorldDesign, WorldInput};
use serde::{Deserialize, Serialize};
use unspin_diagnosis::Times;
use unspin_uapi::{for_each_counter, Value};

/// A line of results.jsonl or of the agent's channel.
// There is only one Begin per stream, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// First record: the agent's computer.
    Begin(Begin),
    Run(Box<RunResult>),
    Progress(Progress),
    /// A line for people (kept in the log, shown with --verbose).
    Log {
        text: String,
    },
    /// A run that failed; the plan continues.
    Failed {
        id: u32,
        error: String,
    },
    /// Last record; a stream without it is incomplete.
    End {
        runs: u32,
        failed: u32,
    },
}

/// Compiled once, as for [`Plan`](crate::plan::Plan).
impl Record {
    /// Without line breaks.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("records are plain data")
    }

    /// # Errors
    /// The text is not JSON, or not a record.
    pub fn from_json(json: &[u8]) -> serde_json::Result<Record> {
        serde_json::from_slice(json)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub id: u32,
    pub total: u32,
    pub text: String,
}

impl Progress {
    /// A run that begins: number `at`, from 1, of `total`. `more` follows its arm in the text.
    pub fn of(run: &crate::plan::Run, at: usize, total: usize, more: &str) -> Progress {
        let text = format!(
            "{at}/{total} {} {} x {} vCPUs, arm {}{more}, repeat {}",
            run.profile,
            run.vms.len(),
            run.vcpus_text(),
            run.arm.name,
            run.repeat
        );
        Progress { id: run.id, total: total as u32, text }
    }
}

/// One run, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub run: crate::plan::Run,
    /// Real length of the window on the machine's clock, ns.
    pub window_ns: u64,
    pub vm: Vec<VmResult>,
    /// Epoch trace, if requested.
    #[serde(default)]
    pub epochs: Vec<EpochSample>,
    /// Raw lines of the pick and epoch tracepoints, if requested (replay).
    #[serde(default)]
    pub trace: Vec<String>,
    /// Where Linux guests spun, sampled right after the measuring time of the first repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinners: Option<Spinners>,
    /// Lateness of host tasks, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakeups: Option<Wakeups>,
    /// CPU time of each hog in the measuring time, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hogs_cpu_ns: Vec<u64>,
    /// Share of the host's CPU time in the measuring time that was idle; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_idle_share: Option<f64>,
}

impl RunResult {
    /// A run that was not traced, with no more measured than its VMs. Set other fields by
    /// `..RunResult::new(…)`.
    pub fn new(run: crate::plan::Run, window_ns: u64, vm: Vec<VmResult>) -> RunResult {
        RunResult {
            run,
            window_ns,
            vm,
            epochs: Vec::new(),
            trace: Vec::new(),
            spinners: None,
            wakeups: None,
            hogs_cpu_ns: Vec::new(),
            host_idle_share: None,
        }
    }
}

/// Lateness of all host tasks that woke up in the measuring time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakeups {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// Guest addresses of the vCPUs of all VMs, sampled after the measuring time, because counting
/// makes exits slower.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spinners {
    pub sampled_ms: u64,
    /// At pause-loop exits, most frequent first; all of user space is one place.
    pub pause: Vec<SpinPlace>,
    /// At exits for interrupts of the host, in the same form.
    pub interrupted: Vec<SpinPlace>,
    /// Pause-loop exits at further places.
    pub others_pause: u64,
    /// Interrupts at further places.
    pub others_interrupted: u64,
    /// Exits of both kinds for which the kernel's table had no room.
    pub others: u64,
}

/// A place in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpinPlace {
    pub address: u64,
    pub count: u64,
    /// A symbol of the guest's kernel, or `user space`; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
}

/// One VM in one run; counts are differences over the measuring time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmResult {
    /// Units of work finished, per vCPU.
    pub units: Vec<u64>,
    /// Lock acquisitions, per vCPU.
    pub acquisitions: Vec<u64>,
    /// CPU time of each vCPU thread, ns (guest and exits).
    pub cpu_ns: Vec<u64>,
    /// The part of it in which KVM polled for the end of a halt, all vCPUs; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_poll_ns: Option<u64>,
    /// Histogram of lock waits, bucket b: [2^b, 2^(b+1)) TSC cycles, all vCPUs.
    pub wait_hist: Vec<u64>,
    /// Long waits, if the scenario counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    pub max_wait_cycles: u64,
    /// Durations of passes that began with a timer; `None` if the program has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
    /// `None` if the module is absent or off.
    pub module: Option<ModuleStats>,
    /// Effects of the module's turns on it, in any mode; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<VmTurns>,
    /// The error with which the guest ended, or which the VMM found.
    pub error: Option<String>,
    /// Where the vCPUs' time went; only machine `sim` knows all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Attribution>,
    /// What the host's scheduler did to the vCPUs; for machine `threads` and Linux guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched: Option<SchedStats>,
    /// What each vCPU did, in the states of `unspin diagnose`, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<VcpuStates>>,
    /// For a Linux guest, what its kernel reports. Then `units` and `cpu_ns` have one number for all
    /// vCPUs, and `acquisitions` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<FoundGuest>,
}

/// Effects of the module's turns on a VM: its own turns and those of others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmTurns {
    /// How often a vCPU waited for a turn of another VM, and how often the wait timed out.
    pub parks: u64,
    pub parks_late: u64,
    /// The reason why it has no turns, from the module at the end of the measuring time. `None`: it
    /// may have turns, or the module does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a vCPU did in the measuring time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuStates {
    /// Time in each state, ns. The sum is the measuring time.
    pub ns: Times,
    /// Exits, by the state that followed.
    pub exits: Times,
    /// How often its thread left a CPU.
    pub switches: u64,
    /// How often its thread was woken.
    pub wakes: u64,
}

/// A line of `unspin-watch`: what the vCPUs of each VM did in a measuring time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    pub vms: Vec<Vec<VcpuStates>>,
}

/// A Linux guest's kernel, and the paravirtual features that it uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundGuest {
    /// `uname -r`.
    pub kernel: String,
    /// `pv`, `queued` or `test-and-set`.
    pub lock: String,
    /// `pv` (hypercalls for interrupts between vCPUs) or `apic`.
    pub ipis: String,
    /// `pv` (only vCPUs that run are interrupted) or `ipi`.
    pub tlb_flush: String,
    /// `pv` (a vCPU yields to one that it interrupts and that does not run) or `none`.
    pub sched_yield: String,
    pub clocksource: String,
    /// Version of unspin-guest; empty if not loaded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
}

/// The host's scheduler and the vCPU threads of a VM in the window, per vCPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedStats {
    /// Time in which a thread was ready and had no CPU, ns: steal time for a guest. `None` if the
    /// kernel does not count it.
    pub steal_ns: Option<Vec<u64>>,
    /// Times a thread lost its CPU, and gave it up.
    pub involuntary_switches: Vec<u64>,
    pub voluntary_switches: Vec<u64>,
}

/// Waits for a lock that reached 2^b iterations of their loop (bucket b), all vCPUs, by the state
/// of the lock at that moment. VEE 2013, section 3, distinguishes preempted holders and preempted
/// waiters by it. A wait of 2^b iterations is in all buckets up to b.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// No vCPU was between taking and releasing the lock, so the next in line does not run.
    pub free: Vec<u64>,
    pub held: Vec<u64>,
}

/// Time of all vCPUs of a VM in the measuring time, ns. The classes are disjoint, and add up to the
/// measuring time times the number of vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    pub useful_ns: u64,
    /// Spinning for a vCPU that was on a pCPU, and for one that was not.
    pub spin_holder_running_ns: u64,
    pub spin_holder_preempted_ns: u64,
    /// Switching to it, and handling its exits and the interrupts in its time.
    pub switch_ns: u64,
    pub exit_ns: u64,
    pub halted_ns: u64,
    /// Wanting a pCPU, having none.
    pub waiting_ns: u64,
    /// The parts of these for which factors of virtualization's cost are responsible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<Factors>,
}

/// Parts of a VM's time for which the five factors are responsible (NJIT 2018, chapter 2), ns. They
/// are disjoint: the first three and `migration_ns` are parts of `switch_ns + exit_ns`,
/// `user_spin_ns` of the spinning, `far_data_ns` of `useful_ns`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factors {
    /// Halting, waking and switching idle vCPUs (2.4.1).
    pub idle_switch_ns: u64,
    /// Stopping spinning vCPUs and switching them (2.4.2).
    pub spin_switch_ns: u64,
    /// Sending and receiving interrupts between vCPUs (2.4.3).
    pub ipi_ns: u64,
    /// Coming to another last-level cache (2.4.5).
    pub migration_ns: u64,
    /// Spinning in user space, which no loop detection sees (2.4.4).
    pub user_spin_ns: u64,
    /// Reading what siblings wrote from another last-level cache (2.4.5).
    pub far_data_ns: u64,
}

macro_rules! module_stats {
    ($(($counter:ident, $meaning:literal))+) => {
        /// The module's counts for one VM, by the names of its files (uapi/unspin.h). A record
        /// without one of them is refused, because unknown is not 0.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct ModuleStats {
            $(#[doc = $meaning] pub $counter: u64,)+
            pub cpu_cycles: u64,
            pub epochs: u64,
            pub fail_open_events: u64,
            pub inefficiency_last_ppm: u64,
            pub window_cycles: u64,
            /// Rounds of APLE since the VM started, not only in the measuring time.
            pub rounds_total: u64,
            pub turns: u64,
            pub turn_cycles: u64,
            pub vcrd: u64,
        }

        impl ModuleStats {
            /// Reads all of them by `of`, which gets the file's name.
            ///
            /// # Errors
            ///
            /// The first error of `of`.
            pub fn read<E>(mut of: impl FnMut(&'static str) -> Result<u64, E>) -> Result<Self, E> {
                Ok(ModuleStats {
                    $($counter: of(stringify!($counter))?,)+
                    cpu_cycles: of(Value::CPU_CYCLES.file())?,
                    epochs: of(Value::EPOCHS.file())?,
                    fail_open_events: of(Value::FAIL_OPEN.file())?,
                    inefficiency_last_ppm: of(Value::INEFFICIENCY_LAST.file())?,
                    window_cycles: of(Value::WINDOW.file())?,
                    rounds_total: of(Value::ROUNDS.file())?,
                    turns: of(Value::TURNS.file())?,
                    turn_cycles: of(Value::TURN_CYCLES.file())?,
                    vcrd: of(Value::VCRD.file())?,
                })
            }

            /// The changes since an earlier reading. Last values stay those of the later one.
            ///
            /// # Errors
            ///
            /// A count that decreased, because earlier counts are lost.
            pub fn since(&self, first: &ModuleStats) -> Result<ModuleStats, WentBack> {
                let since = |counter, from: u64, to: u64| {
                    to.checked_sub(from).ok_or(WentBack { counter, from, to })
                };
                macro_rules! since {
                    ($name:ident) => {
                        since(stringify!($name), first.$name, self.$name)?
                    };
                }
                Ok(ModuleStats {
                    $($counter: since!($counter),)+
                    cpu_cycles: since!(cpu_cycles),
                    epochs: since!(epochs),
                    fail_open_events: since!(fail_open_events),
                    inefficiency_last_ppm: self.inefficiency_last_ppm,
                    window_cycles: self.window_cycles,
                    rounds_total: self.rounds_total,
                    turns: since!(turns),
                    turn_cycles: since!(turn_cycles),
                    vcrd: self.vcrd,
                })
            }
        }
    };
}
for_each_counter!(module_stats);

impl ModuleStats {
    /// Successful directed yields of the module, to any vCPU.
    pub fn yields(&self) -> u64 {
        self.yields_resource_waiter
            + self.yields_lock_waiter
            + self.yields_yielded
            + self.yields_woken
    }
}

/// A count decreased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WentBack {
    pub counter: &'static str,
    pub from: u64,
    pub to: u64,
}

/// One finished epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochSample {
    pub vm: u32,
    pub at_ns: u64,
    pub epoch: u64,
    pub window_cycles: u64,
    pub inefficiency_ppm: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_uapi::{Counter, Kind};

    #[test]
    fn a_record_without_a_count_is_refused() {
        let json = serde_json::to_value(ModuleStats::default()).unwrap();
        for key in json.as_object().unwrap().keys() {
            let mut without = json.clone();
            without.as_object_mut().unwrap().remove(key);
            let error = serde_json::from_value::<ModuleStats>(without).unwrap_err();
            assert!(error.to_string().contains(key.as_str()), "{error}");
        }
    }

    #[test]
    fn counts_are_differences_and_last_values_the_laters() {
        let all = |n: u64| ModuleStats::read(|_| Ok::<_, ()>(n)).unwrap();
        let spent = all(9).since(&all(4)).unwrap();
        for counter in Counter::ALL {
            let json = serde_json::to_value(&spent).unwrap();
            assert_eq!(json[counter.file()], 5, "{counter:?}");
        }
        for value in Value::ALL {
            let expected = match value.kind() {
                Kind::COUNT => 5,
                Kind::LAST => 9,
            };
            let read = |stats: &ModuleStats| {
                let json = serde_json::to_value(stats).unwrap();
                json.get(value.file()).or(json.get(format!("{}_total", value.file()))).cloned()
            };
            // The mean since the reset can be computed from other counts.
            if *value != Value::INEFFICIENCY_AVG {
                assert_eq!(read(&spent).unwrap(), expected, "{value:?}");
            }
        }
        let back = all(4).since(&all(9)).unwrap_err();
        assert_eq!(back, WentBack { counter: "ple_exits", from: 9, to: 4 });
    }
}
