/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of VMs and vCPUs, and who may access it. All other files include this one, and it
 * includes none of them.
 *
 * A slot belongs to one vCPU. It is written by the thread that runs the vCPU, or by the CPU
 * that switches this thread in or out. Other CPUs read it (a pick, the end of an epoch,
 * sysfs). They write only work.remote, work.park, yielded_mark, listed, the pending pick (pick_*), the
 * notes of the watchdog (watch_*), the state of turns (turn.h), and window_touched when windows
 * are restored or the module unloads. Slots are found through a hash of the vCPU's address
 * under RCU; probes and the hook run with preemption off, which is an RCU reader.
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

/* Work for the next VM entry of a vCPU. Usually 0: none. */
union unspin_work {
	struct {
		u8 ple;		/* own thread: a PLE exit is being handled */
		u8 refresh;	/* own thread: KVM may have changed the window, or another thread runs the vCPU */
		u8 remote;	/* any CPU: the VM's window or mode changed */
		u8 park;	/* any CPU: it is another VM's turn, see park.c */
	};
	u32 any;
};

enum unspin_window_state {
	UNSPIN_WINDOW_UNCHECKED = 0,
	UNSPIN_WINDOW_GOOD,	/* the written window was read back */
	UNSPIN_WINDOW_REFUSED,	/* none here: PAUSE does not exit, or the window is not KVM's */
};

/* Not seen since the probes were attached. It may sleep, so it does not count as running. */
#define UNSPIN_OUT_UNKNOWN 1

/* Guest code around the instruction pointer of a vCPU, read by its own thread. */
#define UNSPIN_CODE_BYTES 512u

struct unspin_user {
	struct userspin_state state;	/* used only in interrupts of its own CPU */
	u64 sampled_tsc;		/* when the last sample was taken */
	u64 code_tsc;			/* when the code was read */
	u64 code_from;			/* guest address of the first byte */
	u32 code_bytes;			/* bytes that were read */
	u32 code_wanted_bytes;		/* bytes that its own thread is to read, all in one page */
	u8 code_wanted;			/* its own thread is to read them, from code_from on */
	u8 code[UNSPIN_CODE_BYTES];
};

struct unspin_vm;

#define UNSPIN_NO_CPU 0xffffu

/*
 * The state of a vCPU in turns; turn.h says what each state means and who may write it.
 */
struct unspin_turn {
	struct list_head parked_entry;	/* in the list of the pCPU it is parked on; under that list's lock */
	u64 asked_tsc;			/* when work.park was set */
	u64 ran_cycles;			/* CPU time while turns are on; written when it is switched out */
	u64 seen_cycles;		/* planner: ran_cycles at the last turn's end */
	u64 back_until_cycles;		/* it woke up, and may run in turns of others until its CPU time is this */
	u64 held_back_tsc;		/* out_tsc from which on it could run and did not */
	u32 weight;			/* its weight on a pCPU, see weight.c; 0: unknown */
	u32 lock_sleeps;		/* its VM's "sleeps" when it was parked */
	u16 parked_on;			/* the pCPU whose list it is on */
	u16 target;			/* the pCPU it should run on in this turn, or UNSPIN_NO_CPU */
	u16 fills;			/* the pCPU it fills in another VM's turn, or UNSPIN_NO_CPU */
	u16 called;			/* the pCPU it was woken for and has not reached yet */
	u8 parked;			/* its thread sleeps in park.c, */
	u8 woken;			/* or has been called since */
	u8 spun;			/* own thread: it was returning from a PLE exit when it was asked to leave */
	u8 at_lock;			/* it spun when it was parked, see unspin_turn_waits_for_lock() */
	u8 moves;			/* it runs on a sibling's target: park it, and wake it on its own */
	u8 missed;			/* arrivals in a row on another pCPU than it was called to */
	u8 late;			/* waits for a turn that ended by the deadline, in a row */
	u8 pass;			/* own thread: it may enter its guest once, in any turn */
};

