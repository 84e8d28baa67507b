/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The module's interface to user space. Each name, bound and meaning is defined once, here.
 *
 * The module expands these lists into its files; build scripts expand them into the
 * tables of the command, the agent and the simulator; docs/sysfs.md is checked against
 * them. Meanings are for people: one phrase, no full stop. Numbers are decimal and have
 * no suffix, so that both C and Rust can read them.
 */
#ifndef UAPI_UNSPIN_H
#define UAPI_UNSPIN_H

/* X(IDENTIFIER, name, meaning): what the module does for a VM. */
#define UNSPIN_MODES(X) \
	X(OFF, "off", "KVM's window and choice, nothing is counted") \
	X(OBSERVE, "observe", "KVM's window and choice, PLE exits are counted") \
	X(APLE, "aple", "the module's window, KVM's choice") \
	X(HVS, "hvs", "KVM's window, the module's choice") \
	X(APPLES, "apples", "the module's window and choice")

/*
 * X(IDENTIFIER, name, flags, meaning): readings of HVS. Flags are those of policy/hvs.h.
 * The first is the default.
 */
#define UNSPIN_VARIANTS(X) \
	X(HVS, "hvs", HVS_ADDED, "HVS of the paper, with the additions of unspin") \
	X(PAPER, "hvs-paper", 0, "HVS of the paper") \
	X(CPTH_R, "cpth-r", HVS_COUNTER_TIME_RESOURCE, \
	  "hvs-paper, but resource waiters longest preempted first") \
	X(CPTH_L, "cpth-l", HVS_COUNTER_TIME_LOCK, \
	  "hvs-paper, but lock waiters last preempted first") \
	X(CCH, "cch", HVS_COUNTER_CAUSALITY, \
	  "hvs-paper, but lock waiters before resource waiters") \
	X(PAPER_LISTS, "hvs-paper-lists", HVS_TRUE_LISTS, \
	  "hvs-paper, but a vCPU stays on its list until it is picked or preempted again") \
	X(CPTH_R_LISTS, "cpth-r-lists", HVS_COUNTER_TIME_RESOURCE | HVS_TRUE_LISTS, \
	  "cpth-r with the lists of hvs-paper-lists") \
	X(CPTH_L_LISTS, "cpth-l-lists", HVS_COUNTER_TIME_LOCK | HVS_TRUE_LISTS, \
	  "cpth-l with the lists of hvs-paper-lists") \
	X(CCH_LISTS, "cch-lists", HVS_COUNTER_CAUSALITY | HVS_TRUE_LISTS, \
	  "cch with the lists of hvs-paper-lists") \
	X(DISPLACED, "hvs-displaced", HVS_ADDED | HVS_DISPLACED_LAST, \
	  "hvs, but a vCPU that lost its core to a directed yield is picked last") \
	X(PAPER_DISPLACED, "hvs-paper-displaced", HVS_DISPLACED_LAST, \
	  "hvs-paper, but a vCPU that lost its core to a directed yield is picked last")

/*
 * X(IDENTIFIER, name, meaning): when a VM's vCPUs run together, in turns with other VMs. Never
 * in modes off and observe. The first is the default.
 */
#define UNSPIN_COSCHEDULINGS(X) \
	X(NONE, "none", "never: the scheduler alone places its vCPUs") \
	X(VCRD, "vcrd", "while its guest asks for it after a long wait for a lock") \
	X(VCRD_PLE, "vcrd-ple", "while much of its CPU time goes into PLE exits") \
	X(VCRD_USER, "vcrd-user", \
	  "while its vCPUs spin in user space, as samples of their code show") \
	X(VCRD_BOTH, "vcrd-both", \
	  "while PLE exits and user-space spins together take much of its CPU time") \
	X(CON, "con", "always")

/*
 * X(IDENTIFIER, reason): why a VM neither has turns nor waits for turns, or why its vCPUs do not
 * run together although it asks for it. The first: nothing prevents it.
 */
#define UNSPIN_REFUSALS(X) \
	X(NONE, "none") \
	X(NOT_WAITING, "wait_for_turns is 0") \
	X(LEFT_TO_KVM, "the VM is left to KVM") \
	X(REALTIME, "it has vCPUs of a real-time or deadline class") \
	X(CORE_SCHEDULING, "it has core-scheduling cookies") \
	X(SCHED_EXT, "sched_ext schedules its vCPUs") \
	X(BOUNDS, "more VMs or vCPUs take part than the module supports") \
	X(UNPLACED, "its vCPUs have too few CPUs to run together") \
	X(MISSED, "its vCPUs do not run on the CPUs they are woken for") \
	X(LATE, "a vCPU reached the limit of its wait for a turn three times in a row")

/*
 * X(IDENTIFIER, file, least, most, default, unit, meaning): settings that are numbers, of
 * a VM and of default/. Steps are also bounded by window_max_cycles.
 */
