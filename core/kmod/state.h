/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of VMs and vCPUs, and who may access it. The ground floor: every other file stands
 * on it, and it knows none of them.
 *
 * A slot belongs to one vCPU and is written by the thread that runs it, or by
 * the CPU that switches this thread in or out. Other CPUs read it (a pick, an
 * epoch's end, sysfs). They write work.remote, work.park, yielded_mark, the pending pick
 * (pick_*), the watchdog's notes (watch_*), what turns say of it (turn.h), and, when windows
 * are put back or the module goes, window_touched. Slots are found through a hash of the vCPU's address under
 * RCU; probes and the hook run with preemption off, which is an RCU reader.
 */
#ifndef UNSPIN_STATE_H
#define UNSPIN_STATE_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/hash.h>
#include <linux/kobject.h>
#include <linux/kvm_host.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rbtree.h>
#include <linux/rculist.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <asm/msr.h>

#include "../policy/aple.h"
#include "../policy/demand.h"
#include "../policy/hvs.h"
#include "../policy/userspin.h"
#include "../uapi/unspin.h"
#include "compat/compat.h"

#undef pr_fmt
#define pr_fmt(fmt) "unspin: " fmt

#define UNSPIN_NAME_MODE(id, name, meaning) UNSPIN_##id,
enum unspin_mode { UNSPIN_MODES(UNSPIN_NAME_MODE) UNSPIN_MODES_COUNT };
#undef UNSPIN_NAME_MODE

#define UNSPIN_NAME_NUMBER(id, file, least, most, value, unit, meaning) UNSPIN_N_##id,
enum unspin_number { UNSPIN_NUMBERS(UNSPIN_NAME_NUMBER) UNSPIN_NUMBERS_COUNT };
#undef UNSPIN_NAME_NUMBER

/* Counters of one vCPU; each has one writer at a time, so none is atomic. */
#define UNSPIN_NAME_COUNTER(id, file, meaning) UNSPIN_C_##id,
enum unspin_counter { UNSPIN_COUNTERS(UNSPIN_NAME_COUNTER) UNSPIN_COUNTERS_COUNT };
#undef UNSPIN_NAME_COUNTER

#define UNSPIN_NAME_REFUSAL(id, reason) UNSPIN_REFUSED_##id,
enum unspin_refusal { UNSPIN_REFUSALS(UNSPIN_NAME_REFUSAL) };
#undef UNSPIN_NAME_REFUSAL

#define UNSPIN_NAME_COSCHEDULING(id, name, meaning) UNSPIN_COSCHEDULING_##id,
enum unspin_coscheduling { UNSPIN_COSCHEDULINGS(UNSPIN_NAME_COSCHEDULING) UNSPIN_COSCHEDULINGS_COUNT };
#undef UNSPIN_NAME_COSCHEDULING

struct unspin_settings {
	enum unspin_mode mode;
	enum unspin_coscheduling coscheduling;
	u32 variant;			/* index into UNSPIN_VARIANTS */
	u32 number[UNSPIN_NUMBERS_COUNT];
};

struct unspin_totals {
	u64 count[UNSPIN_COUNTERS_COUNT];
	u64 cpu_cycles;
};

/* What the next VM entry of a vCPU must look at. Zero: nothing, the usual case. */
union unspin_work {
	struct {
		u8 ple;		/* own thread: a PLE exit is being handled */
		u8 refresh;	/* own thread: KVM may have changed the window, or the thread is another */
		u8 remote;	/* any CPU: the VM's window or mode changed */
		u8 park;	/* any CPU: another's turn, see park.c */
	};
	u32 any;
};

enum unspin_window_state {
	UNSPIN_WINDOW_UNCHECKED = 0,
	UNSPIN_WINDOW_GOOD,	/* what was written was read back */
	UNSPIN_WINDOW_REFUSED,	/* PAUSE left to the guest, or no window of KVM's */
};

/* Not seen since probes were attached: it may sleep, so it is not taken for one that runs. */
#define UNSPIN_OUT_UNKNOWN 1

/* Guest code around where a vCPU was, read by its own thread. */
#define UNSPIN_CODE_BYTES 512u

struct unspin_user {
	struct userspin_state state;	/* interrupts of the own CPU */
	u64 sampled_tsc;		/* the last one */
	u64 code_tsc;			/* when it was read */
	u64 code_from;			/* the guest's address of the first byte */
	u32 code_bytes;			/* so many could be read */
	u32 code_wanted_bytes;		/* the own thread is to read so many, all in one page */
	u8 code_wanted;			/* the own thread is to read them, from code_from on */
	u8 code[UNSPIN_CODE_BYTES];
};

struct unspin_vm;

#define UNSPIN_NO_CPU 0xffffu

/*
 * What turns know of a vCPU; turn.h says what each state means and who may write it.
 */
struct unspin_turn {
	struct list_head parked_entry;	/* of the pCPU it is parked on; under that list's lock */
	u64 asked_tsc;			/* work.park was set then */
	u64 ran_cycles;			/* while turns are made; written where it is switched out */
	u64 seen_cycles;		/* planner: ran_cycles at the last turn's end */
	u64 held_back_tsc;		/* switched out then, it has not run although it might */
	u32 weight;			/* of its part of a pCPU, see weight.c; 0: unknown */
	u32 lock_sleeps;		/* its VM's "sleeps" when it was parked */
	u16 parked_on;			/* the pCPU whose list it is on */
	u16 target;			/* the pCPU it should run on in this turn, or UNSPIN_NO_CPU */
	u16 fills;			/* the pCPU of others it was let in to */
	u16 called;			/* woken for this pCPU, and has not arrived there */
	u8 parked;			/* its thread sleeps, in park.c, */
	u8 woken;			/* or has been called since */
	u8 spun;			/* own thread: it was on its way back from a PLE exit when it was asked to go */
	u8 at_lock;			/* it spun when it was parked, see unspin_turn_waits_for_lock() */
	u8 moves;			/* runs where another of its VM should: to be parked, and woken at its target */
	u8 missed;			/* arrived elsewhere than where it was called to, so often in a row */
	u8 late;			/* its last wait for a turn ended by the deadline */
	u8 pass;			/* own thread: it enters its guest once, in any turn */
};

struct unspin_slot {
	/* Read by every switch to the vCPU, every VM entry of it and by picks of its siblings. */
	struct hlist_node hash;		/* first: found with no sums on the pointer */
	struct kvm_vcpu *vcpu;
	struct unspin_vm *vm;
	struct task_struct *held;	/* runs the vCPU; a reference of ours, dropped after a grace period */
	u64 out_tsc;			/* switched out then; 0: runs or never ran; UNSPIN_OUT_UNKNOWN */
	union unspin_work work;
	s32 idx;			/* vcpu_idx, -1 until the first entry */
	u8 category;			/* enum hvs_category */
	u8 yielded_mark;
	u8 pick_pending;		/* picked, not switched in since */
	u8 window_state;
	u8 window_touched;		/* holds a window of ours */
	u8 complete;			/* the last PLE exit found no sibling without a core */
	u16 cpu;			/* where it was switched in last */

	/* Own thread only, but for the totals and the pick. */
	u64 run ____cacheline_aligned;	/* see unspin_run_cycles() */
	u64 in_tsc;
	struct hvs_waiting *waiting;	/* of a VM of more than HVS_SLOTS_MAX vCPUs, else NULL */
	u64 exit_tsc;			/* of the PLE exit being handled */
	u64 exit_out_cycles;		/* switched out since then */
	u32 window_cycles;		/* in force since the last entry */
	u32 unreported_exits;		/* not yet added to the VM's epoch */
	u32 pick_seq;			/* switch count of pick_cpu when picked */
	u16 pick_cpu;
	u8 nested;			/* has been seen to run a nested guest */
	u8 window_mismatches;		/* checks in a row that found another window in the processor */
	u64 count[UNSPIN_COUNTERS_COUNT];

	struct unspin_turn turn;
	struct unspin_user user;	/* see user_spin.c */

	struct list_head of_vm;
	u8 hashed;
	/* Watchdog only. */
	u8 watch_looks;			/* looks in a row that found it woken and waiting */
	u64 watch_out_tsc;
} ____cacheline_aligned;
/* Two to a page at least. */
static_assert(sizeof(struct unspin_slot) <= 2048);

/*
 * What a VM of more than HVS_SLOTS_MAX vCPUs has besides. Of a vCPU that is known one bit is set
 * if, and only if, its out_tsc is not 0: that of the list its category names.
 */
struct unspin_large {
	struct hvs_waiting waiting;	/* "known" under unspin_lock; 0: not yet in use */
	struct unspin_slot **chunk[HVS_WORDS - 1];	/* HVS_SLOTS_MAX slots each, from that vcpu_idx on */
};

struct unspin_vm {
	/* Read on every PLE exit. */
	u8 active;			/* mode is not off: count */
	u8 window_on;			/* our window */
	u8 select_on;			/* our selection */
	u8 fail_open;			/* KVM's own until the mode is written again */
	u8 crowded;			/* more vCPUs than CPUs for them: left to KVM meanwhile */
	u8 told_large;
	u8 in_turns;			/* its vCPUs wait while others have a turn; written by the planner */
	u8 gang;			/* and run together in its own turns; likewise */
	u8 sampled;			/* whether its vCPUs spin in user space is looked at now */
	u8 hears_guest;			/* its guest says when its vCPUs should run together */
	u32 hvs_flags;
	u32 window_cycles;
	u32 report_batch;		/* exits a vCPU collects before it touches epoch_exits */
	u32 epoch_ple_exits;
	u64 epoch_min_until;		/* TSC; the running epoch does not end before */
	u64 epoch_start_tsc;
	u32 nslots;			/* highest vcpu_idx seen + 1 */
	u32 nslots_max;			/* with more, or with 0 here, KVM's selection */
	struct unspin_slot *slot[HVS_SLOTS_MAX];
	struct unspin_large *large;	/* slots beyond these; once there it stays */

	atomic_t epoch_exits ____cacheline_aligned;
	raw_spinlock_t epoch_lock;	/* the fields below; taken with interrupts off */
	struct aple_state aple;
	struct aple_params params;
	struct unspin_totals epoch_base;
	struct unspin_totals reset_base;
	u64 epochs;
	u64 last_ppm;
	u64 watch_picks;		/* watchdog only */

	/* Guest's reports, see guest_report.c; any of its vCPUs. */
	atomic64_t report_tsc;		/* when they would be over, had they come no faster than they may */
	u64 high_until_tsc;
	u32 sleeps;			/* sleeps of its vCPUs in turns; any vCPU adds, so approximate */

	/* Planner of turns; a reader sees any of them whole. */
	u8 waits_for_turns;		/* settings: it takes part in turns */
	u8 gang_asked;			/* settings: it asks for turns of its own */
	u8 gang_wanted;			/* its vCPUs should run together; set by its settings, too */
	u8 refused;			/* enum unspin_refusal: why it has no turns, for now */
	u8 refused_until_set;		/* likewise, until somebody writes its settings; any CPU */
	u64 missed_until_tsc;		/* no turns before this time: its vCPUs miss their target CPUs */
	s64 turn_owed_cycles;
	u32 turn_last;
	u64 turns, turn_cycles;
	struct demand_vm demand;
	u64 sample_until_us;		/* "sampled" changes then, see wanted.c */
	u64 sample_spins;		/* how often it was found to spin in user space until then */
	u64 turns_base, turn_cycles_base;	/* at the last reset */

	const void *kvm;		/* identity only */
	u64 generation;			/* never reused, unlike addresses and pids */
	pid_t pid;
	u32 number;
	bool dead;			/* under unspin_lock */
	bool named;			/* the directory exists; under the workqueue */
	u32 slots_made;			/* under unspin_lock */
	struct list_head all;		/* unspin_vms, under unspin_lock and RCU */
	struct rb_node by_kvm;		/* under unspin_lock */
	struct unspin_maker *maker;	/* under unspin_lock; see numbers.c */
	struct list_head slots;		/* unspin_slot.of_vm: added to, never removed from, while alive */
	atomic64_t fail_open_events;

	struct unspin_settings set;	/* under unspin_mutex */
	unsigned long own;		/* bits UNSPIN_OWN_*: set for this VM itself */
	struct kobject kobj;
	struct work_struct epoch_work;
	struct work_struct add_work;
	struct work_struct reap_work;
};

/* Bit n of unspin_vm.own: number n; beyond the numbers, the words. */
#define UNSPIN_OWN_MODE UNSPIN_NUMBERS_COUNT
#define UNSPIN_OWN_VARIANT (UNSPIN_NUMBERS_COUNT + 1)
#define UNSPIN_OWN_COSCHEDULING (UNSPIN_NUMBERS_COUNT + 2)

struct unspin_cpu {
	struct unspin_slot *cur;	/* whose thread this CPU runs; NULL: not a known vCPU's */
	u32 switches;
	/* Of turns, see turn.h. */
	const void *owner;		/* a VM, unspin_turn_of_others, or NULL: anybody's. Compared only */
	struct unspin_slot *target;	/* vCPU that should run here; under RCU */
	struct unspin_slot *filler;	/* a vCPU of another that may run here; under RCU */
	u8 in_turns;			/* turns are on, for any owner of this CPU */
	u64 vcpu_cycles;		/* had by vCPUs that take part in turns, and by their planner, while turns are made */
};
DECLARE_PER_CPU(struct unspin_cpu, unspin_cpu);

/* Made by unspin_vms_init(). RCU; written under unspin_lock. */
extern struct hlist_head *unspin_slot_hash;
extern u32 unspin_slot_hash_bits;
extern raw_spinlock_t unspin_lock;	/* hash, list of VMs, binding; interrupts off */
extern struct list_head unspin_vms;
extern atomic_t unspin_live_objects;
extern struct mutex unspin_mutex;	/* settings, modes, attached or not; may sleep */

/* VMs or vCPUs have come or gone since the planner of turns looked. */
extern atomic_t unspin_census;

static inline u64 unspin_now(void)
{
	return rdtsc();
}

static inline void unspin_count(struct unspin_slot *slot, enum unspin_counter counter, u64 n)
{
	WRITE_ONCE(slot->count[counter], slot->count[counter] + n);
}

static inline struct hlist_head *unspin_slot_bucket(const struct kvm_vcpu *vcpu)
{
	return &unspin_slot_hash[hash_ptr(vcpu, unspin_slot_hash_bits)];
}

/* Preemption off, or unspin_lock held. */
static inline struct unspin_slot *unspin_slot_find(const struct kvm_vcpu *vcpu)
{
	struct unspin_slot *slot;

	hlist_for_each_entry_rcu_notrace(slot, unspin_slot_bucket(vcpu), hash)
		if (slot->vcpu == vcpu)
			return slot;
	return NULL;
}

/* Whether any vCPU is in this state. */
bool unspin_any_slot(bool (*is)(const struct unspin_slot *slot));

/* Whether a slot's vCPU may be dereferenced now. unspin_lock is held. */
static inline bool unspin_slot_alive(const struct unspin_slot *slot)
{
	return slot->hashed && slot->idx >= 0;
}

/* It slept, was woken, and waits for a core. The vCPU may be dereferenced. */
static inline bool unspin_slot_woken(const struct unspin_slot *slot)
{
	return READ_ONCE(slot->category) == HVS_NOT_PREEMPTED && READ_ONCE(slot->out_tsc) &&
	       READ_ONCE(slot->vcpu->ready);
}

/* Tells every vCPU of the VM to look at window and mode at its next entry. */
static inline void unspin_vm_kick_slots(struct unspin_vm *vm)
{
	struct unspin_slot *slot;

	rcu_read_lock();
	list_for_each_entry_rcu(slot, &vm->slots, of_vm) {
		/* Pairs with the xchg() in unspin_entry(): what was stored before is seen there. */
		smp_store_release(&slot->work.remote, 1);
	}
	rcu_read_unlock();
}

#endif