struct unspin_slot {
	/* Read at every switch to the vCPU, at every VM entry of it, and by picks of its siblings. */
	struct hlist_node hash;		/* first, so that the pointer needs no offset */
	struct kvm_vcpu *vcpu;
	struct unspin_vm *vm;
	struct task_struct *held;	/* the thread that runs the vCPU; referenced, dropped after a grace period */
	u64 out_tsc;			/* when it was switched out; 0: runs or never ran; UNSPIN_OUT_UNKNOWN */
	union unspin_work work;
	s32 idx;			/* vcpu_idx, -1 until the first entry */
	u8 category;			/* enum hvs_category */
	u8 yielded_mark;
	u8 pick_pending;		/* picked, and not switched in since */
	u8 window_state;
	u8 window_touched;		/* its window was set by the module */
	u8 complete;			/* at its last PLE exit no sibling was without a core */
	u16 cpu;			/* where it was switched in last */

	/* Own thread only, except for totals and picks. */
	u64 run ____cacheline_aligned;	/* see unspin_run_cycles() */
	u64 in_tsc;
	struct hvs_waiting *waiting;	/* of a VM of more than HVS_SLOTS_MAX vCPUs, else NULL */
	u64 exit_tsc;			/* when the PLE exit being handled happened */
	u64 exit_out_cycles;		/* time without a CPU since then */
	u32 window_cycles;		/* in force since the last entry */
	u32 unreported_exits;		/* not yet added to the VM's epoch */
	u32 pick_seq;			/* switch count of pick_cpu when picked */
	u16 pick_cpu;
	u8 nested;			/* it has run a nested guest */
	u8 window_mismatches;		/* checks in a row that found another window in the processor */
	u64 listed_tsc;			/* HVS_TRUE_LISTS: its list and when it came there, until it is picked */
	u8 listed;			/* enum hvs_category */
	u64 count[UNSPIN_COUNTERS_COUNT];

	struct unspin_turn turn;
	struct unspin_user user;	/* see user_spin.c */

	struct list_head of_vm;
	u8 hashed;
	/* Watchdog only. */
	u8 watch_looks;			/* looks in a row that found it woken and waiting */
	u64 watch_out_tsc;
} ____cacheline_aligned;
/* At least two fit into a page. */
static_assert(sizeof(struct unspin_slot) <= 2048);

/*
 * Additional state of a VM with more than HVS_SLOTS_MAX vCPUs. A known vCPU has a bit in the list of
 * its category if, and only if, its out_tsc is not 0.
 */
struct unspin_large {
	struct hvs_waiting waiting;	/* "known" under unspin_lock; 0: not yet in use */
	struct unspin_slot **chunk[HVS_WORDS - 1];	/* HVS_SLOTS_MAX slots each, from that vcpu_idx on */
};

struct unspin_vm {
	/* Read on every PLE exit. */
	u8 active;			/* mode is not off: count */
	u8 window_on;			/* the module sets the window */
	u8 select_on;			/* the module selects the sibling */
	u8 fail_open;			/* left to KVM until the mode is written again */
	u8 crowded;			/* more vCPUs than CPUs they may run on: left to KVM meanwhile */
	u8 told_large;
	u8 in_turns;			/* its vCPUs wait while others have a turn; written by the planner */
	u8 judged;			/* planner: whether it spins is judged; always if it is in turns */
	u8 gang;			/* its vCPUs run together in its own turns; written by the planner */
	u8 over_share;			/* not gang_may_come_back(); written by the planner */
	u8 sampled;			/* its vCPUs are sampled now for spinning in user space */
	u8 hears_guest;			/* reports of its guest count: when its vCPUs should run together */
	u32 hvs_flags;
	u32 window_cycles;
	u32 report_batch;		/* exits a vCPU collects before it touches epoch_exits */
	u32 epoch_ple_exits;
	u64 epoch_min_until;		/* TSC; the running epoch does not end before */
	u64 epoch_start_tsc;
	u32 nslots;			/* highest vcpu_idx seen + 1 */
	u32 nslots_max;			/* with more vCPUs, or if this is 0, KVM selects */
	struct unspin_slot *slot[HVS_SLOTS_MAX];
	struct unspin_large *large;	/* slots beyond these; once there it stays */