#define UNSPIN_NUMBERS(X) \
	X(WINDOW_MIN, window_min_cycles, 16, 1073741824, 4096, "TSC cycles", \
	  "lower bound of APLE's window (Tl)") \
	X(WINDOW_MAX, window_max_cycles, 16, 1073741824, 32768, "TSC cycles", \
	  "upper bound of APLE's window (Tu)") \
	X(WINDOW_INIT, window_init_cycles, 16, 1073741824, 8192, "TSC cycles", \
	  "initial window of APLE (T0)") \
	X(DELTA, delta_cycles, 0, 1073741824, 1024, "TSC cycles", \
	  "smallest step of APLE, 0 keeps the window at T0") \
	X(DELTA_MAX, delta_max_cycles, 0, 1073741824, 8192, "TSC cycles", \
	  "largest step of APLE; APLE is the paper's if not above delta_cycles") \
	X(EPOCH, epoch_ple_exits, 1, 16777216, 1000, "PLE exits", "PLE exits per epoch") \
	X(EPOCH_MIN, epoch_min_us, 0, 1000000, 10000, "microseconds", \
	  "shortest length of an epoch") \
	X(TURN, turn_us, 1000, 100000, 6000, "microseconds", \
	  "length of the turns that start with this VM") \
	X(WAIT_FOR_TURNS, wait_for_turns, 0, 1, 1, "0 or 1", \
	  "1: its vCPUs wait while another VM has a turn on their pCPU, in any mode; 0: they never wait, and the VM has no turns")

/* X(IDENTIFIER, file, meaning): counts of a VM since its reset, kept per vCPU. */
#define UNSPIN_COUNTERS(X) \
	X(PLE_EXITS, ple_exits, "spins that the processor stopped") \
	X(SPIN_CYCLES, wasteful_spin_cycles, "sum of the windows of these exits") \
	X(SWITCH_CYCLES, wasteful_switch_cycles, \
	  "time from a PLE exit to the next entry, without the time switched out") \
	X(YIELD_RESOURCE, yields_resource_waiter, \
	  "accepted directed yields to a vCPU whose time slice had ended") \
	X(YIELD_LOCK, yields_lock_waiter, \
	  "accepted directed yields to a vCPU that lost its core in its own PLE exit") \
	X(YIELD_YIELDED, yields_yielded, \
	  "accepted directed yields to a vCPU that had been picked before") \
	X(YIELD_WOKEN, yields_woken, \
	  "accepted directed yields to a vCPU that had slept and was woken") \
	X(YIELD_NONE, yields_none, "PLE exits that ended without a yield") \
	X(GAVE_WAY, yields_gave_way, "PLE exits that left the core to the scheduler") \
	X(YIELD_FAILED, yields_failed, "targets that the scheduler refused") \
	X(RAN_NEXT, picks_ran_next, "targets that ran next on their CPU") \
	X(HC_KICK, hypercalls_kick, "KVM_HC_KICK_CPU of the guest") \
	X(HC_SCHED_YIELD, hypercalls_sched_yield, "KVM_HC_SCHED_YIELD of the guest") \
	X(PARKS, parks, "times a vCPU was parked during a turn of other VMs") \
	X(PARKS_LATE, parks_late, "parks that timed out before a turn of its own") \
	X(PARKS_MISSED, parks_missed, \
	  "times a vCPU ran on another pCPU than it was woken for, twice in a row") \
	X(PARKED_CYCLES, parked_cycles, "time vCPUs were parked") \
	X(OVERSTAY_CYCLES, overstay_cycles, \
	  "time vCPUs kept running after the start of a turn of other VMs") \
	X(FILLS, fills, "times a vCPU ran on an idle pCPU during a turn of other VMs") \
	X(USER_SAMPLES, user_samples, \
	  "samples of where a vCPU runs, one per ms while the module looks for user-space spins") \
	X(USER_SPINS, user_spins, "samples that found the vCPU spinning in user space") \
	X(REPORTS, guest_reports, "accepted reports of the guest") \
	X(REPORTS_IGNORED, guest_reports_ignored, \
	  "rejected reports of the guest: too many, not from its kernel, or invalid")

/*
 * X(IDENTIFIER, file, kind, meaning): other values of a VM. COUNT grows until the next reset;
 * LAST is the present value.
 */
#define UNSPIN_VALUES(X) \
	X(CPU_CYCLES, cpu_cycles, COUNT, "CPU time of the vCPU threads") \
	X(INEFFICIENCY_LAST, inefficiency_last_ppm, LAST, \
	  "(spin + switch) / CPU of the last epoch, parts per million") \
	X(INEFFICIENCY_AVG, inefficiency_avg_ppm, LAST, \
	  "(spin + switch) / CPU since reset, parts per million") \
	X(WINDOW, window_cycles, LAST, "the VM's window, or the mean of KVM's windows") \
	X(EPOCHS, epochs, COUNT, "finished epochs") \
	X(ROUNDS, rounds, LAST, "finished APLE rounds of 3 epochs since the last start of APLE") \
	X(VCRD, vcrd, LAST, "1 while the VM's vCPUs should run together, else 0") \
	X(TURNS, turns, COUNT, "turns in which vCPUs of this VM ran together") \
	X(TURN_CYCLES, turn_cycles, COUNT, "total length of these turns") \
	X(FAIL_OPEN, fail_open_events, COUNT, "times this VM was left to KVM")

/* X(IDENTIFIER, file, meaning): values of the module as a whole. */
#define UNSPIN_MODULE_VALUES(X) \
	X(LIVE_OBJECTS, live_objects, "number of VMs and vCPUs that the module tracks") \
	X(WINDOW_CONTROL, window_control, "vmx, svm, or none: REASON") \
	X(TURNS_EXCLUDED_CPUS, turns_excluded_cpus, \
	  "CPUs without turns, because tasks of the host take more than 12 % of them") \
	X(FAIL_OPEN_TOTAL, fail_open_total, \
	  "times the module fell back to KVM's own behaviour, all VMs")

#endif
