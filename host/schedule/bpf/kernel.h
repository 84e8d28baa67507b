/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What schedulers of sched_ext need of the kernel, under the kernel's names. libbpf looks types up in the type
 * information of the running kernel: members may have other offsets there, and members that are left out here
 * are 0 or are not read. The scheduler in papers/ uses this file, too.
 */
#ifndef UNSPIN_SCHEDULE_KERNEL_H
#define UNSPIN_SCHEDULE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u64 u64;
typedef __s64 s64;
typedef __u32 u32;
typedef __s32 s32;

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_RB_NO_WAKEUP 1
#define CLOCK_MONOTONIC 1

#define SCX_DSQ_GLOBAL 0x8000000000000001ull
#define SCX_DSQ_LOCAL 0x8000000000000002ull
#define SCX_DSQ_LOCAL_ON 0xc000000000000000ull	/* of the CPU in its low bits */
#define SCHED_EXT 7
#define SCX_OPS_ENQ_LAST 2ull	/* enqueue() also gets a thread that is the only one of its CPU */
#define SCX_OPS_ENQ_EXITING 4ull	/* and one that exits */
#define SCX_OPS_SWITCH_PARTIAL 8ull
#define SCX_OPS_ENQ_MIGRATION_DISABLED 16ull	/* and one that may not leave its CPU for now */
#define SCX_SLICE_DFL 20000000ull

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/*
 * Numbers that libbpf takes from the running kernel. It cannot do so for those above: flags of a scheduler are in
 * data, and of numbers of queues clang 14 notes only 32 bits.
 */
enum scx_enq_flags { SCX_ENQ_WAKEUP = 1 };
enum scx_deq_flags { SCX_DEQ_SLEEP = 1 };
enum scx_kick_flags { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2 };
enum scx_ent_flags { SCX_TASK_QUEUED = 1 };

#define SCX_ENQ_WAKEUP bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_WAKEUP)
#define SCX_DEQ_SLEEP bpf_core_enum_value(enum scx_deq_flags, SCX_DEQ_SLEEP)
#define SCX_KICK_IDLE bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_IDLE)
#define SCX_KICK_PREEMPT bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_PREEMPT)
#define SCX_TASK_QUEUED bpf_core_enum_value(enum scx_ent_flags, SCX_TASK_QUEUED)

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
} __attribute__((preserve_access_index));

/* More CPUs may follow: only the kernel reads them. */
struct cpumask {
	unsigned long bits[1];
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
	unsigned int policy;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
} __attribute__((preserve_access_index));

struct rq {
	u64 clock;
	u64 clock_task;	/* less interrupts */
} __attribute__((preserve_access_index));

enum scx_exit_kind { SCX_EXIT_NONE };

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
} __attribute__((preserve_access_index));

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, _Bool);
	void (*quiescent)(struct task_struct *, u64);
	_Bool (*yield)(struct task_struct *, struct task_struct *);
	void (*set_cpumask)(struct task_struct *, const struct cpumask *);
	void (*cpu_online)(s32);
	void (*cpu_offline)(s32);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

/*
 * By dsq_insert() and dsq_move_to_local(): new kernels (6.19 and 7.1) have the first forms, old ones the second. Of the
 * others that are not weak, scx_bpf_task_set_slice() is the newest (6.19).
 */
_Bool scx_bpf_dsq_insert___v2___first(struct task_struct *p, u64 queue, u64 slice, u64 flags) __ksym __weak;
void scx_bpf_dsq_insert___earlier(struct task_struct *p, u64 queue, u64 slice, u64 flags) __ksym __weak;
_Bool scx_bpf_dsq_move_to_local___v2___first(u64 queue, u64 flags) __ksym __weak;
_Bool scx_bpf_dsq_move_to_local___earlier(u64 queue) __ksym __weak;
s32 scx_bpf_dsq_nr_queued(u64 queue) __ksym;
s32 scx_bpf_create_dsq(u64 queue, s32 node) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 flags, _Bool *is_idle) __ksym;
_Bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
_Bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u64 scx_bpf_now(void) __ksym;
extern const struct rq runqueues __ksym;
/*
 * By reenqueue_local(), from any context (6.19). Its name had a suffix at first, while another function had the name.
 */
void scx_bpf_reenqueue_local___v2___first(void) __ksym __weak;
void scx_bpf_reenqueue_local___later(void) __ksym __weak;
/* Of any CPU's local queue, or of others (7.1). It replaces the one above. */
void scx_bpf_dsq_reenq(u64 queue, u64 flags) __ksym __weak;
_Bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

static __always_inline void dsq_insert(struct task_struct *p, u64 queue, u64 slice, u64 flags)
{
	if (scx_bpf_dsq_insert___v2___first)
		scx_bpf_dsq_insert___v2___first(p, queue, slice, flags);
	else
		scx_bpf_dsq_insert___earlier(p, queue, slice, flags);
}

static __always_inline _Bool dsq_move_to_local(u64 queue)
{
	if (scx_bpf_dsq_move_to_local___v2___first)
		return scx_bpf_dsq_move_to_local___v2___first(queue, 0);
	return scx_bpf_dsq_move_to_local___earlier(queue);
}

static __always_inline void reenqueue_local(void)
{
	if (scx_bpf_reenqueue_local___v2___first)
		scx_bpf_reenqueue_local___v2___first();
	else if (scx_bpf_reenqueue_local___later)
		scx_bpf_reenqueue_local___later();
	else if (scx_bpf_dsq_reenq)
		scx_bpf_dsq_reenq(SCX_DSQ_LOCAL, 0);
}

/*
 * Which forms of what reenqueue_local() needs there are; 0 if it does nothing. Each has a number of its own, or clang
 * combines the addresses, which the verifier refuses.
 */
static __always_inline u32 reenqueue_forms(void)
{
	u32 forms = 0;

	if (scx_bpf_reenqueue_local___v2___first)
		forms |= 1;
	if (scx_bpf_reenqueue_local___later)
		forms |= 2;
	if (scx_bpf_dsq_reenq)
		forms |= 4;
	return forms;
}

#endif