	atomic_t epoch_exits ____cacheline_aligned;
	raw_spinlock_t epoch_lock;	/* the fields below */
	struct aple_state aple;
	struct aple_params params;
	struct unspin_totals epoch_base;
	struct unspin_totals reset_base;
	u64 epochs;
	u64 last_ppm;
	u64 watch_picks;		/* watchdog only */

	/* Guest's reports, see guest_report.c; any of its vCPUs. */
	atomic64_t report_tsc;		/* until when the reports so far use up their allowed rate */
	u64 high_until_tsc;
	u32 sleeps;			/* sleeps of its vCPUs in turns; any vCPU adds, so approximate */

	/* Written by the planner of turns; each is read as a whole. */
	u8 waits_for_turns;		/* settings: it takes part in turns */
	u8 gang_asked;			/* settings: it asks for turns of its own */
	u8 gang_wanted;			/* its vCPUs should run together; also set by its settings */
	u8 refused;			/* enum unspin_refusal: why it has no turns, for now */
	u8 refused_until_set;		/* as refused, but until its settings are written; any CPU */
	u64 missed_until_tsc;		/* no turns before this time, because its vCPUs missed their target CPUs */
	s64 turn_owed_cycles, turn_behind_cycles;	/* gang_vm.owed, .behind */
	u64 turn_apart_cycles;		/* gang_vm.apart, while its table is laid out anew */
	u32 turn_last;
	u64 turns, turn_cycles;
	struct demand_vm demand;
	u64 sample_until_us;		/* when "sampled" changes, see wanted.c */
	u64 sample_spins;		/* samples that found it spinning in user space, at the last change */
	u64 turns_base, turn_cycles_base;	/* at the last reset */

	const void *kvm;		/* never dereferenced */
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
	unsigned long own;		/* bits UNSPIN_OWN_*: values set for this VM, not inherited */
	struct kobject kobj;
	struct work_struct epoch_work;
	struct work_struct add_work;
	struct work_struct reap_work;
	struct rcu_work free_work;
};

/* Bits of unspin_vm.own: bit n is number n; the settings that are words follow. */
#define UNSPIN_OWN_MODE UNSPIN_NUMBERS_COUNT
#define UNSPIN_OWN_VARIANT (UNSPIN_NUMBERS_COUNT + 1)
#define UNSPIN_OWN_COSCHEDULING (UNSPIN_NUMBERS_COUNT + 2)

struct unspin_cpu {
	struct unspin_slot *cur;	/* the vCPU whose thread runs here; NULL: none that is known */
	u32 switches;
	/* Turns, see turn.h. */
	const void *owner;		/* a VM, unspin_turn_of_others, or NULL: none. Never dereferenced */
	struct unspin_slot *target;	/* vCPU that should run here; under RCU */
	struct unspin_slot *filler;	/* a vCPU of another VM that may run here; under RCU */
	u8 in_turns;			/* turns are on, for any owner of this CPU */
	u64 vcpu_cycles;		/* CPU time of vCPUs in turns and of the planner, while turns are on */
};
DECLARE_PER_CPU(struct unspin_cpu, unspin_cpu);

/* Allocated by unspin_vms_init(). RCU; written under unspin_lock. */
extern struct hlist_head *unspin_slot_hash;
extern u32 unspin_slot_hash_bits;
extern raw_spinlock_t unspin_lock;	/* hash, list of VMs, binding; interrupts off */
extern struct list_head unspin_vms;
extern atomic_t unspin_live_objects;
extern struct mutex unspin_mutex;	/* settings, modes, attached or not; may sleep */

/* Changes whenever a VM or vCPU comes or goes, for the planner of turns. */
extern atomic_t unspin_census;

static inline u64 unspin_now(void)
{
	return rdtsc();
}

/* The time from now until then; 0 if that is over, or further ahead than it can be: the clock was set back. */
static inline u64 unspin_time_left(u64 until, u64 now, u64 most)
{
	return until - now <= most ? until - now : 0;
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
