/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the module keeps about VMs and vCPUs, and who may touch it.
 *
 * A slot belongs to one vCPU and is written by the thread that runs it, or by
 * the CPU that switches this thread in or out. Other CPUs read it (a pick, an
 * epoch's end, sysfs) and write three bytes of it: work.remote, yielded_mark and
 * the pending pick. Slots are found through a hash of the vCPU's address under
 * RCU; probes and the hook run with preemption off, which is an RCU reader.
 */
#ifndef UNSPIN_H
#define UNSPIN_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/kobject.h>
#include <linux/kvm_host.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rculist.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <asm/msr.h>

#include "../policy/aple.h"
#include "../policy/hvs.h"
#include "compat/compat.h"

#undef pr_fmt
#define pr_fmt(fmt) "unspin: " fmt

enum unspin_mode {
	UNSPIN_OFF = 0,
	UNSPIN_OBSERVE,		/* KVM's window and selection, counted */
	UNSPIN_APLE,		/* our window, KVM's selection */
	UNSPIN_HVS,		/* KVM's window, our selection */
	UNSPIN_APPLES,		/* both */
	UNSPIN_MODES,
};

/* One settable value a field; the order is that of unspin_setting_names. */
enum unspin_field {
	UNSPIN_F_MODE = 0,
	UNSPIN_F_WINDOW_INIT,
	UNSPIN_F_WINDOW_MIN,
	UNSPIN_F_WINDOW_MAX,
	UNSPIN_F_DELTA,
	UNSPIN_F_DELTA_MAX,
	UNSPIN_F_EPOCH,
	UNSPIN_F_EPOCH_MIN,
	UNSPIN_F_VARIANT,
	UNSPIN_FIELDS,
};

struct unspin_settings {
	enum unspin_mode mode;
	u32 hvs_flags;
	struct aple_params aple;
};

/* Counters of one vCPU; each has one writer at a time, so none is atomic. */
enum unspin_counter {
	UNSPIN_C_PLE_EXITS = 0,
	UNSPIN_C_SPIN_CYCLES,
	UNSPIN_C_SWITCH_CYCLES,
	UNSPIN_C_YIELD_RESOURCE,
	UNSPIN_C_YIELD_LOCK,
	UNSPIN_C_YIELD_YIELDED,
	UNSPIN_C_YIELD_NONE,
	UNSPIN_C_GAVE_WAY,
	UNSPIN_C_YIELD_FAILED,
	UNSPIN_C_RAN_NEXT,
	UNSPIN_C_HC_KICK,
	UNSPIN_C_HC_SCHED_YIELD,
	UNSPIN_COUNTERS,
};

struct unspin_totals {
	u64 count[UNSPIN_COUNTERS];
	u64 cpu_cycles;
};

/* What the next VM entry of a vCPU must look at. Zero: nothing, the usual case. */
union unspin_work {
	struct {
		u8 ple;		/* own thread: a PLE exit is being handled */
		u8 refresh;	/* own thread: KVM may have changed the window */
		u8 remote;	/* any CPU: the VM's window or mode changed */
		u8 unused;
	};
	u32 any;
};

enum unspin_window_state {
	UNSPIN_WINDOW_UNCHECKED = 0,
	UNSPIN_WINDOW_GOOD,	/* what was written was read back */
	UNSPIN_WINDOW_REFUSED,	/* PAUSE left to the guest, or the check failed */
};

/* Not seen since probes were attached: it may sleep, so it is not taken for one that runs. */
#define UNSPIN_OUT_UNKNOWN 1

struct unspin_vm;

struct unspin_slot {
	/* Read by every VM entry of the vCPU and by picks of its siblings. */
	struct kvm_vcpu *vcpu;
	struct unspin_vm *vm;
	struct task_struct *task;	/* identity only, never dereferenced */
	u64 out_tsc;			/* switched out then; 0: runs or never ran; UNSPIN_OUT_UNKNOWN */
	union unspin_work work;
	s32 idx;			/* vcpu_idx, -1 until the first entry */
	u8 category;			/* enum hvs_category */
	u8 yielded_mark;
	u8 pick_pending;		/* picked, not switched in since */
	u8 window_state;
	u8 window_touched;		/* holds a window of ours */
	u8 in_flight;			/* inside unspin_on_spin() */
	u8 complete;			/* the last PLE exit found no sibling without a core */
	u16 pick_cpu;
	u32 pick_seq;			/* switch count of pick_cpu when picked */
	u32 cpu;			/* where it was switched in or out last */

	/* Own thread only, but for the totals. */
	u64 run ____cacheline_aligned;	/* see unspin_run_cycles() */
	u64 in_tsc;
	u64 out_cycles;			/* sum of all times switched out */
	u64 exit_tsc;			/* of the PLE exit being handled */
	u64 exit_out_cycles;		/* out_cycles then */
	u32 window_cycles;		/* in force since the last entry */
	u32 unreported_exits;		/* not yet added to the VM's epoch */
	u64 count[UNSPIN_COUNTERS];

	struct hlist_node hash;
	struct list_head of_vm;
	u8 hashed;
} ____cacheline_aligned;

struct unspin_vm {
	/* Read on every PLE exit. */
	u8 active;			/* mode is not off: count */
	u8 window_on;			/* our window */
	u8 select_on;			/* our selection */
	u8 fail_open;			/* KVM's own until the mode is written again */
	u8 told_large;
	u32 hvs_flags;
	u32 window_cycles;
	u32 report_batch;		/* exits a vCPU collects before it touches epoch_exits */
	u32 epoch_ple_exits;
	u64 epoch_min_until;		/* TSC; the running epoch does not end before */
	u32 nslots;			/* highest vcpu_idx seen + 1 */
	struct unspin_slot *slot[HVS_SLOTS_MAX];

	atomic_t epoch_exits ____cacheline_aligned;
	raw_spinlock_t epoch_lock;	/* the fields below; taken with interrupts off */
	struct aple_state aple;
	struct aple_params params;
	struct unspin_totals epoch_base;
	struct unspin_totals reset_base;
	u64 epochs;
	u64 last_ppm;
	u64 watch_picks;		/* watchdog only */

	const void *kvm;		/* identity only */
	u64 generation;			/* never reused, unlike addresses and pids */
	pid_t pid;
	u32 number;
	bool dead;			/* under unspin_lock */
	bool named;			/* the directory exists; under the workqueue */
	struct list_head all;		/* unspin_vms, under unspin_lock and RCU */
	struct list_head slots;		/* unspin_slot.of_vm: added to, never removed from, while alive */
	atomic64_t fail_open_events;

	struct unspin_settings set;	/* under unspin_mutex */
	unsigned long own;		/* bit per unspin_field: set for this VM itself */
	struct kobject kobj;
	struct work_struct add_work;
	struct work_struct reap_work;
};

struct unspin_cpu {
	struct unspin_slot *cur;	/* whose thread this CPU runs; NULL: not a known vCPU's */
	u64 exit_tsc;			/* last VM exit on this CPU */
	u32 switches;
};
DECLARE_PER_CPU(struct unspin_cpu, unspin_cpu);

/* Vendor's way to a vCPU's window. All but restore_remote: from the vCPU's own thread at kvm_entry. */
struct unspin_window_ops {
	const char *name;		/* "vmx", "svm" */
	u32 default_cycles;		/* what KVM starts from */
	/* GOOD or REFUSED; compares what KVM keeps with what the processor has. */
	enum unspin_window_state (*check)(struct kvm_vcpu *vcpu);
	u32 (*get)(struct kvm_vcpu *vcpu);
	/* Returns the window that will be in force, which granularity may round. */
	u32 (*set)(struct kvm_vcpu *vcpu, u32 window_cycles);
	/* From any context; the vCPU's thread may run. */
	void (*restore_remote)(struct kvm_vcpu *vcpu);
	void (*force_pause)(struct kvm_vcpu *vcpu, bool on);
};

/* main.c */
extern struct mutex unspin_mutex;	/* settings, modes, attached or not; may sleep */
extern struct unspin_settings unspin_default;
extern bool unspin_force_pause_intercept;
extern atomic64_t unspin_fail_open_total;
int unspin_init_step(const char *what);
void unspin_fail_open(struct unspin_vm *vm, const char *why);

/* vms.c */
#define UNSPIN_SLOT_HASH_BITS 10
extern struct hlist_head unspin_slot_hash[1 << UNSPIN_SLOT_HASH_BITS];	/* RCU; written under unspin_lock */
extern raw_spinlock_t unspin_lock;	/* hash, list of VMs, binding; interrupts off */
extern struct list_head unspin_vms;
extern atomic_t unspin_live_objects;
int unspin_vms_init(void);
void unspin_vms_deinit(void);
void unspin_vms_discover(void);
struct unspin_slot *unspin_slot_add(struct kvm_vcpu *vcpu, gfp_t gfp);
void unspin_slot_bind(struct unspin_slot *slot);
void unspin_vm_end(const struct kvm *kvm);
void unspin_vm_release(struct unspin_vm *vm);
void unspin_vm_kick_slots(struct unspin_vm *vm);
void unspin_vm_apply(struct unspin_vm *vm, bool mode_written);
void unspin_vm_batch(struct unspin_vm *vm);
void unspin_vms_inherit(enum unspin_field field);
void unspin_windows_restore(void);
void unspin_slots_quiesce(void);
bool unspin_any_in_flight(void);
void unspin_watch(void);

/* hooks.c */
int unspin_hooks_init(void);
void unspin_hooks_deinit(void);
int unspin_attach_update(void);
int unspin_attach_open(void);
void unspin_detach(void);
bool unspin_attached(void);
int unspin_selfcheck(void);

/* account.c */
void unspin_ple_exit(struct unspin_slot *slot);
void unspin_entry(struct kvm_vcpu *vcpu, struct unspin_slot *cur);
void unspin_totals_read(struct unspin_vm *vm, struct unspin_totals *totals);
void unspin_epoch_restart(struct unspin_vm *vm);
u32 unspin_window_mean(struct unspin_vm *vm);

/* pick.c */
void unspin_on_spin(struct kvm_vcpu *me, bool yield_to_kernel_mode);

/* window.c */
extern const struct unspin_window_ops *unspin_window;	/* NULL: no control */
extern bool unspin_window_refused;
extern u32 unspin_window_default_cycles;			/* 0: no control */
int unspin_window_init(void);
void unspin_window_deinit(void);
ssize_t unspin_window_describe(char *buf);
void unspin_window_refuse(const char *why);

/* window_vmx.c, window_svm.c: NULL and a reason where the layout is not known for sure */
const struct unspin_window_ops *unspin_window_vmx_init(struct module *vendor, const char **why);
const struct unspin_window_ops *unspin_window_svm_init(struct module *vendor, const char **why);

/* btf.c */
#define UNSPIN_BTF_STRUCT U32_MAX	/* a structure, of whatever size */
struct unspin_btf_want {
	const char *member;
	u32 size;		/* in bytes; 0: a pointer; UNSPIN_BTF_STRUCT */
	u32 offset;		/* found */
};
int unspin_btf_members(const char *module, const char *type, struct unspin_btf_want *want, u32 count);

/* sysfs.c */
extern const char *const unspin_mode_names[UNSPIN_MODES];
extern const struct kobj_type unspin_vm_ktype;
int unspin_sysfs_init(void);
void unspin_sysfs_deinit(void);
int unspin_sysfs_vm_add(struct unspin_vm *vm);

static inline u64 unspin_now(void)
{
	return rdtsc();
}

static inline void unspin_count(struct unspin_slot *slot, enum unspin_counter counter, u64 n)
{
	WRITE_ONCE(slot->count[counter], slot->count[counter] + n);
}

#endif
